/* sched/requests/fork_kit.h - a parent, and children of it.
 *
 *      16 blocks of 4     a prompt of 6 tokens has 2 blocks, and the second is half full: whoever
 *                         writes into it next, while it is shared, gets a copy
 */
#ifndef SCHED_FORK_KIT_H
#define SCHED_FORK_KIT_H

#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { TOKENS = 6 };

quire_sched_config fork_config(sched_kit *kit);
/* The parent a has computed its prompt and has one token of output. */
quire_req open_parent(sched_kit *kit, const quire_sched_config *config);
quire_request_params child_params(const char *id);
int try_fork(sched_kit *kit, quire_req parent, const quire_request_params *p, quire_req *req);
quire_req fork_of(sched_kit *kit, quire_req parent, const char *id);
void end(sched_kit *kit, quire_req req);
void close_empty(sched_kit *kit);
/* Each request gets a token of its own; row i of the step gets first + i. */
void answer_apart(sched_kit *kit, quire_token first);

#endif
