/* bad_router.c - shared objects that are refused: a policy of another version, and none at all. */
#include "fleet/routers/policy.h"

#ifdef BAD_ROUTER_IS_OLD
static void choose(void *state, const router_ask *ask, router_choice *choice)
{
    (void)state;
    choice->worker = ask->candidates[0];
}

const router_policy quire_router_policy = {
    .version = 99, .name = "old", .summary = "of another version", .choose = choose};
#else
const int no_policy = 0;
#endif
