/* engine/counts.h - what a run of the proof did, and which mechanisms it may use.
 *
 * A mechanism that is on and was never at work would prove nothing: the proof fails then.
 */
#ifndef ENGINE_COUNTS_H
#define ENGINE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, text) */
#define ENGINE_COUNT_MAP(X)                                                                        \
    X(engines, "engines")                                                                          \
    X(steps, "steps")                                                                              \
    X(requests, "requests ended")                                                                  \
    X(tokens_computed, "tokens computed")                                                          \
    X(tokens_compared, "logits compared, tokens")                                                  \
    X(tokens_differ, "logits that differ, tokens")                                                 \
    X(outputs_differ, "requests with other tokens")                                                \
    X(confused, "steps that make no sense")                                                        \
    X(preemptions, "preemptions")                                                                  \
    X(chunked_prefills, "chunked prefills")                                                        \
    X(prefix_hits, "prefix hits, requests")                                                        \
    X(prefix_tokens, "prefix hits, tokens")                                                        \
    X(window_tokens, "tokens of hybrid models")                                                    \
    X(async_steps, "async steps")                                                                  \
    X(drafts_accepted, "drafts accepted")                                                          \
    X(drafts_rejected, "drafts rejected")                                                          \
    X(swapped_out, "blocks swapped out")                                                           \
    X(swapped_in, "blocks swapped in")                                                             \
    X(saved, "requests saved by the offload")                                                      \
    X(host_tokens, "host hits, tokens")                                                            \
    X(lazy_stores, "lazily stored blocks")                                                         \
    X(file_tokens, "file hits, tokens")                                                            \
    X(redis_tokens, "Redis hits, tokens")                                                          \
    X(peer_tokens, "peer hits, tokens")                                                            \
    X(peer_stops, "peers stopped")                                                                 \
    X(peer_resets, "peers emptied")                                                                \
    X(loads_failed, "loads failed, recomputed")                                                    \
    X(restarts, "restarts")                                                                        \
    X(crashes, "restarts with work in flight")                                                     \
    X(restart_tokens, "file hits after a restart, tokens")                                         \
    X(aborts, "aborts")                                                                            \
    X(samples, "parallel samples by fork")                                                         \
    X(beams, "beam searches")                                                                      \
    X(branches, "branches of requests")                                                            \
    X(forks, "forks")                                                                              \
    X(shared_forks, "forks that share blocks at once")                                             \
    X(cow_copies, "copies on write")                                                               \
    X(fork_preemptions, "searches begun again")                                                    \
    X(zeroed, "blocks zeroed")                                                                     \
    X(pins, "pins")                                                                                \
    X(resets, "cache resets")                                                                      \
    X(images, "schedulers saved and restored")                                                     \
    X(forgotten, "steps whose output was lost")                                                    \
    X(pressed, "preemptions by pressure")                                                          \
    X(chosen_swaps, "requests swapped by the caller")                                              \
    X(chosen_recomputes, "requests preempted by the caller")                                       \
    X(offloads, "requests offloaded by the caller")                                                \
    X(resumes, "requests resumed by the caller")                                                   \
    X(overtaking, "requests admitted before others")                                               \
    X(victims, "victims of a chosen policy")                                                       \
    X(prompt_logits, "prompt logits compared")

typedef struct engine_counts {
#define ENGINE_X(name, text) uint64_t name;
    ENGINE_COUNT_MAP(ENGINE_X)
#undef ENGINE_X
} engine_counts;

/* X(name, count that must not stay 0, text) */
#define ENGINE_SWITCH_MAP(X)                                                                       \
    X(chunked, chunked_prefills, "prompts in chunks")                                              \
    X(prefix, prefix_hits, "prefix caching")                                                       \
    X(hybrid, window_tokens, "full and sliding-window groups")                                     \
    X(async, async_steps, "the next step is scheduled before the last one has ended")              \
    X(spec, drafts_accepted, "drafts, right and wrong ones")                                       \
    X(swap, swapped_in, "preempted requests in host slots")                                        \
    X(offload, host_tokens, "blocks in host memory")                                               \
    X(saves, saved, "preempted requests in the offload's host memory")                             \
    X(lazy, lazy_stores, "blocks stored when they are about to go")                                \
    X(file, file_tokens, "blocks in a file")                                                       \
    X(redis, redis_tokens, "blocks in Redis")                                                      \
    X(peer, peer_tokens, "blocks in another engine's host memory, over TCP")                       \
    X(failures, loads_failed, "copies that fail and are late")                                     \
    X(restarts, restart_tokens, "engines that begin again with the file")                          \
    X(crashes, crashes, "and are thrown away in the middle")                                       \
    X(aborts, aborts, "requests that are given up")                                                \
    X(samples, samples, "parallel samples by fork")                                                \
    X(beams, beams, "beam search by fork")                                                         \
    X(branches, branches, "requests are forked as they are")                                       \
    X(zero, zeroed, "new blocks are zeroed")                                                       \
    X(pins, pins, "blocks of ended requests are kept")                                             \
    X(resets, resets, "the prefix cache is emptied")                                               \
    X(images, images, "the scheduler is saved, and restored from its image")                       \
    X(forget, forgotten, "outputs of steps are lost")                                              \
    X(pressure, pressed, "requests are preempted above a mark, admitted below another")            \
    X(moves, chosen_swaps, "the caller preempts, offloads and resumes requests")                   \
    X(policy, overtaking, "requests with a prefix in the cache are admitted first")                \
    X(victims, victims, "other victims than the last request, also by a hook")                     \
    X(prompt, prompt_logits, "logits of prompts, too")

typedef struct engine_switches {
#define ENGINE_X(name, count, text) bool name;
    ENGINE_SWITCH_MAP(ENGINE_X)
#undef ENGINE_X
} engine_switches;

#endif
