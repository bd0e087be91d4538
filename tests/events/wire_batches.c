/* events/wire_batches.c - writes batches of random events for other decoders, as bytes and as what
 * they say.
 *
 *      wire_batches SEED COUNT [maps]   one line for each batch: hexadecimal, then the same as JSON
 *
 * maps: the map form, and the fields of vLLM 0.32.0.
 *
 * test_wire_vllm.py reads the bytes with vLLM's classes and compares.
 */
#include "base/unit.h"

#include <quire/wire.h>

#include <inttypes.h>

enum { MOST_HASHES = 20, MOST_TOKENS = 40, MOST_KEYS = 60, HASH_BYTES = 32, MOST_EVENTS = 20 };

static uint64_t random_state;
static bool has_maps;

static uint32_t below(uint32_t n)
{
    return unit_random_below(&random_state, n);
}

static uint64_t any_number(void)
{
    return unit_random(&random_state) >> below(64);
}

/* One event, and what it points to. */
typedef struct made_event {
    quire_wire_event event;
    quire_wire_hash hashes[MOST_HASHES];
    unsigned char bytes[MOST_HASHES + 1][HASH_BYTES];
    int64_t tokens[MOST_TOKENS];
    quire_wire_key keys[MOST_KEYS];
    uint32_t key_start[MOST_HASHES + 1];
} made_event;

static const char *const texts[] = {"GPU", "", "adapter", "gr\xc3\xb6\xc3\x9fn", "\xe6\x97\xa5"};

static quire_bytes any_text(void)
{
    const char *text = texts[below((uint32_t)COUNT(texts))];
    return (quire_bytes){text, strlen(text)};
}

static quire_wire_hash any_hash(made_event *m, uint32_t place, bool is_number)
{
    if (is_number)
        return (quire_wire_hash){.number = any_number()};
    for (size_t i = 0; i < HASH_BYTES; i++)
        m->bytes[place][i] = (unsigned char)below(256);
    return (quire_wire_hash){.bytes = {m->bytes[place], HASH_BYTES}};
}

static void make_keys(made_event *m)
{
    uint32_t num_keys = 0;
    for (uint32_t i = 0; i < m->event.num_hashes; i++) {
        m->key_start[i] = num_keys;
        for (uint32_t k = below(3); k > 0; k--) {
            quire_wire_key key = {.kind = (quire_wire_key_kind)(QUIRE_WIRE_TEXT + below(4)),
                                  .value = any_text(),
                                  .number = (int64_t)any_number() / 2 - 1000};
            m->keys[num_keys++] = key;
        }
    }
    m->key_start[m->event.num_hashes] = num_keys;
    m->event.key_start = m->key_start;
    m->event.keys = m->keys;
}

static void make_stored(made_event *m, bool is_number)
{
    quire_wire_event *e = &m->event;
    e->num_tokens = below(MOST_TOKENS + 1);
    for (uint32_t i = 0; i < e->num_tokens; i++)
        m->tokens[i] = (int64_t)(any_number() / 2) * (below(8) == 0 ? -1 : 1);
    e->tokens = m->tokens;
    e->block_size = (uint32_t)any_number();
    e->has_parent = below(2);
    e->parent = any_hash(m, MOST_HASHES, is_number);
    e->has_lora_id = below(2);
    e->lora_id = (int64_t)below(1000);
    if (below(2) == 0)
        e->lora_name = any_text();
    if (below(2) == 0 && e->num_hashes > 0)
        make_keys(m);
}

/* What the map form alone has. */
static void make_more(quire_wire_event *e)
{
    e->locality = below(2) == 0 ? any_text() : (quire_bytes){NULL, 0};
    e->ownership = below(2) == 0 ? any_text() : (quire_bytes){NULL, 0};
    if (e->kind != QUIRE_WIRE_STORED)
        return;
    e->spec_kind = below(2) == 0 ? any_text() : (quire_bytes){NULL, 0};
    e->session_id = below(2) == 0 ? any_text() : (quire_bytes){NULL, 0};
    e->has_sliding_window = below(2);
    e->sliding_window = e->has_sliding_window != 0 ? (uint32_t)any_number() : 0;
}

static void make_event(made_event *m)
{
    quire_wire_event *e = &m->event;
    bool is_number = below(2) == 0;
    *e = (quire_wire_event){.size = sizeof(quire_wire_event),
                            .kind = (quire_wire_kind)(QUIRE_WIRE_STORED + below(3))};
    if (e->kind == QUIRE_WIRE_CLEARED)
        return;
    e->hashes = m->hashes;
    e->num_hashes = below(MOST_HASHES + 1);
    for (uint32_t i = 0; i < e->num_hashes; i++)
        m->hashes[i] = any_hash(m, i, is_number);
    if (below(4) > 0)
        e->medium = any_text();
    e->has_group = below(2);
    e->group = below(300);
    if (e->kind == QUIRE_WIRE_STORED)
        make_stored(m, is_number);
    if (has_maps)
        make_more(e);
}

/* ---- as JSON ---------------------------------------------------------------- */

/* Texts have no quotes; bytes are {"x": hexadecimal}. */
static void print_bytes(quire_bytes bytes)
{
    printf("{\"x\":\"");
    for (size_t i = 0; i < bytes.len; i++)
        printf("%02x", ((const unsigned char *)bytes.data)[i]);
    printf("\"}");
}

static void print_text(quire_bytes text)
{
    if (text.data == NULL)
        printf("null");
    else
        printf("\"%.*s\"", (int)text.len, (const char *)text.data);
}

static void print_hash(const quire_wire_hash *hash)
{
    if (hash->bytes.data == NULL)
        printf("%" PRIu64, hash->number);
    else
        print_bytes(hash->bytes);
}

static void print_hashes(const quire_wire_event *e)
{
    printf("[");
    for (uint32_t i = 0; i < e->num_hashes; i++) {
        printf("%s", i == 0 ? "" : ",");
        print_hash(&e->hashes[i]);
    }
    printf("]");
}

static void print_key(const quire_wire_key *key)
{
    if (key->kind == QUIRE_WIRE_TEXT)
        print_text(key->value);
    else if (key->kind == QUIRE_WIRE_BYTES)
        print_bytes(key->value);
    else if (key->kind == QUIRE_WIRE_NUMBER)
        printf("%" PRId64, key->number);
    else {
        printf("[");
        print_text(key->value);
        printf(",%" PRId64 "]", key->number);
    }
}

static void print_keys(const quire_wire_event *e)
{
    if (e->key_start == NULL) {
        printf("null");
        return;
    }
    printf("[");
    for (uint32_t i = 0; i < e->num_hashes; i++) {
        bool is_nil = e->key_start[i] == e->key_start[i + 1];
        printf("%s%s", i == 0 ? "" : ",", is_nil ? "null" : "[");
        for (uint32_t k = e->key_start[i]; k < e->key_start[i + 1]; k++) {
            printf("%s", k == e->key_start[i] ? "" : ",");
            print_key(&e->keys[k]);
        }
        printf("%s", is_nil ? "" : "]");
    }
    printf("]");
}

static void print_stored(const quire_wire_event *e)
{
    printf(",\"parent_block_hash\":");
    if (e->has_parent != 0)
        print_hash(&e->parent);
    else
        printf("null");
    printf(",\"token_ids\":[");
    for (uint32_t i = 0; i < e->num_tokens; i++)
        printf("%s%" PRId64, i == 0 ? "" : ",", e->tokens[i]);
    printf("],\"block_size\":%" PRIu32 ",\"lora_id\":", e->block_size);
    if (e->has_lora_id != 0)
        printf("%" PRId64, e->lora_id);
    else
        printf("null");
    printf(",\"lora_name\":");
    print_text(e->lora_name);
    printf(",\"extra_keys\":");
    print_keys(e);
}

static void print_more(const quire_wire_event *e)
{
    printf(",\"locality\":");
    print_text(e->locality);
    printf(",\"ownership\":");
    print_text(e->ownership);
    if (e->kind != QUIRE_WIRE_STORED)
        return;
    printf(",\"kv_cache_spec_kind\":");
    print_text(e->spec_kind);
    printf(",\"session_id\":");
    print_text(e->session_id);
    printf(",\"kv_cache_spec_sliding_window\":");
    if (e->has_sliding_window != 0)
        printf("%" PRIu32, e->sliding_window);
    else
        printf("null");
}

static void print_event(const quire_wire_event *e)
{
    static const char *const names[] = {"", "BlockStored", "BlockRemoved", "AllBlocksCleared"};
    printf("{\"type\":\"%s\"", names[e->kind]);
    if (e->kind != QUIRE_WIRE_CLEARED) {
        printf(",\"block_hashes\":");
        print_hashes(e);
        printf(",\"medium\":");
        print_text(e->medium);
        printf(",\"group_idx\":");
        if (e->has_group != 0)
            printf("%" PRIu32, e->group);
        else
            printf("null");
    }
    if (e->kind == QUIRE_WIRE_STORED)
        print_stored(e);
    if (has_maps && e->kind != QUIRE_WIRE_CLEARED)
        print_more(e);
    printf("}");
}

static void print_batch(quire_wire_writer *writer)
{
    static made_event events[MOST_EVENTS];
    quire_bytes bytes;
    uint32_t num_events = below(MOST_EVENTS + 1);
    int64_t rank = (int64_t)below(4) - 1;
    double time = (double)below(1000000) / 8;
    int err = quire_wire_begin(writer);
    for (uint32_t i = 0; i < num_events; i++) {
        make_event(&events[i]);
        err |= quire_wire_add(writer, &events[i].event);
    }
    err |= quire_wire_end(writer, time, rank, &bytes);
    if (err != QUIRE_OK)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < bytes.len; i++)
        printf("%02x", ((const unsigned char *)bytes.data)[i]);
    printf(" {\"ts\":%.3f,\"rank\":%" PRId64 ",\"events\":[", time, rank);
    for (uint32_t i = 0; i < num_events; i++) {
        printf("%s", i == 0 ? "" : ",");
        print_event(&events[i].event);
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    random_state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    quire_wire_writer *writer;
    quire_wire_options options = QUIRE_WIRE_OPTIONS_INIT;
    has_maps = argc > 3 && strcmp(argv[3], "maps") == 0;
    options.as_maps = has_maps;
    if (quire_wire_writer_create(&options, &writer) != QUIRE_OK)
        return EXIT_FAILURE;
    for (uint64_t i = 0; i < count; i++)
        print_batch(writer);
    quire_wire_writer_destroy(writer);
    return EXIT_SUCCESS;
}
