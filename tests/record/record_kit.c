#include "record_kit.h"

#include <dirent.h>
#include <unistd.h>
#include <zstd.h>

void folder_open(folder *f)
{
    (void)snprintf(f->path, sizeof f->path, "/tmp/quire-record-XXXXXX");
    assert_non_null(mkdtemp(f->path));
}

const char *folder_file(const folder *f, const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", f->path, name);
    return path;
}

void folder_close(folder *f)
{
    DIR *dir = opendir(f->path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            (void)unlink(folder_file(f, entry->d_name));
    if (dir != NULL)
        (void)closedir(dir);
    assert_int_equal(rmdir(f->path), 0);
}

quire_recorder *recorder_open(const quire_recorder_config *config)
{
    quire_recorder *recorder = NULL;
    if (quire_recorder_create(config, &recorder) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    return recorder;
}

static char *unpack(const char *packed, size_t len)
{
    size_t room = 1 << 16;
    char *text = malloc(room);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_inBuffer in = {packed, len, 0};
    ZSTD_outBuffer out = {text, room - 1, 0};
    size_t left = 0;
    while (in.pos < in.size || out.pos == out.size) {
        if (out.pos == out.size) {
            room *= 2;
            text = realloc(text, room);
            out.dst = text;
            out.size = room - 1;
        }
        left = ZSTD_decompressStream(context, &out, &in);
        if (ZSTD_isError(left))
            fail_msg("%s", ZSTD_getErrorName(left));
    }
    assert_int_equal(left, 0); /* the last frame is whole */
    ZSTD_freeDCtx(context);
    text[out.pos] = 0;
    return text;
}

char *part_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    (void)fseek(file, 0, SEEK_END);
    size_t len = (size_t)ftell(file);
    char *packed = malloc(len + 1);
    rewind(file);
    assert_int_equal(fread(packed, 1, len, file), len);
    (void)fclose(file);
    char *text = len == 0 ? calloc(1, 1) : unpack(packed, len);
    free(packed);
    return text;
}

char *parts_read(const folder *f, const char *name, uint32_t *num_parts)
{
    char *all = calloc(1, 1);
    *num_parts = 0;
    for (uint32_t part = 0;; part++) {
        char file[128];
        (void)snprintf(file, sizeof file, "%s.%04u.jsonl.zst", name, part);
        char *text = part_read(folder_file(f, file));
        if (text == NULL)
            return all;
        size_t len = strlen(all);
        all = realloc(all, len + strlen(text) + 1);
        memcpy(all + len, text, strlen(text) + 1);
        free(text);
        (*num_parts)++;
    }
}

uint32_t text_count(const char *text, const char *what)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        count++;
    return count;
}

double text_last_number(const char *text, const char *field)
{
    const char *last = NULL;
    for (const char *at = strstr(text, field); at != NULL; at = strstr(at + 1, field))
        last = at;
    assert_non_null(last);
    return strtod(last + strlen(field), NULL);
}

quire_recorded_request request_with(unsigned char hashes[][32], uint32_t num_hashes, int seed)
{
    quire_recorded_request request = QUIRE_RECORDED_REQUEST_INIT;
    for (uint32_t i = 0; i < num_hashes; i++) {
        memset(hashes[i], seed, 32);
        memcpy(hashes[i], &i, sizeof i);
    }
    request.arrival_time = 1.0;
    request.num_prompt_tokens = 16 * num_hashes + 3;
    request.max_tokens = 10;
    request.hashes = hashes;
    request.num_hashes = num_hashes;
    request.hash_bytes = 32;
    return request;
}
