/* sched/requests/fork.h - a child: a request with the text of another one.
 *
 *      parent   runs, no step in flight    child   runs behind it: shares its blocks
 *               in any other state                 waits, as if it had been added with this text
 *
 * Sharing is all that makes a fork more than an add, and only a parent whose computed tokens are
 * sure can share: what a step in flight will write may be taken back with the step. So after the
 * call no request depends on the other: blocks have several users, and that is all.
 *
 * The last tokens of a text may be others than the parent's: another beam's. As long as they were
 * not computed, that changes nothing for the blocks.
 *
 * A child that runs was in no step yet: qr_request_is_untold.
 */
#ifndef QR_SCHED_REQUESTS_FORK_H
#define QR_SCHED_REQUESTS_FORK_H

#include <quire/sched.h>

int qr_sched_fork(quire_sched *sched, uint32_t parent, const quire_request_params *params,
                  quire_req *child);

#endif
