#include "sched/image/image.h"

#include "hash/digest.h"
#include "sched/image/image_flight.h"

/* ---- fingerprint ----------------------------------------------------------- */

enum { IMAGE_FINGERPRINT = QR_SHA256_BYTES, IMAGE_MAX_PIECE = 512 };

/* Each piece is hashed together with the digest of those before it. SHA-256, since the secret of
 * quire128 is among them. */
static void mix_piece(unsigned char *fingerprint, const void *piece, size_t bytes)
{
    unsigned char buffer[IMAGE_FINGERPRINT + IMAGE_MAX_PIECE];
    qr_assert(bytes <= IMAGE_MAX_PIECE);
    memcpy(buffer, fingerprint, IMAGE_FINGERPRINT);
    memcpy(buffer + IMAGE_FINGERPRINT, piece, bytes);
    qr_sha256(buffer, IMAGE_FINGERPRINT + bytes, fingerprint);
}

static void mix_numbers(unsigned char *fingerprint, const uint64_t *numbers, size_t n)
{
    mix_piece(fingerprint, numbers, n * sizeof *numbers);
}

/* Version 13 had one quirk for what two say since. */
static uint64_t quirks_in(uint32_t version, uint64_t quirks)
{
    return version == QR_IMAGE_OLD_VERSION ? quirks & ~QR_QUIRK(ANY_OUTPUT) : quirks;
}

static void mix_hasher(unsigned char *fingerprint, uint32_t version, const quire_hasher *h)
{
    uint64_t numbers[] = {
        h->algo,          h->block_size,      h->digest_bytes, quirks_in(version, h->quirks),
        h->none_hash_len, h->max_extra_bytes, h->max_keys};
    mix_numbers(fingerprint, numbers, sizeof numbers / sizeof *numbers);
    mix_piece(fingerprint, h->none_hash, h->none_hash_len);
    if (h->algo == QUIRE_HASH_QUIRE128)
        mix_piece(fingerprint, h->secret, sizeof h->secret);
}

/* What of a layer decides; sizes of pages do not. In version 13 no profile had the rules for keys,
 * and blocks of plain full groups alone were zeroed. */
static void mix_group(unsigned char *fingerprint, uint32_t version, const qr_group *g)
{
    const quire_layer_spec *spec = &g->spec;
    bool is_old = version == QR_IMAGE_OLD_VERSION;
    bool is_plain = spec->kind == QUIRE_LAYER_FULL || spec->kind == QUIRE_LAYER_TQ_FULL;
    uint64_t numbers[] = {spec->kind,
                          spec->sliding_window,
                          spec->attention_chunk_size,
                          spec->mamba_mode,
                          spec->num_speculative_blocks,
                          g->block_size,
                          g->hash_len,
                          g->hashes_joined,
                          g->max_row,
                          g->admission_cap,
                          g->num_sinks,
                          g->is_eagle,
                          g->tracks_new && (is_plain || !is_old)};
    uint64_t of_keys[] = {g->retention, g->extra_tokens};
    uint64_t gap = spec->rswa_window;
    mix_numbers(fingerprint, numbers, sizeof numbers / sizeof *numbers);
    if (spec->kind == QUIRE_LAYER_RSWA)
        mix_numbers(fingerprint, &gap, 1);
    uint64_t of_parts[] = {g->takes_parts,
                           g->has_junctions,
                           g->drops_state,
                           g->multiple,
                           spec->num_prefill_checkpoint_blocks,
                           spec->prefill_checkpoint_alignment};
    if (g->parts != NULL)
        mix_numbers(fingerprint, of_parts, sizeof of_parts / sizeof *of_parts);
    if (g->rules.retains_boundaries && !is_old)
        mix_numbers(fingerprint, of_keys, sizeof of_keys / sizeof *of_keys);
}

/* A monitor makes the cache keep stats, and changes nothing else. */
static void mix_cache(unsigned char *fingerprint, uint32_t version, const quire_cache *c,
                      bool log_stats)
{
    uint64_t quirks = quirks_in(version, c->quirks);
    uint64_t numbers[] = {c->num_groups,
                          c->max_model_len,
                          c->max_requests,
                          c->hash_block_size,
                          c->num_sets,
                          c->lookup_alignment,
                          quirks,
                          c->watermark_blocks,
                          c->enable_caching,
                          c->max_encoder_tokens,
                          log_stats,
                          c->copy_room,
                          c->events.size,
                          c->fresh.capacity,
                          c->pool->map.stride,
                          c->pool->queue.num_blocks,
                          c->pool->num_reserved};
    double parts[] = {c->admit_below, c->preempt_above};
    mix_numbers(fingerprint, numbers, sizeof numbers / sizeof *numbers);
    mix_piece(fingerprint, parts, sizeof parts);
    for (uint32_t g = 0; g < c->num_groups; g++)
        mix_group(fingerprint, version, &c->groups[g]);
}

static void image_fingerprint(const quire_sched *s, uint32_t version, unsigned char *fingerprint)
{
    const qr_encoder_config *e = &s->encoder.config;
    uint64_t numbers[] = {s->settings.policy,
                          s->settings.max_num_seqs,
                          s->settings.max_scheduled,
                          s->settings.max_model_len,
                          s->settings.long_prefill_threshold,
                          s->settings.num_spec_tokens,
                          s->settings.num_lookahead,
                          s->settings.max_loras,
                          s->settings.encoder_budget,
                          s->settings.mamba_block_size,
                          s->settings.hash_block_size,
                          s->settings.max_requests,
                          s->settings.max_request_bytes,
                          s->settings.max_loading,
                          s->settings.max_features,
                          s->settings.max_batches,
                          s->settings.max_finished,
                          quirks_in(version, s->settings.quirks),
                          s->settings.chunked_prefill,
                          s->settings.reserve_full_sequence,
                          s->settings.is_async,
                          s->settings.is_encoder_decoder,
                          s->settings.disable_chunked_mm,
                          s->settings.use_eagle,
                          s->settings.zeroes_blocks,
                          s->settings.log_stats,
                          s->settings.lists_finished,
                          s->settings.fails_on_load_error,
                          s->partners.has_connector,
                          s->partners.has_encoder_connector,
                          s->partners.has_grammar,
                          s->settings.uses_pressure,
                          s->settings.victim,
                          s->settings.choose_victim != NULL,
                          s->swap.num_slots,
                          s->pins.max_pins,
                          s->pins.row_blocks,
                          s->ahead.max,
                          s->prefix.window,
                          s->prefix.patience,
                          s->flags.num_chunks,
                          s->texts.store.num_pages,
                          s->texts.store.page_tokens,
                          s->texts.store.page_hashes,
                          s->texts.store.digest_bytes,
                          e->cache_size,
                          e->max_items,
                          e->frees_again,
                          e->sizes_by_user};
    memset(fingerprint, 0, IMAGE_FINGERPRINT);
    mix_numbers(fingerprint, numbers, sizeof numbers / sizeof *numbers);
    if (s->hasher != NULL)
        mix_hasher(fingerprint, version, s->hasher);
    mix_cache(fingerprint, version, s->cache, s->settings.log_stats);
    qr_image_mix_0_32(s, mix_numbers, fingerprint);
}

/* ---- the frame ------------------------------------------------------------- */

typedef struct qr_image_head {
    unsigned char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t length; /* of the whole image */
    unsigned char fingerprint[IMAGE_FINGERPRINT];
} qr_image_head;

static const unsigned char IMAGE_MAGIC[8] = {'Q', 'U', 'I', 'R', 'E', 'I', 'M', 'G'};

/* Reads differently where the bytes of a number, or those of a pointer, are others. */
static const uint32_t IMAGE_BYTE_ORDER = UINT32_C(0x04030200) + (uint32_t)sizeof(void *);

enum { IMAGE_CHECKSUM = QR_XXH128_BYTES };

_Static_assert(sizeof(qr_image_head) == 56, "the head has no holes");

int qr_image_check_frame(const void *image, size_t bytes)
{
    qr_image_head head;
    unsigned char checksum[IMAGE_CHECKSUM];
    if (bytes < sizeof head + sizeof checksum)
        return QUIRE_E_CORRUPT;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.magic, IMAGE_MAGIC, sizeof head.magic) != 0)
        return QUIRE_E_CORRUPT;
    if (head.byte_order != IMAGE_BYTE_ORDER) /* then version and length cannot be read either */
        return QUIRE_E_CONFIG;
    if (head.length != bytes)
        return QUIRE_E_CORRUPT;
    const unsigned char *end = (const unsigned char *)image + bytes - sizeof checksum;
    qr_xxh3_128(image, bytes - sizeof checksum, checksum);
    if (memcmp(checksum, end, sizeof checksum) != 0)
        return QUIRE_E_CORRUPT;
    bool is_known = head.version == QR_IMAGE_VERSION || head.version == QR_IMAGE_OLD_VERSION;
    return is_known ? QUIRE_OK : QUIRE_E_CONFIG;
}

/* ---- lists of requests ----------------------------------------------------- */

/* Requests in the order in which they came, then the order in which places will be used. */
static void image_requests(qr_image *image, quire_sched *s)
{
    uint32_t count = s->table.num_live;
    uint32_t at = s->settings.max_requests;
    qr_image_u32(image, &count, s->settings.max_requests);
    for (uint32_t i = 0; i < count && !image->is_bad; i++) {
        at = image->is_reading ? 0 : s->table.by_age[at].next;
        qr_image_u32(image, &at, s->settings.max_requests - 1);
        if (image->is_reading) {
            qr_image_require(image, !s->table.requests[at].is_in_use);
            if (image->is_bad)
                return;
            s->table.requests[at].is_in_use = true;
            s->table.num_live++;
            qr_list_insert_before(s->table.by_age, sizeof *s->table.by_age,
                                  s->settings.max_requests, at);
        }
        qr_image_request(image, s, at);
    }
}

/* Notes a place in scratch; one that was noted before makes the image bad. */
static void image_note_place(qr_image *image, quire_sched *s, uint32_t place)
{
    qr_image_require(image, s->room.scratch[place] == 0);
    s->room.scratch[place] = 1;
}

static void image_free_slots(qr_image *image, quire_sched *s)
{
    uint32_t count = s->settings.max_requests - s->table.num_live;
    qr_image_u32s(image, s->table.free_slots, count, s->settings.max_requests - 1);
    if (!image->is_reading || image->is_bad)
        return;
    memset(s->room.scratch, 0, (size_t)s->settings.max_requests * sizeof *s->room.scratch);
    for (uint32_t i = 0; i < count; i++) {
        qr_image_require(image, !s->table.requests[s->table.free_slots[i]].is_in_use);
        image_note_place(image, s, s->table.free_slots[i]);
    }
}

/* Host slots that are free, in the order in which they will be used. */
static void image_swap_slots(qr_image *image, qr_swap *swap)
{
    uint32_t *link = &swap->first_free;
    qr_image_u64(image, &swap->setup_ns, UINT32_MAX);
    qr_image_u64(image, &swap->block_ns, UINT32_MAX);
    qr_image_u64(image, &swap->token_ns, UINT32_MAX);
    qr_image_u32(image, &swap->num_free, swap->num_slots);
    for (uint32_t i = 0; i < swap->num_free && !image->is_bad; i++) {
        qr_image_u32(image, link, swap->num_slots - 1);
        qr_swap_slot *slot = &swap->slots[*link];
        if (image->is_reading)
            slot->owner = QR_NIL;
        link = &slot->next;
    }
    if (image->is_reading)
        *link = QR_NIL;
}

/* What the caller has moved since the last step: the next step tells it. */
static void image_asked(qr_image *image, quire_sched *s)
{
    qr_swap_moves *moves = &s->swap.asked;
    qr_image_u32(image, &moves->count, s->swap.num_slots);
    qr_image_u32s(image, moves->blocks, moves->count, s->cache->pool->queue.num_blocks - 1);
    qr_image_u32s(image, moves->slots, moves->count, s->swap.num_slots - 1);
    for (uint32_t i = 0; image->is_reading && !image->is_bad && i < moves->count; i++)
        qr_image_require(image, moves->blocks[i] != QUIRE_NULL_BLOCK &&
                                    s->swap.slots[moves->slots[i]].owner != QR_NIL);
    qr_image_u32(image, &s->ended.num_asked, s->settings.max_num_seqs - s->queues.num_running);
    for (uint32_t i = 0; i < s->ended.num_asked && !image->is_bad; i++) {
        uint64_t *req = &s->ended.asked[i];
        qr_image_u64(image, req, UINT64_MAX);
        uint32_t index = image->is_reading ? qr_sched_index_of(s, *req) : QR_NIL;
        qr_image_require(image,
                         index == QR_NIL || s->table.requests[index].status != QUIRE_REQ_RUNNING);
    }
}

/* The first pin of a block holds it. */
static void image_pinned(qr_image *image, quire_sched *s, quire_block *row, uint32_t n)
{
    quire_pool *pool = s->cache->pool;
    qr_image_u32s(image, row, n, pool->queue.num_blocks - 1);
    for (uint32_t i = 0; image->is_reading && !image->is_bad && i < n; i++) {
        qr_image_require(image, row[i] != QUIRE_NULL_BLOCK);
        if (image->is_bad || s->pins.users[row[i]]++ > 0)
            continue;
        bool is_alone = pool->queue.blocks[row[i]].ref_cnt == 0;
        pool->holds[row[i]] = (uint8_t)(1 | (is_alone ? QR_HOLDS_ALONE : 0));
        pool->num_held++;
        s->pins.num_blocks++;
    }
}

/* Whether a request with that number has been there: a later request will never have the number. */
static bool image_was_there(const quire_sched *s, quire_req req)
{
    uint32_t index = quire_req_index(req);
    if (index >= s->settings.max_requests)
        return false;
    uint32_t given_since = s->table.requests[index].generation - (uint32_t)(req >> 32);
    return given_since <= INT32_MAX;
}

void qr_image_reqs(qr_image *image, const quire_sched *s, quire_req *reqs, uint32_t n)
{
    qr_image_bytes(image, reqs, n * sizeof *reqs);
    for (uint32_t i = 0; image->is_reading && !image->is_bad && i < n; i++)
        qr_image_require(image, image_was_there(s, reqs[i]));
}

/* The time that each still has: clocks of two processes have nothing in common. */
static void image_pins(qr_image *image, quire_sched *s)
{
    qr_pins *p = &s->pins;
    uint64_t now = qr_now_ns(&s->observer.hooks);
    uint32_t count = p->num_pins;
    qr_image_u32(image, &count, p->max_pins);
    for (uint32_t i = 0; i < count && !image->is_bad; i++) {
        qr_pin *pin = &p->pins[i];
        uint64_t left = pin->ends_ns > now ? pin->ends_ns - now : 0;
        quire_block *row = qr_pins_row(p, i);
        qr_image_u64(image, &left, UINT64_MAX);
        qr_image_reqs(image, s, &pin->req, 1);
        qr_image_u32(image, &pin->num_blocks, p->row_blocks);
        qr_image_u32(image, &pin->last_group, s->cache->num_groups - 1);
        qr_image_u32(image, &pin->last_place, UINT32_MAX);
        qr_image_require(image, pin->num_blocks > 0);
        if (image->is_bad)
            return;
        image_pinned(image, s, row, pin->num_blocks);
        if (!image->is_reading || image->is_bad)
            continue;
        pin->ends_ns = left < UINT64_MAX - now ? now + left : UINT64_MAX;
        pin->last_block = row[0];
        qr_pins_enter(p);
    }
}

static void image_running(qr_image *image, quire_sched *s)
{
    qr_image_u32(image, &s->queues.num_running, s->settings.max_num_seqs);
    qr_image_u32s(image, s->queues.running, s->queues.num_running, s->settings.max_requests - 1);
    if (!image->is_reading || image->is_bad)
        return;
    memset(s->room.scratch, 0, (size_t)s->settings.max_requests * sizeof *s->room.scratch);
    for (uint32_t i = 0; i < s->queues.num_running; i++)
        image_note_place(image, s, s->queues.running[i]);
}

/* FCFS in order; PRIORITY as the heap lies, which adding in this order makes again. */
static void image_waiting(qr_image *image, quire_sched *s, qr_waiting *queue)
{
    uint32_t count = queue->count;
    uint32_t at = queue->sentinel;
    qr_image_u32(image, &count, s->settings.max_requests);
    for (uint32_t i = 0; i < count && !image->is_bad; i++) {
        if (!image->is_reading)
            at = queue->policy == QUIRE_POLICY_PRIORITY ? queue->heap[i]
                                                        : queue->waiters[at].link.next;
        qr_image_u32(image, &at, s->settings.max_requests - 1);
        if (!image->is_reading)
            continue;
        qr_image_require(image, s->table.requests[at].is_in_use && s->table.waiters[at].queue == 0);
        if (!image->is_bad)
            qr_waiting_add(queue, at);
    }
}

/* Steps in flight, oldest first. */
static void image_batches(qr_image *image, quire_sched *s)
{
    qr_image_u32(image, &s->flight.num_batches, s->settings.max_batches);
    for (uint32_t i = 0; i < s->flight.num_batches && !image->is_bad; i++) {
        qr_batch *batch = qr_flight_batch(s, i);
        qr_image_u64(image, &batch->step, s->flight.step);
        qr_image_bool(image, &batch->loads);
        qr_image_u32(image, &batch->num_reqs, s->settings.max_num_seqs);
        qr_image_reqs(image, s, batch->reqs, batch->num_reqs);
        qr_image_u32s(image, batch->num_tokens, batch->num_reqs, s->settings.max_scheduled);
        qr_image_u32s(image, batch->num_drafts, batch->num_reqs, s->settings.num_spec_tokens);
        qr_image_u32s(image, batch->num_preemptions, batch->num_reqs, UINT32_MAX);
        for (uint32_t k = 0; k < batch->num_reqs && !image->is_bad; k++)
            qr_image_u8(image, &batch->is_past_prompt[k], 1);
    }
}

/* A request's placeholders are those of the steps in flight whose outputs it still takes. Not so
 * with vLLM's quirks, which leave some behind. */
static void image_check_placeholders(qr_image *image, quire_sched *s)
{
    uint64_t leaves = QR_QUIRK(STALE_OUTPUTS) | QR_QUIRK(RESET_DROPS_ONE) |
                      QR_QUIRK(SESSION_KEEPS_AHEAD) | QR_QUIRK(FAILED_BLOCKS_STAY);
    if (!image->is_reading || image->is_bad || !s->settings.is_async ||
        (s->settings.quirks & leaves) != 0)
        return;
    memset(s->room.scratch, 0, (size_t)s->settings.max_requests * sizeof *s->room.scratch);
    for (uint32_t i = 0; i < s->flight.num_batches; i++) {
        const qr_batch *batch = qr_flight_batch(s, i);
        for (uint32_t k = 0; k < batch->num_reqs; k++) {
            uint32_t index = qr_flight_who_waits(s, batch, k);
            if (index != QR_NIL && batch->is_past_prompt[k])
                s->room.scratch[index] += s->settings.num_sampled + batch->num_drafts[k];
        }
    }
    for (uint32_t i = 0; i < s->settings.max_requests; i++) {
        const qr_request *r = &s->table.requests[i];
        qr_image_require(image, !r->is_in_use || qr_request_is_finished(r) ||
                                    r->num_placeholders == s->room.scratch[i]);
    }
}

/* Requests that ended and were not told yet; those that have not ended need room to be listed. */
static void image_finished(qr_image *image, quire_sched *s)
{
    qr_image_u32(image, &s->ended.num_finished, s->settings.max_finished);
    qr_image_reqs(image, s, s->ended.finished, s->ended.num_finished);
    qr_image_u32(image, &s->ended.num_client_finished, s->settings.max_finished);
    qr_image_reqs(image, s, s->ended.client_finished, s->ended.num_client_finished);
    qr_image_u32s(image, s->ended.client_of_finished, s->ended.num_client_finished, UINT32_MAX);
    uint32_t unfinished = 0;
    for (uint32_t i = 0; i < s->settings.max_requests && image->is_reading; i++)
        unfinished +=
            s->table.requests[i].is_in_use && !qr_request_is_finished(&s->table.requests[i]);
    qr_image_require(image,
                     unfinished <= s->settings.max_finished - s->ended.num_finished &&
                         unfinished <= s->settings.max_finished - s->ended.num_client_finished);
}

/* Outputs of requests that ended in schedule. */
static void image_outgrown(qr_image *image, quire_sched *s)
{
    qr_image_u32(image, &s->results.num_outgrown, s->settings.max_batches);
    for (uint32_t i = 0; i < s->results.num_outgrown && !image->is_bad; i++) {
        quire_output *out = &s->results.outgrown[i];
        if (image->is_reading)
            *out = (quire_output){.finish_reason = QUIRE_FINISH_LENGTH};
        uint64_t user = (uint64_t)(uintptr_t)out->user;
        qr_image_reqs(image, s, &out->req, 1);
        qr_image_u64(image, &user, UINTPTR_MAX);
        qr_image_u32(image, &out->client_index, UINT32_MAX);
        if (image->is_reading)
            out->user = (void *)(uintptr_t)user;
    }
}

/* No block is in the tables of two groups. */
static void image_check_groups(qr_image *image, quire_sched *s)
{
    const quire_cache *cache = s->cache;
    uint8_t *group_of = s->room.failed_blocks;
    if (!image->is_reading || image->is_bad)
        return;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        for (uint32_t row = 0; row < cache->max_requests; row++) {
            const uint32_t *blocks = qr_group_row_blocks(group, row);
            for (uint32_t i = 0; i < group->rows[row].num_blocks; i++) {
                uint8_t *mark = &group_of[blocks[i]];
                qr_image_require(image, blocks[i] == QUIRE_NULL_BLOCK || *mark == 0 ||
                                            *mark == g % UINT8_MAX + 1);
                *mark = (uint8_t)(g % UINT8_MAX + 1);
            }
        }
    }
    memset(group_of, 0, cache->pool->queue.num_blocks);
}

/* What was dropped before its reuse is told, and decides nothing: a scheduler that remembers more
 * or less of it begins anew. */
static void image_ghosts(qr_image *image, qr_observer *observer)
{
    uint32_t count = observer->num_ghosts;
    qr_image_u32(image, &count, UINT32_MAX);
    size_t bytes = count * sizeof *observer->ghosts;
    if (!image->is_reading || count == observer->num_ghosts)
        qr_image_bytes(image, observer->ghosts, bytes);
    else
        qr_image_view(image, bytes);
}

/* ---- the whole ------------------------------------------------------------- */

static void image_numbers(qr_image *image, quire_sched *s)
{
    uint32_t pause = (uint32_t)s->pause;
    qr_image_u32(image, &pause, QUIRE_PAUSED_ALL);
    if (image->is_reading)
        s->pause = (quire_pause)pause;
    qr_image_u64(image, &s->flight.step, INT64_MAX);
    qr_image_u64(image, &s->flight.first_valid_step, s->flight.step + 1);
    qr_image_u32(image, &s->queues.num_waiting_for_streaming, UINT32_MAX);
    qr_image_u32(image, &s->deadlock.is_active, 1);
    if (s->settings.rules.counts_in_flight)
        qr_image_u64(image, &s->fences.scheduled, s->fences.is_on ? s->flight.step : 0);
    qr_image_u64(image, &s->prefix.admitted.tokens, QR_PREFIX_MOST);
    qr_image_u64(image, &s->prefix.admitted.requests, QR_PREFIX_MOST);
    qr_image_prefix_stats(image, &s->partners.connector_stats);
    for (uint32_t i = 0; i < s->settings.max_requests; i++)
        qr_image_u32(image, &s->table.requests[i].generation, UINT32_MAX);
}

void qr_image_walk(qr_image *image, quire_sched *s)
{
    image_numbers(image, s);
    qr_image_cache_begin(image, s->cache);
    qr_image_encoder_begin(image, &s->encoder);
    image_requests(image, s);
    qr_image_encoder_end(image, &s->encoder);
    image_free_slots(image, s);
    image_swap_slots(image, &s->swap);
    image_pins(image, s);
    image_running(image, s);
    image_waiting(image, s, &s->queues.waiting);
    image_waiting(image, s, &s->queues.skipped);
    image_batches(image, s);
    qr_image_fences(image, s);
    image_asked(image, s);
    image_check_placeholders(image, s);
    image_finished(image, s);
    image_outgrown(image, s);
    image_ghosts(image, &s->observer);
    qr_image_cache_end(image, s->cache);
    image_check_groups(image, s);
}

/* The walk changes nothing unless it reads. */
static quire_sched *image_source(const quire_sched *s)
{
    return (quire_sched *)(uintptr_t)s;
}

size_t qr_sched_image_bytes(const quire_sched *s)
{
    qr_image image = {.used = sizeof(qr_image_head), .version = QR_IMAGE_VERSION};
    qr_image_walk(&image, image_source(s));
    return image.used + IMAGE_CHECKSUM;
}

int qr_sched_save(const quire_sched *s, void *memory, size_t bytes, size_t *written)
{
    uint32_t with_blocks = 0;
    for (uint32_t i = 0; i < s->settings.max_requests; i++)
        with_blocks += s->table.requests[i].kv.seq != 0;
    with_blocks += s->fences.num_seqs;
    if (with_blocks != s->cache->num_seqs || s->pins.num_blocks != s->cache->pool->num_held)
        return QUIRE_BUSY;
    qr_image_head head = {.version = QR_IMAGE_VERSION,
                          .byte_order = IMAGE_BYTE_ORDER,
                          .length = qr_sched_image_bytes(s)};
    if (bytes < head.length) {
        *written = head.length;
        return QUIRE_E_TOO_SMALL;
    }
    memcpy(head.magic, IMAGE_MAGIC, sizeof head.magic);
    image_fingerprint(s, head.version, head.fingerprint);
    qr_image image = {.out = memory, .version = QR_IMAGE_VERSION};
    qr_image_put(&image, &head, sizeof head);
    qr_image_walk(&image, image_source(s));
    qr_assert(image.used + IMAGE_CHECKSUM == head.length);
    qr_xxh3_128(memory, image.used, image.out + image.used);
    *written = (size_t)head.length;
    return QUIRE_OK;
}

int qr_sched_load(quire_sched *s, const void *memory, size_t bytes)
{
    qr_image_head head;
    unsigned char fingerprint[IMAGE_FINGERPRINT];
    memcpy(&head, memory, sizeof head);
    image_fingerprint(s, head.version, fingerprint);
    if (memcmp(fingerprint, head.fingerprint, sizeof fingerprint) != 0)
        return QUIRE_E_CONFIG;
    qr_image image = {.in = memory,
                      .size = bytes - IMAGE_CHECKSUM,
                      .used = sizeof head,
                      .version = head.version,
                      .is_reading = true};
    qr_image_walk(&image, s);
    qr_image_require(&image, image.used == image.size);
    if (image.is_bad || !qr_image_flight_adds_up(s))
        return QUIRE_E_CORRUPT;
    return qr_sched_is_valid(s) ? QUIRE_OK : QUIRE_E_CORRUPT;
}
