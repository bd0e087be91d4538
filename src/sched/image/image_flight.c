#include "sched/image/image_flight.h"

static bool has_flight(const quire_sched *s)
{
    return s->settings.rules.counts_in_flight;
}

void qr_image_mix_0_32(const quire_sched *s, void (*mix)(unsigned char *, const uint64_t *, size_t),
                       unsigned char *fingerprint)
{
    const qr_settings *t = &s->settings;
    bool is_usual = t->draft_slots == 0 && t->num_sampled == 1 &&
                    t->prefill_lookahead == (uint32_t)t->use_eagle;
    if (is_usual && !has_flight(s))
        return;
    uint64_t numbers[] = {t->max_active,
                          t->max_input,
                          t->draft_slots,
                          t->prefill_lookahead,
                          t->num_sampled,
                          t->adaptive_threshold,
                          s->fences.max_rows,
                          s->partners.connector.requires_kv_delivery != 0,
                          s->cache->num_recomputed,
                          s->pace.decode_interval,
                          s->pace.num_sizes,
                          t->is_encoder_only};
    mix(fingerprint, numbers, sizeof numbers / sizeof *numbers);
    for (uint32_t i = 0; i < s->pace.num_sizes; i++) {
        uint64_t drafts = s->pace.drafts[i];
        mix(fingerprint, &drafts, 1);
    }
}

void qr_image_flight(qr_image *image, quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    qr_waiter *w = &s->table.waiters[index];
    if (!has_flight(s))
        return;
    qr_image_u64(image, &r->last_fence, s->fences.scheduled);
    qr_image_u64(image, &r->next_decode, s->flight.step + s->pace.decode_interval);
    qr_image_u32(image, &r->shared_prefix, s->settings.max_model_len);
    qr_image_u32(image, &r->num_in_flight, INT32_MAX);
    qr_image_u32(image, &r->num_stale, r->num_in_flight);
    qr_image_bool(image, &r->drops_stale);
    qr_image_bool(image, &r->is_prefilling);
    qr_image_bool(image, &w->is_deferred);
    if (image->is_reading)
        s->queues.num_deferred += w->is_deferred;
}

/* Requests that the next update ends. Some may have ended since. */
static void image_doomed(qr_image *image, quire_sched *s, qr_doomed *doomed)
{
    qr_image_u32(image, &doomed->num, s->settings.max_finished);
    qr_image_reqs(image, s, doomed->reqs, doomed->num);
    for (uint32_t i = 0; image->is_reading && !image->is_bad && i < doomed->num; i++) {
        uint32_t index = qr_sched_index_of(s, doomed->reqs[i]);
        if (index == QR_NIL)
            continue;
        qr_image_require(image, !s->table.requests[index].is_doomed);
        s->table.requests[index].is_doomed = true;
    }
}

void qr_image_fences(qr_image *image, quire_sched *s)
{
    qr_fences *f = &s->fences;
    if (!has_flight(s))
        return;
    qr_image_u64(image, &f->processed, f->scheduled);
    qr_image_u32(image, &f->num_rows, f->max_rows);
    for (uint32_t i = 0; i < f->num_rows && !image->is_bad; i++) {
        qr_fenced_row *row = &f->rows[(f->first + i) % f->max_rows];
        if (image->is_reading)
            *row = (qr_fenced_row){0};
        if (s->cache->copies_parts)
            qr_image_u32(image, &row->num_copies, s->cache->copy_room);
        bool has_copies = row->num_copies > 0;
        qr_image_u64(image, &row->fence, f->scheduled + has_copies);
        if (!has_copies)
            qr_image_seq(image, s->cache, 0, &row->seq);
        qr_image_require(image, (row->seq != 0) != has_copies);
        if (image->is_reading)
            f->num_seqs += !has_copies;
    }
    qr_image_bool(image, &s->pace.is_throttled);
    qr_image_bool(image, &s->pace.is_bound);
    image_doomed(image, s, &s->results.bad_grammars);
    image_doomed(image, s, &s->results.other_sizes);
}

bool qr_image_flight_adds_up(quire_sched *s)
{
    if (!has_flight(s))
        return true;
    for (uint32_t b = 0; b < s->flight.num_batches; b++) {
        const qr_batch *batch = qr_flight_batch(s, b);
        for (uint32_t i = 0; i < batch->num_reqs; i++) {
            uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
            if (index == QR_NIL)
                continue;
            if (batch->num_tokens[i] > s->table.requests[index].num_in_flight)
                return false;
            s->table.requests[index].num_in_flight -= batch->num_tokens[i];
        }
    }
    for (uint32_t i = 0; i < s->settings.max_requests; i++)
        if (s->table.requests[i].is_in_use && s->table.requests[i].num_in_flight != 0)
            return false;
    for (uint32_t b = 0; b < s->flight.num_batches; b++) {
        const qr_batch *batch = qr_flight_batch(s, b);
        for (uint32_t i = 0; i < batch->num_reqs; i++) {
            uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
            if (index != QR_NIL)
                s->table.requests[index].num_in_flight += batch->num_tokens[i];
        }
    }
    return true;
}
