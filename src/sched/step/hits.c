/* sched/step/hits.c - what the prefix cache has of a request that is to be admitted.
 *
 *      full [ a ][ b ][ c ]  Mamba [ - ][ s ]       a connector that brings states is asked what
 *                                                   follows c; if nothing does, the hit ends at s
 */
#include "sched/sched.h"

bool qr_sched_find_hit(quire_sched *s, qr_request *r, quire_block_span *hits, uint32_t *num_tokens)
{
    bool has_diverged = false;
    bool may_diverge = s->settings.rules.diverges_for_connector && s->partners.has_connector &&
                       s->partners.connector.supports_divergent_local_hybrid_hits != 0;
    if (!may_diverge) {
        qr_sched_agree_on_hit(s, r, hits, num_tokens);
        return false;
    }
    s->cache->reports_hits = r->reports_hits;
    int err = qr_cache_get_diverged_blocks(s->cache, &r->kv, hits, num_tokens, &has_diverged);
    qr_assert(err == QUIRE_OK);
    s->cache->reports_hits = false;
    r->shared_prefix = s->cache->shared_prefix;
    return has_diverged;
}

void qr_sched_agree_on_hit(quire_sched *s, qr_request *r, quire_block_span *hits,
                           uint32_t *num_tokens)
{
    s->cache->reports_hits = r->reports_hits;
    int err = qr_cache_get_computed_blocks(s->cache, &r->kv, hits, num_tokens);
    qr_assert(err == QUIRE_OK);
    s->cache->reports_hits = false;
    r->shared_prefix = s->cache->shared_prefix;
}
