/* cli/fleet/crash.h - what a crash of a worker does to requests.
 *
 *      crash.c         the worker, and its requests          go back to the router
 *      crash_apart.c   where one worker computes prompts and another one generates:
 *
 *      the decode worker     its requests                    go back to the router
 *      crashes               copies at prefill workers       are taken from there
 *                            prompts that are held for it    are given up
 *                            transfers to it                 are cancelled
 *
 *      the prefill worker    the decode worker has blocks    it computes the prompt, as when a
 *      crashes                                               transfer fails
 *                            it has none                     the request goes back to the router
 *                            transfers from it               are cancelled
 */
#ifndef QUIRE_CLI_FLEET_CRASH_H
#define QUIRE_CLI_FLEET_CRASH_H

#include "members.h"

/* Requests that have left their worker, in the order of arrival: routers forget them, and get them
 * again at the end of the changes. crash: NULL if they did not leave in one. 0, or -1 and a
 * sentence; so are those that follow. */
int crash_take_back(struct fleet *f, arrival_queue *left, member_crash *crash);

/* The crash has interrupted the request; request.lost_tokens are those of it. */
void crash_interrupted(struct fleet *f, arrival *it, member_crash *crash);

/* Before worker_crash: what the worker has to do with open handoffs ends, but for copies that it
 * has. Adds the requests that go back and that the worker does not have. */
int crash_handoffs(struct fleet *f, member_crash *crash, arrival_queue *back);
/* Behind it: takes what has left the worker. Adds the requests that go back. */
int crash_parts(struct fleet *f, member_crash *crash, arrival_queue *left, arrival_queue *back);

#endif
