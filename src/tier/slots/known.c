#include "tier/slots/known.h"

int qr_known_open(uint32_t num_keys, const quire_hooks *hooks, quire_slots **known)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = num_keys;
    config.hooks = *hooks;
    return quire_slots_create(&config, NULL, known);
}

static void learn(quire_slots *known, const quire_tier_key *key)
{
    uint32_t slot;
    uint32_t num_evicted;
    uint8_t is_new = 0;
    if (quire_slots_prepare_store(known, key, 1, &slot, &is_new, NULL, &num_evicted) != QUIRE_OK)
        return;
    if (is_new)
        quire_slots_complete_store(known, key, 1, 1);
    quire_slots_touch(known, key, 1);
}

void qr_known_finish(quire_slots *known, const quire_tier_job *job)
{
    if (known == NULL)
        return;
    for (uint32_t i = job->num_ios; i-- > 0;) { /* so that the end of a prompt is the oldest */
        const quire_tier_io *io = &job->ios[i];
        bool is_removed = io->status == QUIRE_TIER_DONE && job->op == QUIRE_TIER_REMOVE;
        if (io->status == QUIRE_TIER_DONE && !is_removed)
            learn(known, &io->key);
        else if (is_removed || io->status == QUIRE_TIER_MISSING || io->status == QUIRE_TIER_WRONG)
            (void)quire_slots_remove(known, &io->key);
    }
}

/* ---- of quire_tier_ops ------------------------------------------------------ */

quire_slots *qr_known_get_slots(void *self)
{
    return *(quire_slots **)self;
}

void qr_known_finish_job(void *self, quire_tier_job *job)
{
    qr_known_finish(qr_known_get_slots(self), job);
}

void qr_known_touch_keys(void *self, const quire_tier_key *keys, uint32_t n)
{
    quire_slots_touch(qr_known_get_slots(self), keys, n);
}

quire_usage qr_known_get_usage(void *self)
{
    return quire_slots_usage(qr_known_get_slots(self));
}
