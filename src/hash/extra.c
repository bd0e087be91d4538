#include "hash/extra.h"

qr_extra_cursor qr_extra_begin(const quire_extra_keys *extra, bool only_last)
{
    qr_extra_cursor cursor = {.extra = extra, .feature = 0};
    if (extra != NULL && only_last && extra->num_mm_features > 0)
        cursor.feature = extra->num_mm_features - 1;
    return cursor;
}

static uint64_t feature_end(const quire_mm_feature *feature)
{
    uint64_t end;
    return __builtin_add_overflow(feature->offset, feature->length, &end) ? UINT64_MAX : end;
}

/* The steps are those of Python's bisect_left: where features overlap, their ends are not in order,
 * and what is found depends on the steps. */
qr_extra_cursor qr_extra_begin_at(const quire_extra_keys *extra, uint64_t start)
{
    qr_extra_cursor cursor = qr_extra_begin(extra, false);
    size_t low = 0;
    size_t high = extra == NULL ? 0 : extra->num_mm_features;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (feature_end(&extra->mm_features[middle]) <= start)
            low = middle + 1;
        else
            high = middle;
    }
    cursor.feature = low;
    return cursor;
}

typedef struct key_list {
    quire_extra_key *keys;
    size_t count;
    size_t max;
    bool overflow;
} key_list;

static void add_key(key_list *list, quire_extra_key_kind kind, quire_bytes value, int64_t offset)
{
    if (list->count == list->max) {
        list->overflow = true;
        return;
    }
    list->keys[list->count++] = (quire_extra_key){.kind = kind, .value = value, .offset = offset};
}

static void add_lora(const qr_extra_cursor *cursor, key_list *list)
{
    const quire_extra_keys *extra = cursor->extra;
    if (extra->lora_name.data == NULL)
        return;
    add_key(list, QUIRE_KEY_LORA_NAME, extra->lora_name, 0);
    if (cursor->has_path && extra->lora_path.data != NULL)
        add_key(list, QUIRE_KEY_LORA_PATH, extra->lora_path, 0);
}

/* Features are in order of their offsets, and so are the blocks: the cursor only moves on. */
static void add_features(qr_extra_cursor *cursor, uint64_t start, uint64_t end, key_list *list)
{
    const quire_extra_keys *extra = cursor->extra;
    size_t n = extra->num_mm_features;
    if (n == 0 || feature_end(&extra->mm_features[n - 1]) <= start)
        return;
    for (; cursor->feature < n; cursor->feature++) {
        const quire_mm_feature *feature = &extra->mm_features[cursor->feature];
        if (feature->offset >= end)
            return; /* not reached yet */
        if (feature_end(feature) <= start)
            continue; /* past */
        add_key(list, QUIRE_KEY_MM_FEATURE, feature->identifier,
                (int64_t)(feature->offset - start));
        if (feature_end(feature) > end)
            return; /* goes on in the next block */
    }
}

static void add_embeds(qr_extra_cursor *cursor, uint64_t start, uint64_t end, key_list *list)
{
    const quire_extra_keys *extra = cursor->extra;
    uint64_t rows = extra->num_prompt_embeds;
    uint64_t first = start < rows ? start : rows;
    uint64_t last = end < rows ? end : rows;
    const unsigned char *bytes = extra->prompt_embeds;
    qr_sha256(bytes + first * extra->prompt_embed_bytes,
              (size_t)(last - first) * extra->prompt_embed_bytes, cursor->embeds_digest);
    add_key(list, QUIRE_KEY_PROMPT_EMBEDS,
            (quire_bytes){cursor->embeds_digest, sizeof cursor->embeds_digest}, 0);
}

bool qr_extra_of_block(qr_extra_cursor *cursor, uint64_t start, uint64_t end, quire_extra_key *keys,
                       size_t max, size_t *num_keys)
{
    const quire_extra_keys *extra = cursor->extra;
    key_list list = {.keys = keys, .count = 0, .max = max, .overflow = false};
    if (extra != NULL) {
        add_lora(cursor, &list);
        add_features(cursor, start, end, &list);
        if (start == 0 && extra->cache_salt.data != NULL && extra->cache_salt.len > 0)
            add_key(&list, QUIRE_KEY_CACHE_SALT, extra->cache_salt, 0);
        if (extra->prompt_embeds != NULL)
            add_embeds(cursor, start, end, &list);
    }
    *num_keys = list.count;
    return !list.overflow;
}
