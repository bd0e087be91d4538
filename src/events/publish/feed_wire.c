#include "events/publish/feed_wire.h"

#include "base/bits.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

/* Arrays of one event, in one piece of memory. */
typedef struct feed_arrays {
    quire_wire_hash *hashes;
    int64_t *tokens;
    quire_wire_key *keys;
    uint32_t *key_start;
} feed_arrays;

/* Blocks of an event that are told. */
typedef struct feed_part {
    const quire_feed_event *event;
    uint32_t first;
    uint32_t end;
    uint32_t first_token;
    uint32_t num_tokens;
    bool has_lora_key; /* the adapter's name is the first key of every block */
} feed_part;

static feed_part take_part(const quire_feed_event *event, uint32_t first, uint32_t count)
{
    feed_part part = {.event = event, .first = first, .end = first + count};
    if (event->tokens != NULL) {
        uint64_t from = (uint64_t)first * event->block_size;
        uint64_t to = (uint64_t)part.end * event->block_size;
        part.first_token = (uint32_t)(from < event->num_tokens ? from : event->num_tokens);
        part.num_tokens = (uint32_t)(to < event->num_tokens ? to : event->num_tokens);
        part.num_tokens -= part.first_token;
    }
    part.has_lora_key = event->lora_name.data != NULL;
    return part;
}

static int make_arrays(qr_feed_wire *f, const feed_part *part, feed_arrays *arrays)
{
    size_t num_blocks = part->end - part->first;
    size_t num_keys = part->event->num_keys + (part->has_lora_key ? num_blocks : 0);
    size_t hash_bytes = qr_mul_size(num_blocks, sizeof arrays->hashes[0]);
    size_t token_bytes = qr_mul_size(part->num_tokens, sizeof arrays->tokens[0]);
    size_t key_bytes = qr_mul_size(num_keys, sizeof arrays->keys[0]);
    size_t start_bytes = qr_mul_size(num_blocks + 1, sizeof arrays->key_start[0]);
    size_t all =
        qr_add_size(qr_add_size(hash_bytes, token_bytes), qr_add_size(key_bytes, start_bytes));
    if (all > f->capacity) {
        void *memory = qr_alloc_raw(all);
        if (memory == NULL)
            return QUIRE_E_NOMEM;
        qr_free(f->memory);
        f->memory = memory;
        f->capacity = all;
    }
    unsigned char *at = f->memory; /* all but the last are multiples of 8 */
    arrays->hashes = (quire_wire_hash *)(void *)at;
    arrays->tokens = (int64_t *)(void *)(at + hash_bytes);
    arrays->keys = (quire_wire_key *)(void *)(at + hash_bytes + token_bytes);
    arrays->key_start = (uint32_t *)(void *)(at + hash_bytes + token_bytes + key_bytes);
    return QUIRE_OK;
}

static quire_bytes hash_at(const quire_feed_event *event, uint32_t place)
{
    return (quire_bytes){event->hashes + (size_t)place * event->hash_bytes, event->hash_bytes};
}

static quire_wire_key make_text_key(quire_bytes text)
{
    bool is_text = qr_utf8_is_text(text.data, text.len);
    return (quire_wire_key){.kind = is_text ? QUIRE_WIRE_TEXT : QUIRE_WIRE_BYTES, .value = text};
}

static quire_wire_key make_key(const quire_extra_key *key)
{
    quire_wire_key made = make_text_key(key->value);
    made.number = key->offset;
    if (key->kind == QUIRE_KEY_MM_FEATURE && made.kind == QUIRE_WIRE_TEXT)
        made.kind = QUIRE_WIRE_FEATURE;
    if (key->kind == QUIRE_KEY_PROMPT_EMBEDS)
        made.kind = QUIRE_WIRE_BYTES;
    return made;
}

/* Hashes and keys of the blocks that are not null. */
static void make_blocks(qr_feed_wire *f, const feed_part *part, const feed_arrays *arrays,
                        quire_wire_event *wire)
{
    const quire_feed_event *event = part->event;
    uint32_t num_keys = 0;
    uint32_t at = 0; /* in event->keys */
    for (uint32_t i = part->first; i < part->end; i++) {
        if (event->blocks[i] == QUIRE_NULL_BLOCK)
            continue;
        arrays->hashes[wire->num_hashes] = qr_wire_hash_of(hash_at(event, i), f->hashes_as_bytes);
        arrays->key_start[wire->num_hashes++] = num_keys;
        if (part->has_lora_key)
            arrays->keys[num_keys++] = make_text_key(event->lora_name);
        while (at < event->num_keys && event->keys[at].place < i)
            at++;
        for (; at < event->num_keys && event->keys[at].place == i; at++)
            arrays->keys[num_keys++] = make_key(&event->keys[at].key);
    }
    arrays->key_start[wire->num_hashes] = num_keys;
    wire->hashes = arrays->hashes;
    if (event->tokens != NULL && wire->num_hashes > 0) {
        wire->key_start = arrays->key_start;
        wire->keys = arrays->keys;
    }
}

static void make_stored(qr_feed_wire *f, const feed_part *part, const feed_arrays *arrays,
                        quire_wire_event *wire)
{
    const quire_feed_event *event = part->event;
    bool has_chain = event->kind == QUIRE_FEED_STORED; /* a walk's blocks are in no order */
    quire_bytes parent = part->first > 0 ? hash_at(event, part->first - 1) : event->parent;
    wire->kind = QUIRE_WIRE_STORED;
    wire->block_size = event->block_size;
    wire->has_parent = has_chain && parent.data != NULL;
    if (wire->has_parent != 0)
        wire->parent = qr_wire_hash_of(parent, f->hashes_as_bytes);
    for (uint32_t i = 0; i < part->num_tokens; i++)
        arrays->tokens[i] = event->tokens[part->first_token + i];
    wire->tokens = arrays->tokens;
    wire->num_tokens = part->num_tokens;
    wire->has_lora_id = event->lora_id != 0;
    wire->lora_id = event->lora_id;
    if (qr_utf8_is_text(event->lora_name.data, event->lora_name.len))
        wire->lora_name = event->lora_name;
    qr_wire_set_spec(wire, f->specs);
}

void qr_wire_set_spec(quire_wire_event *wire, const quire_monitor_info *specs)
{
    static const char *const kinds[] = {
        [QUIRE_LAYER_FULL] = "full_attention",
        [QUIRE_LAYER_TQ_FULL] = "full_attention",
        [QUIRE_LAYER_MLA] = "mla_attention",
        [QUIRE_LAYER_SINK_FULL] = "sink_full_attention",
        [QUIRE_LAYER_SLIDING_WINDOW] = "sliding_window",
        [QUIRE_LAYER_SLIDING_WINDOW_MLA] = "sliding_window_mla",
        [QUIRE_LAYER_CHUNKED_LOCAL] = "chunked_local_attention",
        [QUIRE_LAYER_MAMBA] = "mamba",
        [QUIRE_LAYER_CROSS] = "cross_attention",
        [QUIRE_LAYER_ENCODER_ONLY] = "encoder_only_attention",
    };
    if (specs == NULL || wire->group >= specs->num_groups)
        return;
    const quire_monitor_group *group = &specs->groups[wire->group];
    wire->spec_kind = (quire_bytes){kinds[group->kind], strlen(kinds[group->kind])};
    wire->has_sliding_window = group->sliding_window > 0;
    wire->sliding_window = group->sliding_window;
}

int qr_feed_wire_make(qr_feed_wire *f, const quire_feed_event *event, uint32_t first,
                      uint32_t count, quire_wire_event *wire)
{
    *wire = (quire_wire_event){.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    if (event->kind == QUIRE_FEED_CLEARED)
        return QUIRE_OK;
    if (event->kind != QUIRE_FEED_STORED && event->kind != QUIRE_FEED_PRESENT &&
        event->kind != QUIRE_FEED_REMOVED)
        return QUIRE_MISS;
    feed_part part = take_part(event, first, count);
    feed_arrays arrays;
    int status = make_arrays(f, &part, &arrays);
    if (status != QUIRE_OK)
        return status;
    wire->medium = (quire_bytes){event->medium, strlen(event->medium)};
    wire->has_group = 1;
    wire->group = event->group_id;
    make_blocks(f, &part, &arrays, wire);
    if (event->kind == QUIRE_FEED_REMOVED)
        wire->kind = QUIRE_WIRE_REMOVED;
    else
        make_stored(f, &part, &arrays, wire);
    return QUIRE_OK;
}
