/* encoder_room.c - a qr_encoder without limits.
 *
 * It has a fixed number of items, and names of a fixed length. When either is not enough, a larger
 * one is made and told all that the old one knows, through the same calls that made the old one:
 *
 *      in use:  allocate, and check_and_update for each further user
 *      unused:  allocate, free_input, in the order in which they will be evicted
 */
#include "encoder.h"

#include "base/hooks.h"

#include <stdlib.h>

int vllm_encoder_make(const qr_encoder_config *config, qr_encoder *encoder, void **memory)
{
    qr_arena plan = qr_arena_plan();
    qr_encoder_carve(encoder, &plan, config);
    size_t bytes = plan.used;
    *memory = bytes > SIZE_MAX - QUIRE_ALIGNMENT
                  ? NULL
                  : aligned_alloc(QUIRE_ALIGNMENT, (bytes / QUIRE_ALIGNMENT + 1) * QUIRE_ALIGNMENT);
    if (*memory == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint64_t secret[2];
    quire_hooks hooks = {0};
    int status = qr_random_bytes(&hooks, secret, sizeof secret);
    if (status != QUIRE_OK) {
        free(*memory);
        vllm_raise(status, "encoder cache");
        return -1;
    }
    qr_arena arena = qr_arena_carve(*memory, bytes);
    qr_encoder_carve(encoder, &arena, config);
    qr_arena_seal(&arena);
    qr_encoder_init(encoder, secret[0], secret[1]);
    return 0;
}

qr_feature vllm_encoder_feature(const qr_encoder *encoder, uint32_t slot)
{
    const qr_encoder_item *item = &encoder->items[slot];
    const unsigned char *name =
        encoder->names + (size_t)slot * encoder->config.max_identifier_bytes;
    return (qr_feature){.identifier = {name, item->len}, .num_embeds = item->num_embeds};
}

/* Items in use, then those that are not, in their order; then what is fresh and gone. */
static void encoder_copy_items(const qr_encoder *from, qr_encoder *to)
{
    for (uint32_t slot = 0; slot < from->num_slots; slot++) {
        const qr_encoder_item *item = &from->items[slot];
        if (item->num_users == 0 ||
            qr_buckets_find_id(&from->index, item->tag, slot + 1) == QR_NO_PLACE)
            continue;
        qr_feature feature = vllm_encoder_feature(from, slot);
        (void)qr_encoder_allocate(to, &feature, 0);
        for (uint32_t i = 1; i < from->items[slot].num_users; i++) {
            feature.holds = 0;
            (void)qr_encoder_check_and_update(to, &feature, 1, 0);
        }
    }
    uint32_t end = from->num_slots;
    for (uint32_t slot = from->items[end].link.next; slot != end;
         slot = from->items[slot].link.next) {
        qr_feature feature = vllm_encoder_feature(from, slot);
        (void)qr_encoder_allocate(to, &feature, 0);
        qr_encoder_free_input(to, &feature, 1, 0);
    }
    const quire_bytes *unused;
    for (uint32_t i = 0; i < from->num_gone; i++) {
        qr_feature feature = vllm_encoder_feature(from, from->gone[i]);
        (void)qr_encoder_allocate(to, &feature, 0);
    }
    (void)qr_encoder_take_freed(to, &unused);
    for (uint32_t i = 0; i < from->num_fresh; i++) {
        qr_feature feature = vllm_encoder_feature(from, from->fresh[i]);
        (void)qr_encoder_allocate(to, &feature, 0);
    }
}

int vllm_encoder_reserve(qr_encoder *encoder, void **memory, size_t name_bytes)
{
    qr_encoder_config config = encoder->config;
    if (encoder->index.used >= config.max_items || encoder->num_fresh >= config.max_items)
        config.max_items *= 2;
    while (config.max_identifier_bytes < name_bytes && config.max_identifier_bytes < 1u << 30)
        config.max_identifier_bytes *= 2;
    if (config.max_items == encoder->config.max_items &&
        config.max_identifier_bytes == encoder->config.max_identifier_bytes)
        return 0;
    uint32_t cache_size = config.cache_size;
    config.cache_size = UINT32_MAX; /* counts are copied; until then nothing must be refused */
    qr_encoder made;
    void *made_memory;
    if (vllm_encoder_make(&config, &made, &made_memory) < 0)
        return -1;
    encoder_copy_items(encoder, &made);
    made.config.cache_size = cache_size;
    made.num_free = encoder->num_free;
    made.num_freeable = encoder->num_freeable;
    free(*memory);
    *encoder = made;
    *memory = made_memory;
    return 0;
}

void vllm_encoder_free(void *memory)
{
    free(memory);
}
