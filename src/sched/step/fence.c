#include "sched/step/fence.h"

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

void qr_fence_drop(quire_sched *s, qr_request *r)
{
    qr_fences *f = &s->fences;
    if (qr_fence_is_open(s, r) || r->kv.seq == 0) {
        qr_cache_drop(s->cache, &r->kv);
        return;
    }
    qr_assert(f->num_rows < f->max_rows);
    f->rows[(f->first + f->num_rows++) % f->max_rows] =
        (qr_fenced_row){.seq = r->kv.seq, .fence = f->scheduled};
    r->kv.seq = 0;
}

void qr_fence_processed(quire_sched *s)
{
    qr_fences *f = &s->fences;
    f->processed++;
    while (f->num_rows > 0 && f->rows[f->first].fence <= f->processed) {
        qr_cache_free_joined(s->cache, f->rows[f->first].seq);
        f->first = (f->first + 1) % f->max_rows;
        f->num_rows--;
    }
}
