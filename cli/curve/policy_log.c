#include "policy_log.h"

#include <stdlib.h>

void policy_log_free(policy_log *log)
{
    free(log->requests);
    free(log->keys);
    *log = (policy_log){0};
}

/* Room for `more` behind those that are used. */
static void *grown_log(void *array, uint64_t used, uint64_t more, uint64_t *room, size_t size)
{
    if (more <= *room - used)
        return array;
    uint64_t larger = *room + *room / 2 + more + 1024;
    void *moved = realloc(array, larger * size);
    if (moved != NULL)
        *room = larger;
    return moved;
}

bool policy_log_add(policy_log *log, const curve_blocks *blocks)
{
    uint64_t *keys = grown_log(log->keys, log->num_keys, blocks->num_full + UINT64_C(1),
                               &log->keys_room, sizeof *keys);
    if (keys == NULL)
        return false;
    log->keys = keys;
    policy_request *requests =
        grown_log(log->requests, log->num_requests, 1, &log->requests_room, sizeof *requests);
    if (requests == NULL)
        return false;
    log->requests = requests;
    log->requests[log->num_requests++] =
        (policy_request){log->num_keys, blocks->num_lookups, blocks->num_full, blocks->num_held};
    for (uint32_t i = 0; i < blocks->num_full; i++)
        log->keys[log->num_keys++] = blocks->keys[i];
    return true;
}
