#include "sched/encoder/encoder.h"

#include <quire/error.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* What a slot is. LIVE: in the index. FRESH: of an encoder-decoder model, allocated since the last
 * take_freed. GONE: its identifier is still to be told. */
enum { ITEM_SPARE, ITEM_LIVE, ITEM_FRESH, ITEM_GONE };

static unsigned char *item_name(const qr_encoder *encoder, uint32_t slot)
{
    return encoder->names + (size_t)slot * encoder->config.max_identifier_bytes;
}

static uint32_t unused_sentinel(const qr_encoder *encoder)
{
    return encoder->num_slots;
}

/* ---- making it ------------------------------------------------------------- */

void qr_encoder_carve(qr_encoder *encoder, qr_arena *arena, const qr_encoder_config *config)
{
    qr_assert(config->max_items > 0 && config->max_items <= UINT32_MAX / 4);
    uint32_t max_items = config->max_items;
    *encoder = (qr_encoder){.config = *config, .num_slots = 2 * max_items};
    uint32_t num_slots = encoder->num_slots;
    encoder->items = qr_arena_take(arena, (size_t)num_slots + 1, sizeof *encoder->items);
    encoder->names = qr_arena_take(arena, num_slots, config->max_identifier_bytes);
    encoder->spare = qr_arena_take(arena, num_slots, sizeof *encoder->spare);
    encoder->fresh = qr_arena_take(arena, max_items, sizeof *encoder->fresh);
    encoder->gone = qr_arena_take(arena, max_items, sizeof *encoder->gone);
    encoder->freed = qr_arena_take(arena, max_items, sizeof *encoder->freed);
    qr_buckets_carve(&encoder->index, arena, max_items);
    qr_set_order_carve(&encoder->order, arena, config->max_features, config->counts_inputs);
    encoder->table = encoder->order.table;
    uint32_t num_sets = config->counts_inputs ? config->max_requests : 0;
    encoder->kept = qr_arena_take(arena, num_sets, sizeof *encoder->kept);
    encoder->tables =
        qr_arena_take(arena, (size_t)num_sets * encoder->order.max_slots, sizeof *encoder->tables);
}

static void item_make_spare(qr_encoder *encoder, uint32_t slot)
{
    qr_encoder_item *item = &encoder->items[slot];
    item->state = ITEM_SPARE;
    item->place = encoder->num_spare;
    encoder->spare[encoder->num_spare++] = slot;
}

static void item_make_gone(qr_encoder *encoder, uint32_t slot)
{
    qr_assert_internal(encoder->num_gone < encoder->config.max_items);
    qr_encoder_item *item = &encoder->items[slot];
    item->state = ITEM_GONE;
    item->place = encoder->num_gone;
    encoder->gone[encoder->num_gone++] = slot;
}

void qr_encoder_reset(qr_encoder *encoder)
{
    encoder->num_free = encoder->config.cache_size;
    encoder->num_freeable = encoder->config.cache_size;
    encoder->epoch = encoder->epoch == UINT32_MAX ? 1 : encoder->epoch + 1;
    encoder->num_unused = 0;
    encoder->num_spare = 0;
    encoder->num_fresh = 0;
    encoder->num_gone = 0;
    for (uint32_t i = 0; encoder->config.counts_inputs && i < encoder->config.max_requests; i++)
        encoder->kept[i] = (qr_kept_set){0};
    qr_buckets_clear(&encoder->index);
    qr_list_init(encoder->items, sizeof *encoder->items, unused_sentinel(encoder));
    for (uint32_t slot = encoder->num_slots; slot-- > 0;) {
        encoder->items[slot] = (qr_encoder_item){.link = {QR_NIL, QR_NIL}};
        item_make_spare(encoder, slot);
    }
}

void qr_encoder_init(qr_encoder *encoder, uint64_t secret0, uint64_t secret1)
{
    qr_buckets_init(&encoder->index, encoder->num_slots, (const uint64_t[]){secret0, secret1});
    encoder->epoch = 0;
    qr_encoder_reset(encoder);
}

/* ---- items by identifier --------------------------------------------------- */

static uint32_t item_tag(const qr_encoder *encoder, quire_bytes identifier)
{
    XXH128_hash_t h =
        XXH3_128bits_withSeed(identifier.data, identifier.len, encoder->index.secret[0]);
    return qr_buckets_tag(&encoder->index, h.low64, h.high64);
}

static bool item_has_identifier(const qr_encoder *encoder, uint32_t slot, quire_bytes identifier)
{
    size_t len = encoder->items[slot].len;
    return len == identifier.len &&
           (len == 0 || memcmp(item_name(encoder, slot), identifier.data, len) == 0);
}

static quire_bytes item_identifier(const qr_encoder *encoder, uint32_t slot)
{
    return (quire_bytes){item_name(encoder, slot), encoder->items[slot].len};
}

static uint32_t item_find(const qr_encoder *encoder, quire_bytes identifier)
{
    if (encoder->index.used == 0)
        return QR_NIL;
    qr_buckets_search search =
        qr_buckets_search_begin(&encoder->index, item_tag(encoder, identifier));
    uint32_t id;
    while ((id = qr_buckets_search_next(&search)) != 0)
        if (item_has_identifier(encoder, id - 1, identifier))
            return id - 1;
    return QR_NIL;
}

/* A spare slot with the feature's identifier and size. */
static uint32_t item_take_slot(qr_encoder *encoder, const qr_feature *feature)
{
    qr_assert(encoder->num_spare > 0);
    uint32_t slot = encoder->spare[--encoder->num_spare];
    qr_encoder_item *item = &encoder->items[slot];
    item->len = (uint32_t)feature->identifier.len;
    item->num_embeds = feature->num_embeds;
    item->num_users = 0;
    if (item->len > 0)
        memcpy(item_name(encoder, slot), feature->identifier.data, item->len);
    return slot;
}

/* Takes an unused item out; the caller says what becomes of its slot. */
static void item_take_out(qr_encoder *encoder, uint32_t slot)
{
    qr_encoder_item *item = &encoder->items[slot];
    qr_list_remove(encoder->items, sizeof *encoder->items, slot);
    encoder->num_unused--;
    encoder->num_free += item->num_embeds;
    qr_buckets_remove(&encoder->index, item->tag, slot + 1);
}

static void evict_longest_unused(qr_encoder *encoder)
{
    uint32_t slot = encoder->items[unused_sentinel(encoder)].link.next;
    qr_assert(slot != unused_sentinel(encoder));
    item_take_out(encoder, slot);
    item_make_gone(encoder, slot);
}

/* ---- one feature ----------------------------------------------------------- */

/* The feature through which the request is a user of features[i]'s item, else QR_NIL. */
static uint32_t find_holding_feature(const qr_encoder *encoder, const qr_feature *features,
                                     uint32_t n, uint32_t i)
{
    if (qr_encoder_holds(encoder, &features[i]))
        return i;
    for (uint32_t j = 0; j < n; j++)
        if (qr_encoder_holds(encoder, &features[j]) &&
            qr_feature_is_same(&features[j], &features[i]))
            return j;
    return QR_NIL;
}

/* The set of a request's features that hold an item; keep_set ends the work with it. */
static qr_set_order *resume_set(qr_encoder *encoder, uint32_t owner)
{
    uint32_t *table = encoder->tables + (size_t)owner * encoder->order.max_slots;
    qr_set_order_resume(&encoder->order, &encoder->kept[owner], table);
    return &encoder->order;
}

static void keep_set(qr_encoder *encoder, uint32_t owner)
{
    encoder->kept[owner] = qr_set_order_keep(&encoder->order);
}

static void hold(qr_encoder *encoder, qr_feature *features, uint32_t i)
{
    uint32_t owner = features[i].owner;
    bool is_new = !qr_encoder_holds(encoder, &features[i]);
    features[i].holds = encoder->epoch;
    if (!encoder->config.counts_inputs || encoder->config.is_encoder_decoder || !is_new)
        return;
    qr_set_order_add(resume_set(encoder, owner), i);
    keep_set(encoder, owner);
}

static void unhold(qr_encoder *encoder, qr_feature *features, uint32_t i)
{
    features[i].holds = 0;
    if (!encoder->config.counts_inputs)
        return;
    qr_set_order_discard(resume_set(encoder, features[i].owner), i);
    keep_set(encoder, features[i].owner);
}

bool qr_encoder_check_and_update(qr_encoder *encoder, qr_feature *features, uint32_t n, uint32_t i)
{
    if (encoder->config.is_encoder_decoder)
        return false;
    uint32_t slot = item_find(encoder, features[i].identifier);
    if (slot == QR_NIL)
        return false;
    qr_encoder_item *item = &encoder->items[slot];
    if (item->num_users == 0) {
        qr_list_remove(encoder->items, sizeof *encoder->items, slot);
        encoder->num_unused--;
        encoder->num_freeable -= item->num_embeds;
    }
    bool is_user = find_holding_feature(encoder, features, n, i) != QR_NIL;
    item->num_users += !is_user;
    if (!is_user || encoder->config.counts_inputs)
        hold(encoder, features, i);
    return true;
}

uint32_t qr_encoder_size_of(const qr_encoder *encoder, const qr_feature *feature)
{
    uint32_t slot = item_find(encoder, feature->identifier);
    return slot == QR_NIL ? QR_NIL : encoder->items[slot].num_embeds;
}

bool qr_encoder_can_allocate(qr_encoder *encoder, const qr_feature *feature, uint32_t budget,
                             uint64_t num_embeds, uint32_t num_items)
{
    if (feature->num_embeds > budget)
        return false;
    uint32_t max_items = encoder->config.max_items;
    uint64_t embeds = num_embeds + feature->num_embeds;
    uint64_t items = (uint64_t)num_items + 1;
    if (encoder->config.is_encoder_decoder)
        return embeds <= encoder->num_free && encoder->num_fresh + items <= max_items;

    uint32_t in_use = encoder->index.used - encoder->num_unused;
    if (embeds > encoder->num_freeable || in_use + items > max_items)
        return false;
    while (embeds > encoder->num_free || encoder->index.used + items > max_items) {
        if (encoder->num_gone == max_items)
            return false;
        evict_longest_unused(encoder);
    }
    return true;
}

static int allocate_fresh(qr_encoder *encoder, qr_feature *feature)
{
    if (!encoder->config.frees_again && qr_encoder_holds(encoder, feature))
        return QUIRE_E_ARGUMENT;
    if (feature->num_embeds > encoder->num_free || encoder->num_fresh == encoder->config.max_items)
        return QUIRE_FULL;
    uint32_t slot = item_take_slot(encoder, feature);
    encoder->items[slot].state = ITEM_FRESH;
    encoder->items[slot].place = encoder->num_fresh;
    encoder->fresh[encoder->num_fresh++] = slot;
    encoder->num_free -= feature->num_embeds;
    feature->holds = encoder->epoch;
    return QUIRE_OK;
}

int qr_encoder_allocate(qr_encoder *encoder, qr_feature *features, uint32_t i)
{
    qr_feature *feature = &features[i];
    if (feature->identifier.len > encoder->config.max_identifier_bytes)
        return QUIRE_E_RANGE;
    if (encoder->config.is_encoder_decoder)
        return allocate_fresh(encoder, feature);
    if (item_find(encoder, feature->identifier) != QR_NIL)
        return QUIRE_E_ARGUMENT;
    if (feature->num_embeds > encoder->num_free || encoder->index.used == encoder->config.max_items)
        return QUIRE_FULL;
    uint32_t slot = item_take_slot(encoder, feature);
    qr_encoder_item *item = &encoder->items[slot];
    item->state = ITEM_LIVE;
    item->tag = item_tag(encoder, feature->identifier);
    item->num_users = 1;
    qr_buckets_insert(&encoder->index, item->tag, slot + 1);
    encoder->num_free -= feature->num_embeds;
    encoder->num_freeable -= feature->num_embeds;
    hold(encoder, features, i);
    return QUIRE_OK;
}

void qr_encoder_free_input(qr_encoder *encoder, qr_feature *features, uint32_t n, uint32_t i)
{
    if (encoder->config.is_encoder_decoder) {
        if (encoder->config.frees_again || qr_encoder_holds(encoder, &features[i]))
            encoder->num_free += features[i].num_embeds;
        features[i].holds = 0;
        return;
    }
    uint32_t holder = find_holding_feature(encoder, features, n, i);
    if (holder == QR_NIL || (encoder->config.counts_inputs && holder != i))
        return;
    uint32_t slot = item_find(encoder, features[i].identifier);
    qr_assert(slot != QR_NIL && encoder->items[slot].num_users > 0);
    unhold(encoder, features, holder);
    if (encoder->config.counts_inputs && find_holding_feature(encoder, features, n, i) != QR_NIL)
        return;
    qr_encoder_item *item = &encoder->items[slot];
    if (--item->num_users > 0)
        return;
    if (encoder->config.sizes_by_user)
        item->num_embeds = features[i].num_embeds;
    qr_list_insert_before(encoder->items, sizeof *encoder->items, unused_sentinel(encoder), slot);
    encoder->num_unused++;
    encoder->num_freeable += item->num_embeds;
}

void qr_encoder_forget(qr_encoder *encoder, qr_feature *features, uint32_t n, uint32_t i)
{
    if (encoder->config.is_encoder_decoder)
        return;
    qr_encoder_free_input(encoder, features, n, i);
    uint32_t slot = item_find(encoder, features[i].identifier);
    if (slot == QR_NIL || encoder->items[slot].num_users > 0)
        return;
    item_take_out(encoder, slot);
    item_make_spare(encoder, slot); /* nobody has it, so nobody is told */
}

/* ---- all features ---------------------------------------------------------- */

uint32_t qr_encoder_cached_inputs(qr_encoder *encoder, const qr_feature *features, uint32_t n,
                                  const uint32_t **inputs)
{
    qr_assert(n <= encoder->config.max_features);
    if (encoder->config.counts_inputs && !encoder->config.is_encoder_decoder) {
        *inputs = qr_set_order_list(resume_set(encoder, features[0].owner));
        return encoder->order.used;
    }
    encoder->order.table = encoder->table;
    qr_set_order_begin(&encoder->order);
    for (uint32_t i = 0; i < n; i++)
        if (encoder->config.is_encoder_decoder ||
            item_find(encoder, features[i].identifier) != QR_NIL)
            qr_set_order_add(&encoder->order, i);
    *inputs = qr_set_order_list(&encoder->order);
    return encoder->order.used;
}

/* Whether freeing can change anything. In most steps of a request it cannot, and its items need not
 * be looked up. */
static bool has_features_to_free(const qr_encoder *encoder, const qr_feature *features, uint32_t n)
{
    if (encoder->config.is_encoder_decoder && encoder->config.frees_again)
        return n > 0;
    for (uint32_t i = 0; i < n; i++)
        if (qr_encoder_holds(encoder, &features[i]))
            return true;
    return false;
}

void qr_encoder_free_computed(qr_encoder *encoder, qr_feature *features, uint32_t n,
                              uint64_t num_computed_tokens)
{
    if (!has_features_to_free(encoder, features, n))
        return;
    const uint32_t *inputs;
    uint32_t num_inputs = qr_encoder_cached_inputs(encoder, features, n, &inputs);
    for (uint32_t k = 0; k < num_inputs; k++)
        if (qr_feature_is_computed(encoder, &features[inputs[k]], num_computed_tokens)) {
            qr_encoder_free_input(encoder, features, n, inputs[k]);
            if (encoder->on_free != NULL && num_computed_tokens != UINT64_MAX)
                encoder->on_free(encoder->free_user, features, inputs[k]);
        }
}

void qr_encoder_free(qr_encoder *encoder, qr_feature *features, uint32_t n)
{
    qr_encoder_free_computed(encoder, features, n, UINT64_MAX);
}

/* ---- the rest -------------------------------------------------------------- */

uint32_t qr_encoder_take_freed(qr_encoder *encoder, const quire_bytes **identifiers)
{
    uint32_t num_gone = encoder->num_gone;
    uint32_t num_freed = 0;
    encoder->num_gone = 0;
    for (uint32_t i = 0; i < num_gone; i++) {
        quire_bytes identifier = item_identifier(encoder, encoder->gone[i]);
        bool is_back = encoder->config.counts_inputs && item_find(encoder, identifier) != QR_NIL;
        if (!is_back)
            encoder->freed[num_freed++] = identifier;
        item_make_spare(encoder, encoder->gone[i]);
    }
    for (uint32_t i = 0; i < encoder->num_fresh; i++)
        item_make_gone(encoder, encoder->fresh[i]);
    encoder->num_fresh = 0;
    *identifiers = encoder->freed;
    return num_freed;
}

uint32_t qr_feature_embeds_in_range(const qr_feature *feature, const qr_flag_store *flags,
                                    const qr_flag_chain *chain, uint32_t start, uint32_t end)
{
    if (start >= end)
        return 0;
    qr_assert(end <= feature->length);
    if (!feature->has_flags)
        return end - start;
    return qr_flags_count(flags, chain, (uint64_t)feature->first_flag + start, end - start);
}

/* ---- the walker ------------------------------------------------------------ */

/* Every slot that says it is in a row has its own place there, so if there are as many of them as
 * places, each is there once. */
static bool slot_has_place(const qr_encoder *encoder, uint32_t slot)
{
    const qr_encoder_item *item = &encoder->items[slot];
    switch (item->state) {
    case ITEM_SPARE:
        return item->place < encoder->num_spare && encoder->spare[item->place] == slot;
    case ITEM_FRESH:
        return item->place < encoder->num_fresh && encoder->fresh[item->place] == slot;
    case ITEM_GONE:
        return item->place < encoder->num_gone && encoder->gone[item->place] == slot;
    case ITEM_LIVE:
        return item_find(encoder, item_identifier(encoder, slot)) == slot;
    default:
        return false;
    }
}

/* The list of unused items, both ways; *num_embeds is their size together. */
static bool unused_list_is_valid(const qr_encoder *encoder, uint64_t *num_embeds)
{
    uint32_t sentinel = unused_sentinel(encoder);
    uint32_t count = 0;
    uint32_t before = sentinel;
    uint32_t slot = encoder->items[sentinel].link.next;
    for (; slot != sentinel; before = slot, slot = encoder->items[slot].link.next) {
        if (slot >= encoder->num_slots || ++count > encoder->num_unused)
            return false;
        const qr_encoder_item *item = &encoder->items[slot];
        if (item->link.prev != before || item->state != ITEM_LIVE || item->num_users != 0)
            return false;
        *num_embeds += item->num_embeds;
    }
    return count == encoder->num_unused && encoder->items[sentinel].link.prev == before;
}

static bool encoder_counts_are_valid(const qr_encoder *encoder, const uint32_t *num_in_state)
{
    uint32_t max_items = encoder->config.max_items;
    return num_in_state[ITEM_SPARE] == encoder->num_spare &&
           num_in_state[ITEM_FRESH] == encoder->num_fresh &&
           num_in_state[ITEM_GONE] == encoder->num_gone &&
           num_in_state[ITEM_LIVE] == encoder->index.used && encoder->num_fresh <= max_items &&
           encoder->num_gone <= max_items && encoder->index.used <= max_items &&
           encoder->epoch != 0;
}

bool qr_encoder_is_valid(const qr_encoder *encoder)
{
    const qr_encoder_config *config = &encoder->config;
    uint32_t num_in_state[ITEM_GONE + 1] = {0};
    uint32_t num_without_users = 0;
    uint64_t num_live_embeds = 0;
    uint64_t num_unused_embeds = 0;
    uint64_t distances = 0;
    uint64_t sum_passed;
    for (uint32_t slot = 0; slot < encoder->num_slots; slot++) {
        const qr_encoder_item *item = &encoder->items[slot];
        if (item->state > ITEM_GONE || item->len > config->max_identifier_bytes ||
            !slot_has_place(encoder, slot))
            return false;
        num_in_state[item->state]++;
        if (item->state == ITEM_LIVE) {
            uint64_t place = qr_buckets_find_id(&encoder->index, item->tag, slot + 1);
            if (place == QR_NO_PLACE)
                return false;
            distances += qr_buckets_distance(&encoder->index, item->tag, place);
            num_without_users += item->num_users == 0;
            num_live_embeds += item->num_embeds;
        }
    }
    if (!encoder_counts_are_valid(encoder, num_in_state) ||
        !qr_buckets_is_valid(&encoder->index, &sum_passed) || distances != sum_passed ||
        !unused_list_is_valid(encoder, &num_unused_embeds) ||
        num_without_users != encoder->num_unused)
        return false;
    if (config->is_encoder_decoder)
        return encoder->index.used == 0 &&
               (config->frees_again || encoder->num_free <= config->cache_size);
    if (encoder->num_freeable != encoder->num_free + num_unused_embeds)
        return false;
    return config->sizes_by_user || encoder->num_free + num_live_embeds == config->cache_size;
}
