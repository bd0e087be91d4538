#include "parity/hash_case.h"
#include "parity/stream.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- strings --------------------------------------------------------------- */

quire_bytes case_text_read(recording *r, char *word)
{
    char *star = strchr(word, '*');
    size_t times = star == NULL ? 1 : strtoul(word, NULL, 10);
    const char *hex = star == NULL ? word : star + 1;
    size_t unit = strlen(hex) / 2;
    unsigned char *data = malloc(unit * (times == 0 ? 1 : times) + 1);
    assert_non_null(data);
    recording_hex(r, hex, data, unit);
    for (size_t i = 1; i < times; i++)
        memcpy(data + i * unit, data, unit);
    return (quire_bytes){data, unit * times};
}

void case_strings_read(recording *r, char *word, case_strings *strings)
{
    strings->count = 0;
    if (strcmp(word, "-") == 0)
        return;
    for (char *item = strsep(&word, ","); item != NULL; item = strsep(&word, ",")) {
        recording_expect(r, strings->count < CASE_MAX_STRINGS, "strings fit");
        strings->items[strings->count++] = case_text_read(r, item);
    }
}

void case_strings_free(case_strings *strings)
{
    for (uint32_t i = 0; i < strings->count; i++)
        free((void *)(uintptr_t)strings->items[i].data);
    strings->count = 0;
}

/* The string that a word names by its place in the list; absent for "-". */
static quire_bytes named_string(recording *r, const case_strings *strings, const char *word)
{
    if (strcmp(word, "-") == 0)
        return (quire_bytes){NULL, 0};
    unsigned long index = strtoul(word, NULL, 10);
    recording_expect(r, index < strings->count, "string is in the list");
    return strings->items[index];
}

/* The next part of "a:b:c". */
static char *next_part(recording *r, char **rest)
{
    char *part = strsep(rest, ":");
    recording_expect(r, part != NULL, "one more part between colons");
    return part;
}

/* The strings of an adapter: its name, and behind a colon its path. */
static void read_lora(recording *r, const case_strings *strings, char *word, quire_bytes *name,
                      quire_bytes *path)
{
    char *path_word = word;
    *name = named_string(r, strings, strsep(&path_word, ":"));
    *path = named_string(r, strings, path_word == NULL ? "-" : path_word);
}

/* ---- requests -------------------------------------------------------------- */

static void read_features(recording *r, case_request *request, char *word)
{
    quire_extra_keys *extra = &request->extra;
    if (strcmp(word, "-") == 0)
        return;
    for (char *item = strsep(&word, ","); item != NULL; item = strsep(&word, ",")) {
        recording_expect(r, extra->num_mm_features < CASE_MAX_KEYS, "features fit");
        quire_mm_feature *feature = &request->features[extra->num_mm_features++];
        feature->identifier = named_string(r, &request->strings, next_part(r, &item));
        feature->offset = strtoull(next_part(r, &item), NULL, 10);
        feature->length = strtoull(next_part(r, &item), NULL, 10);
    }
    extra->mm_features = request->features;
}

static void read_embeds(case_request *request, const char *word, uint64_t seed)
{
    quire_extra_keys *extra = &request->extra;
    if (strcmp(word, "-") == 0)
        return;
    char *rest;
    extra->num_prompt_embeds = strtoull(word, &rest, 10);
    extra->prompt_embed_bytes = strtoul(rest + 1, NULL, 10);
    size_t bytes = extra->num_prompt_embeds * extra->prompt_embed_bytes;
    request->embeds = malloc(bytes);
    assert_non_null(request->embeds);
    stream_bytes(&seed, request->embeds, bytes);
    extra->prompt_embeds = request->embeds;
}

void case_request_read(recording *r, case_request *request)
{
    *request = (case_request){.extra = QUIRE_EXTRA_KEYS_INIT, .stream = recording_number(r)};
    char *lora = recording_word(r);
    const char *salt = recording_word(r);
    const char *embeds = recording_word(r);
    char *features = recording_word(r);
    case_strings_read(r, recording_word(r), &request->strings);
    read_lora(r, &request->strings, lora, &request->extra.lora_name, &request->extra.lora_path);
    request->extra.cache_salt = named_string(r, &request->strings, salt);
    read_features(r, request, features);
    read_embeds(request, embeds, request->stream + 1);
}

void case_request_free(case_request *request)
{
    case_strings_free(&request->strings);
    free(request->embeds);
    request->embeds = NULL;
}

/* ---- keys of one block ----------------------------------------------------- */

static void read_key(recording *r, case_keys *keys, char *item)
{
    static const struct {
        char letter;
        quire_extra_key_kind kind;
    } kinds[] = {{'L', QUIRE_KEY_LORA_NAME},
                 {'M', QUIRE_KEY_MM_FEATURE},
                 {'S', QUIRE_KEY_CACHE_SALT},
                 {'P', QUIRE_KEY_PROMPT_EMBEDS}};
    quire_extra_key *key = &keys->items[keys->count];
    char letter = next_part(r, &item)[0];
    *key = (quire_extra_key){0};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].letter == letter)
            key->kind = kinds[i].kind;
    recording_expect(r, key->kind != 0, "kind of key is known");
    char *value = letter == 'L' ? item : next_part(r, &item);
    if (letter == 'L') {
        quire_extra_key path = {.kind = QUIRE_KEY_LORA_PATH};
        recording_expect(r, value != NULL, "an adapter has a name");
        read_lora(r, &keys->strings, value, &key->value, &path.value);
        if (path.value.data != NULL)
            keys->items[++keys->count] = path;
    } else if (letter == 'P') {
        unsigned char *digest = keys->digests[keys->count];
        key->value = (quire_bytes){digest, recording_hex(r, value, digest, QUIRE_MAX_DIGEST_BYTES)};
    } else {
        key->value = named_string(r, &keys->strings, value);
    }
    if (letter == 'M')
        key->offset = strtoll(next_part(r, &item), NULL, 10);
    keys->count++;
}

void case_keys_read(recording *r, case_keys *keys)
{
    keys->count = 0;
    char *list = recording_word(r);
    case_strings_read(r, recording_word(r), &keys->strings);
    if (strcmp(list, "-") == 0)
        return;
    for (char *item = strsep(&list, ","); item != NULL; item = strsep(&list, ",")) {
        recording_expect(r, keys->count + 1 < CASE_MAX_KEYS, "keys fit");
        read_key(r, keys, item);
    }
}

void case_keys_free(case_keys *keys)
{
    case_strings_free(&keys->strings);
}
