/* policies_absent.c - what `quire curve --policy` does in a program without libquire_tier. */
#include "policies.h"

int policy_hits(const policy_log *log, quire_slots_policy policy, uint32_t num_slots,
                uint32_t backlog, uint64_t *hits)
{
    (void)log;
    (void)policy;
    (void)num_slots;
    (void)backlog;
    *hits = 0;
    return QUIRE_E_DISABLED;
}
