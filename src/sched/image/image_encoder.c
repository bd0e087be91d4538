/* Reading plays the shortest history that ends in the same state: items are allocated and freed,
 * those that are gone are evicted, requests become users. Room is counted at the end, so that it
 * never stands in the way. Epochs begin anew: what counts is whether a feature holds its item. */
#include "sched/image/image.h"

typedef enum qr_item_row {
    QR_ITEMS_GONE,
    QR_ITEMS_USED,
    QR_ITEMS_UNUSED,
    QR_ITEMS_FRESH
} qr_item_row;

static const uint64_t ROOM_FOR_ALL = UINT64_MAX / 2;

/* The index holds live items and no others. */
static bool image_item_is_used(const qr_encoder *encoder, uint32_t slot)
{
    const qr_encoder_item *item = &encoder->items[slot];
    return item->num_users > 0 &&
           qr_buckets_find_id(&encoder->index, item->tag, slot + 1) != QR_NO_PLACE;
}

static uint32_t image_row_count(const qr_encoder *encoder, qr_item_row row)
{
    switch (row) {
    case QR_ITEMS_GONE:
        return encoder->num_gone;
    case QR_ITEMS_USED:
        return encoder->index.used - encoder->num_unused;
    case QR_ITEMS_UNUSED:
        return encoder->num_unused;
    case QR_ITEMS_FRESH:
        return encoder->num_fresh;
    }
    return 0;
}

/* The i-th slot of a row, where `before` is the one before it (QR_NIL: none). */
static uint32_t image_row_slot(const qr_encoder *encoder, qr_item_row row, uint32_t i,
                               uint32_t before)
{
    uint32_t slot = before + 1; /* of the used ones: the next by number; QR_NIL + 1 is 0 */
    switch (row) {
    case QR_ITEMS_GONE:
        return encoder->gone[i];
    case QR_ITEMS_USED:
        while (!image_item_is_used(encoder, slot))
            slot++;
        return slot;
    case QR_ITEMS_UNUSED:
        return encoder->items[before == QR_NIL ? encoder->num_slots : before].link.next;
    case QR_ITEMS_FRESH:
        break;
    }
    return encoder->fresh[i];
}

static void image_put_item(qr_image *image, const qr_encoder *encoder, uint32_t slot)
{
    qr_encoder_item item = encoder->items[slot];
    qr_image_u32(image, &item.len, UINT32_MAX);
    qr_image_u32(image, &item.num_embeds, UINT32_MAX);
    qr_image_put(image, encoder->names + (size_t)slot * encoder->config.max_identifier_bytes,
                 item.len);
}

/* Encoder-decoder items become gone by themselves, others when there is no room. */
static void image_play_item(qr_image *image, qr_encoder *encoder, qr_item_row row, qr_feature *f)
{
    bool evicts = row == QR_ITEMS_GONE && !encoder->config.is_encoder_decoder;
    if (evicts) {
        encoder->num_free = encoder->num_freeable = 1;
        f->num_embeds = 1; /* nobody asks for the size of an item that is gone */
    }
    qr_image_require(image, !image->is_bad && qr_encoder_allocate(encoder, f, 0) == QUIRE_OK);
    if (image->is_bad || encoder->config.is_encoder_decoder)
        return;
    qr_encoder_free_input(encoder, f, 1, 0);
    if (evicts)
        qr_image_require(image, qr_encoder_can_allocate(encoder, f, 1, 0, 0));
}

static void image_get_item(qr_image *image, qr_encoder *encoder, qr_item_row row)
{
    uint32_t len = 0;
    qr_feature feature = {0};
    qr_image_u32(image, &len, encoder->config.max_identifier_bytes);
    qr_image_u32(image, &feature.num_embeds, UINT32_MAX);
    feature.identifier = (quire_bytes){qr_image_view(image, len), len};
    image_play_item(image, encoder, row, &feature);
}

static void image_items(qr_image *image, qr_encoder *encoder, qr_item_row row)
{
    uint32_t count = image_row_count(encoder, row);
    uint32_t slot = QR_NIL;
    qr_image_u32(image, &count, encoder->config.max_items);
    for (uint32_t i = 0; i < count && !image->is_bad; i++) {
        if (image->is_reading) {
            image_get_item(image, encoder, row);
            continue;
        }
        slot = image_row_slot(encoder, row, i, slot);
        image_put_item(image, encoder, slot);
    }
}

void qr_image_encoder_begin(qr_image *image, qr_encoder *encoder)
{
    if (image->is_reading)
        encoder->num_free = encoder->num_freeable = ROOM_FOR_ALL;
    image_items(image, encoder, QR_ITEMS_GONE);
    if (image->is_reading && encoder->config.is_encoder_decoder) {
        const quire_bytes *none;
        qr_encoder_take_freed(encoder, &none); /* what was fresh is gone */
    }
    if (image->is_reading)
        encoder->num_free = encoder->num_freeable = ROOM_FOR_ALL;
    if (encoder->config.is_encoder_decoder) {
        image_items(image, encoder, QR_ITEMS_FRESH);
        if (image->is_reading) /* holders take theirs */
            encoder->num_free = encoder->config.cache_size;
    } else {
        image_items(image, encoder, QR_ITEMS_USED);
        image_items(image, encoder, QR_ITEMS_UNUSED);
    }
}

void qr_image_hold(qr_image *image, qr_encoder *encoder, qr_feature *features, uint32_t i)
{
    bool holds = qr_encoder_holds(encoder, &features[i]);
    qr_image_bool(image, &holds);
    if (!image->is_reading)
        return;
    features[i].holds = 0;
    if (!holds || image->is_bad)
        return;
    if (!encoder->config.is_encoder_decoder) {
        qr_image_require(image, qr_encoder_check_and_update(encoder, features, i + 1, i));
        return;
    }
    features[i].holds = encoder->epoch;
    if (encoder->config.frees_again)
        return;
    qr_image_require(image, features[i].num_embeds <= encoder->num_free);
    if (!image->is_bad)
        encoder->num_free -= features[i].num_embeds;
}

void qr_image_encoder_end(qr_image *image, qr_encoder *encoder)
{
    uint64_t num_free = encoder->num_free;
    qr_image_u64(image, &num_free, ROOM_FOR_ALL);
    if (!image->is_reading)
        return;
    if (encoder->config.is_encoder_decoder && !encoder->config.frees_again)
        qr_image_require(image, num_free == encoder->num_free);
    uint64_t num_unused_embeds = encoder->num_freeable - encoder->num_free;
    encoder->num_free = num_free;
    encoder->num_freeable = encoder->config.is_encoder_decoder ? encoder->config.cache_size
                                                               : num_free + num_unused_embeds;
}
