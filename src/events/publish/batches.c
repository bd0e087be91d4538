#include "events/publish/batches.h"

#include "base/hooks.h"
#include "base/memory.h"

#include <string.h>

/* ---- making ---------------------------------------------------------------- */

static void ask_walk(qr_batches *b)
{
    b->walk = quire_monitor_ask_walk(b->monitor);
    b->is_walking = true;
}

/* Listeners do not know tiers of one medium apart: such tiers share their groups in the mirror, so
 * that a key is told as removed when the last of them has lost it. */
static void find_mediums(qr_batches *b)
{
    quire_tier_usage tiers[QUIRE_MAX_TIERS];
    uint32_t count = quire_monitor_get_tiers(b->monitor, tiers, QUIRE_MAX_TIERS);
    for (uint32_t t = 0; t < QUIRE_MAX_TIERS; t++) {
        uint32_t first = 0;
        while (first < t && (t >= count || b->info.tier_blocks[first] == 0 ||
                             strcmp(tiers[first].medium, tiers[t].medium) != 0))
            first++;
        b->mediums[t] = first;
    }
}

/* Blocks of several hashes may have several keys in the profile of vLLM 0.32: at most one for each
 * hash. Few have that many, as in the pool (cache.c). */
static uint32_t num_further_keys(const quire_monitor_info *info, uint32_t num_blocks)
{
    enum { SMALL = 4096, USUAL = 2 };
    uint64_t most = 1;
    for (uint32_t g = 0; g < info->num_groups && info->profile == QUIRE_PROFILE_VLLM_0_32; g++) {
        uint32_t hashes = info->groups[g].block_size / info->block_size;
        most = hashes > most ? hashes : most;
    }
    if (most == 1)
        return 0;
    most--;
    uint64_t all = most * num_blocks;
    uint64_t usual = (most < USUAL ? most : USUAL) * num_blocks;
    uint64_t keys = all < SMALL ? all : usual > SMALL ? usual : SMALL;
    uint64_t room = (UINT64_C(1) << 31) - 1; /* ids of places */
    uint64_t left = num_blocks < room ? room - num_blocks : 0;
    return (uint32_t)(keys < left ? keys : left);
}

static int create_parts(qr_batches *b, const qr_batches_config *config)
{
    b->info = *quire_monitor_get_info(config->monitor);
    uint32_t num_blocks = 0;
    for (uint32_t t = 0; t < QUIRE_MAX_TIERS; t++) {
        b->bases[t] = num_blocks;
        num_blocks += b->info.tier_blocks[t];
    }
    find_mediums(b);
    if (b->info.has_token_ids != 0 && num_blocks > b->info.tier_blocks[0])
        b->texts = qr_texts_create(b->info.hash_bytes); /* without, other tiers have no tokens */
    quire_wire_options options = {.size = sizeof options, .as_maps = config->as_maps};
    qr_mirror_config mirror = {.num_blocks = num_blocks,
                               .num_extras = num_further_keys(&b->info, num_blocks),
                               .num_groups = QUIRE_MAX_TIERS * b->info.num_groups,
                               .hash_bytes = b->info.hash_bytes};
    int status = qr_mirror_create(&mirror, &b->mirror);
    if (status == QUIRE_OK)
        status = quire_wire_writer_create(&options, &b->writer);
    if (status == QUIRE_OK)
        status = quire_reader_create(config->monitor, NULL, &b->reader);
    return status;
}

/* Nothing has been told yet, and the pool was empty: the picture is whole as it is. Asked after the
 * reader was made, which then sees all that comes. */
static bool is_new(const quire_monitor *monitor)
{
    quire_monitor_step last = QUIRE_MONITOR_STEP_INIT;
    return quire_monitor_get_last_step(monitor, &last) == QUIRE_MISS &&
           quire_monitor_get_info(monitor)->has_content == 0;
}

int qr_batches_create(const qr_batches_config *config, qr_batches **batches)
{
    qr_batches *b = qr_alloc(1, sizeof *b);
    if (b == NULL)
        return QUIRE_E_NOMEM;
    b->monitor = config->monitor;
    b->rank = config->rank;
    b->every_copy = config->every_copy;
    b->feed_wire.hashes_as_bytes = config->hashes_as_bytes != 0;
    b->feed_wire.specs = config->has_specs ? quire_monitor_get_info(config->monitor) : NULL;
    int status = create_parts(b, config);
    if (status != QUIRE_OK) {
        qr_batches_destroy(b);
        return status;
    }
    if (!is_new(config->monitor))
        ask_walk(b);
    *batches = b;
    return QUIRE_OK;
}

void qr_batches_destroy(qr_batches *b)
{
    if (b == NULL)
        return;
    quire_reader_destroy(b->reader);
    quire_wire_writer_destroy(b->writer);
    qr_mirror_destroy(b->mirror);
    qr_texts_destroy(b->texts);
    qr_free(b->feed_wire.memory);
    qr_free(b);
}

static void forget(qr_batches *b)
{
    qr_mirror_forget(b->mirror);
    if (b->texts != NULL)
        qr_texts_forget(b->texts);
}

void qr_batches_lose(qr_batches *b)
{
    b->num_lost++;
    b->content = QR_CONTENT_NONE;
    b->num_events = 0;
    b->owes_clear = true;
    b->is_wrong = false;
    forget(b);
    ask_walk(b);
}

/* ---- writing events -------------------------------------------------------- */

static int add_wire(qr_batches *b, const quire_wire_event *wire)
{
    int status = b->num_events == 0 ? quire_wire_begin(b->writer) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = quire_wire_add(b->writer, wire);
    b->num_events++;
    return status;
}

static int pay_clear(qr_batches *b)
{
    quire_wire_event cleared = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    if (!b->owes_clear)
        return QUIRE_OK;
    b->owes_clear = false;
    return add_wire(b, &cleared);
}

/* Tells of blocks [first, end) of an event, as if they had been stored by themselves. */
static int tell_part(qr_batches *b, const quire_feed_event *event, uint32_t first, uint32_t end)
{
    quire_wire_event wire = QUIRE_WIRE_EVENT_INIT;
    int status = pay_clear(b);
    if (status == QUIRE_OK)
        status = qr_feed_wire_make(&b->feed_wire, event, first, end - first, &wire);
    return status == QUIRE_OK ? add_wire(b, &wire) : status;
}

static int tell(qr_batches *b, const quire_feed_event *event)
{
    return tell_part(b, event, 0, event->num_blocks);
}

static qr_mirror_key key_in(const qr_batches *b, const quire_feed_event *event, uint32_t i)
{
    return (qr_mirror_key){
        .group = b->mediums[event->tier] * b->info.num_groups + event->group_id,
        .block_size = event->block_size,
        .hash = {event->hashes + (size_t)i * event->hash_bytes, event->hash_bytes}};
}

static qr_mirror_change note_block(qr_batches *b, const quire_feed_event *event, uint32_t i)
{
    if (event->blocks[i] >= b->info.tier_blocks[event->tier] ||
        event->group_id >= b->info.num_groups) {
        b->is_wrong = true;
        return QR_MIRROR_REFUSED;
    }
    qr_mirror_key key = key_in(b, event, i);
    qr_mirror_change change =
        qr_mirror_set(b->mirror, b->bases[event->tier] + event->blocks[i], &key);
    b->is_wrong = b->is_wrong || change == QR_MIRROR_REFUSED;
    if (b->texts != NULL && (change == QR_MIRROR_FIRST || change == QR_MIRROR_COPY)) {
        qr_texts_hold(b->texts, event, i);
        if (event->tier == 0 && event->kind == QUIRE_FEED_STORED)
            qr_texts_learn(b->texts, event, i);
    }
    return change;
}

/* Whether block i of a STORED or PRESENT event is news. */
static bool is_news(qr_batches *b, const quire_feed_event *event, uint32_t i)
{
    qr_mirror_change change = note_block(b, event, i);
    return change == QR_MIRROR_FIRST || (b->every_copy != 0 && change == QR_MIRROR_COPY);
}

/* Runs of blocks between those that are no news. Null blocks are part of a run, as in vLLM's own
 * events, but do not make one; a walk has none. */
static int tell_news(qr_batches *b, const quire_feed_event *event)
{
    int status = QUIRE_OK;
    uint32_t first = 0;
    uint32_t num_news = 0;
    for (uint32_t i = 0; i <= event->num_blocks && status == QUIRE_OK; i++) {
        if (i < event->num_blocks && event->blocks[i] == 0)
            continue;
        if (i < event->num_blocks && is_news(b, event, i)) {
            num_news++;
            continue;
        }
        if (num_news > 0)
            status = tell_part(b, event, first, i);
        first = i + 1;
        num_news = 0;
    }
    return status;
}

/* Blocks of the other tiers, each with the tokens and the parent that it had in the GPU. */
static int tell_completed(qr_batches *b, const quire_feed_event *event)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < event->num_blocks && status == QUIRE_OK; i++) {
        if (event->blocks[i] == 0 || !is_news(b, event, i))
            continue;
        quire_feed_event one = qr_texts_complete(b->texts, event, i);
        status = tell(b, &one);
    }
    return status;
}

static int tell_stored(qr_batches *b, const quire_feed_event *event)
{
    if (b->texts != NULL && event->tier > 0)
        return tell_completed(b, event);
    if (b->every_copy == 0)
        return tell_news(b, event);
    for (uint32_t i = 0; i < event->num_blocks; i++)
        if (event->blocks[i] != 0)
            (void)note_block(b, event, i);
    return tell(b, event);
}

/* After a loss the reader tells of blocks that the mirror does not know: nobody was told of it. */
static int tell_removed(qr_batches *b, const quire_feed_event *event)
{
    qr_mirror_key key = key_in(b, event, 0);
    qr_mirror_change change =
        qr_mirror_remove(b->mirror, b->bases[event->tier] + event->blocks[0], &key);
    bool is_told = change == QR_MIRROR_FIRST || (b->every_copy != 0 && change == QR_MIRROR_COPY);
    if (b->texts != NULL && change != QR_MIRROR_SAME)
        qr_texts_drop(b->texts, event, 0);
    return is_told ? tell(b, event) : QUIRE_OK;
}

/* Keys that blocks of a tier hold. */
static uint32_t count_of_tier(const qr_batches *b, uint32_t tier)
{
    qr_mirror_key key;
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->mirror->num_places; i++) {
        bool is_held = qr_mirror_get(b->mirror, i, &key) == QUIRE_OK;
        uint32_t at = is_held ? qr_mirror_owner(b->mirror, i) - b->bases[tier] : UINT32_MAX;
        count += at < b->info.tier_blocks[tier];
    }
    return count;
}

/* On the wire the blocks of all tiers are cleared: a walk tells anew of those of other tiers. */
static int tell_cleared(qr_batches *b, const quire_feed_event *event)
{
    bool is_alone = b->mirror->num_held == count_of_tier(b, event->tier);
    forget(b);
    b->owes_clear = false; /* this is it */
    if (!is_alone)
        ask_walk(b);
    return tell(b, event);
}

/* ---- batches --------------------------------------------------------------- */

static int tell_event(qr_batches *b, const quire_feed_event *event)
{
    switch (event->kind) {
    case QUIRE_FEED_STORED:
        return tell_stored(b, event);
    case QUIRE_FEED_REMOVED:
        return tell_removed(b, event);
    case QUIRE_FEED_CLEARED:
        return tell_cleared(b, event);
    case QUIRE_FEED_PRESENT:
        return tell_news(b, event);
    case QUIRE_FEED_WALKED:
        b->is_walking = b->is_walking && event->number < b->walk;
        return QUIRE_OK;
    case QUIRE_FEED_BATCH:
        b->time = event->time;
        return QUIRE_OK;
    default:
        return QUIRE_OK;
    }
}

/* QUIRE_RETRY when there is nothing in it. */
static int end_batch(qr_batches *b, quire_bytes *bytes, uint32_t *num_events)
{
    int status = pay_clear(b);
    *num_events = b->num_events;
    b->content = QR_CONTENT_NONE;
    b->num_events = 0;
    if (*num_events == 0)
        return QUIRE_RETRY;
    if (b->time == 0) /* a walk before the first update */
        b->time = qr_wall_seconds();
    if (status == QUIRE_OK)
        status = quire_wire_end(b->writer, b->time, b->rank, bytes);
    if (status != QUIRE_OK)
        qr_batches_lose(b);
    return status == QUIRE_OK ? QUIRE_OK : QUIRE_RETRY;
}

static qr_batch_content content_of(const quire_feed_event *event)
{
    bool is_walk = event->kind == QUIRE_FEED_PRESENT || event->kind == QUIRE_FEED_WALKED;
    return is_walk ? QR_CONTENT_WALK : QR_CONTENT_UPDATE;
}

/* The next event. One that was held back is still valid: the reader has not been asked since. */
static int take_event(qr_batches *b, quire_feed_event *event)
{
    if (!b->has_held)
        return quire_reader_next(b->reader, event);
    *event = b->held;
    b->has_held = false;
    return QUIRE_OK;
}

int qr_batches_next(qr_batches *b, quire_bytes *bytes, uint32_t *num_events)
{
    quire_feed_event event = QUIRE_FEED_EVENT_INIT;
    for (;;) {
        int status = take_event(b, &event);
        if (status == QUIRE_LOST) {
            qr_batches_lose(b);
            continue;
        }
        if (status != QUIRE_OK)
            return b->content == QR_CONTENT_UPDATE ? QUIRE_RETRY : end_batch(b, bytes, num_events);
        qr_batch_content content = content_of(&event);
        if (b->content == QR_CONTENT_WALK && content != QR_CONTENT_WALK) {
            b->held = event;
            b->has_held = true;
            if (end_batch(b, bytes, num_events) == QUIRE_OK)
                return QUIRE_OK;
            continue;
        }
        b->content = content;
        if (tell_event(b, &event) != QUIRE_OK || b->is_wrong)
            qr_batches_lose(b);
        else if (event.kind == QUIRE_FEED_BATCH && end_batch(b, bytes, num_events) == QUIRE_OK)
            return QUIRE_OK;
    }
}
