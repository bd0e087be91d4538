#include "sched/step/fence.h"

#include "cache/parts.h"
#include "sched/sched.h"

uint32_t qr_fences_most(const quire_sched_config *c)
{
    quire_connector connector = QUIRE_CONNECTOR_INIT;
    (void)qr_config_read(&connector, sizeof connector, c->connector);
    bool is_on = qr_rules_of(c->profile)->fences_blocks && c->max_batches > 1 &&
                 c->connector != NULL && connector.is_kv_consumer != 0;
    return is_on ? c->max_batches * c->max_num_seqs : 0;
}

bool qr_fence_is_open(const quire_sched *s, const qr_request *r)
{
    return !s->fences.is_on || r->last_fence <= s->fences.processed;
}

static void free_oldest(quire_sched *s)
{
    qr_fences *f = &s->fences;
    const qr_fenced_row *row = &f->rows[f->first];
    if (row->seq != 0)
        qr_cache_free_joined(s->cache, row->seq);
    else
        qr_cache_end_copies(s->cache, row->num_copies);
    f->num_seqs -= row->seq != 0;
    f->first = (f->first + 1) % f->max_rows;
    f->num_rows--;
}

static void put(quire_sched *s, qr_fenced_row row)
{
    qr_fences *f = &s->fences;
    /* if they are full, steps were forgotten: nothing writes for the oldest */
    while (f->num_rows == f->max_rows || (row.seq != 0 && f->num_seqs == f->max_seqs))
        free_oldest(s);
    f->rows[(f->first + f->num_rows++) % f->max_rows] = row;
    f->num_seqs += row.seq != 0;
}

void qr_fence_drop(quire_sched *s, qr_request *r)
{
    qr_fences *f = &s->fences;
    if (qr_fence_is_open(s, r) || r->kv.seq == 0) {
        qr_cache_drop(s->cache, &r->kv);
        return;
    }
    put(s, (qr_fenced_row){.seq = r->kv.seq, .fence = f->scheduled});
    r->kv.seq = 0;
}

void qr_fence_copies(quire_sched *s, uint32_t num_copies)
{
    qr_fences *f = &s->fences;
    if (f->is_on)
        put(s, (qr_fenced_row){.num_copies = num_copies, .fence = f->scheduled + 1});
    else
        qr_cache_end_copies(s->cache, num_copies);
}

static void free_open(quire_sched *s)
{
    const qr_fences *f = &s->fences;
    while (f->num_rows > 0 && f->rows[f->first].fence <= f->processed)
        free_oldest(s);
}

void qr_fence_processed(quire_sched *s)
{
    s->fences.processed++;
    free_open(s);
}

void qr_fence_settle(quire_sched *s)
{
    if (s->flight.num_batches > 0)
        return;
    s->fences.processed = s->fences.scheduled;
    free_open(s);
}
