#include "tier/lower.h"
size_t qr_lower_bytes(const quire_offload_config *config)
{
    (void)config;
    return 0;
}
qr_lower *qr_lower_create_in(void *m, const quire_offload_config *c, quire_cache *cpu)
{
    (void)m;
    (void)c;
    (void)cpu;
    return NULL;
}
bool qr_lower_ask(qr_lower *l, const qr_lower_request *r)
{
    (void)l;
    (void)r;
    return false;
}
void qr_lower_prefetch(qr_lower *l, const qr_lower_request *r)
{
    (void)l;
    (void)r;
}
void qr_lower_forget(qr_lower *l, quire_req r)
{
    (void)l;
    (void)r;
}
void qr_lower_stored(qr_lower *l, const quire_block *b, const uint32_t *c, const uint32_t *t,
                     uint32_t n)
{
    (void)l;
    (void)b;
    (void)c;
    (void)t;
    (void)n;
}
void qr_lower_reused(qr_lower *l, const quire_block *b, uint32_t n)
{
    (void)l;
    (void)b;
    (void)n;
}
void qr_lower_poll(qr_lower *l)
{
    (void)l;
}
void qr_lower_learn(qr_lower *l, uint32_t n, uint64_t ns)
{
    (void)l;
    (void)n;
    (void)ns;
}
int qr_lower_reset(qr_lower *l)
{
    (void)l;
    return 0;
}
bool qr_lower_is_idle(const qr_lower *l)
{
    (void)l;
    return true;
}
void qr_lower_count_refs(const qr_lower *l, uint32_t *r)
{
    (void)l;
    (void)r;
}
void qr_lower_add_stats(const qr_lower *l, quire_offload_stats *s)
{
    (void)l;
    (void)s;
}
void qr_lower_set_room(qr_lower *l, void (*f)(void *u, uint32_t n), void *u)
{
    (void)l;
    (void)f;
    (void)u;
}
bool qr_lower_has_pending(const qr_lower *l)
{
    (void)l;
    return false;
}
int qr_lower_check(const qr_lower *l)
{
    (void)l;
    return 0;
}
