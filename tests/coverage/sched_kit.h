/* coverage/sched_kit.h - a small scheduler to try things on, where requests are written as letters.
 *
 *      prompt      "aaaabbbbc"    one letter for each token; four fill a block
 *      engine      samples the token `token` for every request that is past its prompt
 *      connector   answers what its fields say, and so does the grammar
 *      decisions   as text, in the order in which they were told: "held_up a grammar",
 *                  "no_room b blocks 2", "preempted b for a", "evicted for a", "dropped a 2",
 *                  "outgrown a"
 *
 * Every call through the kit must succeed, and is followed by quire_sched_check.
 */
#ifndef COVERAGE_SCHED_KIT_H
#define COVERAGE_SCHED_KIT_H

#include "base/unit.h"

#include <quire/sched.h>

enum { SCHED_KIT_BLOCK = 4, SCHED_KIT_REQS = 8, SCHED_KIT_SEQS = 4, SCHED_KIT_PROMPTS = 4096 };

typedef struct sched_kit {
    quire_sched_config config; /* to be changed between init and open */
    quire_cache_config cache;  /* of config */
    quire_group_config groups[2];
    quire_connector connector;
    quire_grammar grammar;
    quire_hasher *hasher;
    quire_sched *sched;
    const quire_step *step;
    const quire_outputs *outputs;

    quire_token token; /* what the engine samples */

    int matched_answer; /* of the connector */
    uint32_t num_external;
    uint32_t is_async;
    int keeps_blocks;
    int reset_answer;
    uint32_t num_told; /* calls of update_state_after_alloc */

    int is_ready; /* of the grammar */
    int advances;
    int accepts;
    uint32_t num_valid;

    quire_snapshot snapshot; /* the last one */
    uint32_t num_snapshots;
    uint32_t num_events;
    char told[1024];
    struct {
        quire_req req;
        char name[8];
    } names[64];
    uint32_t num_names;
    quire_token prompt[SCHED_KIT_PROMPTS];
} sched_kit;

/* One group of full attention, prefix caching, decisions and snapshots told, 64 tokens at most. */
void sched_kit_init(sched_kit *kit, uint32_t num_blocks);
/* A connector, and a grammar, with every function there is. */
void sched_kit_connect(sched_kit *kit);
void sched_kit_use_grammar(sched_kit *kit);
void sched_kit_open(sched_kit *kit);
void sched_kit_close(sched_kit *kit);

/* The prompt is the kit's until the next call. */
quire_request_params sched_kit_params(sched_kit *kit, const char *name, const char *text);
quire_req sched_kit_add_params(sched_kit *kit, const quire_request_params *params);
quire_req sched_kit_add(sched_kit *kit, const char *name, const char *text, uint32_t max_tokens);

void sched_kit_schedule(sched_kit *kit);
/* The oldest step's output, one token for each request past its prompt; `more` may be NULL. */
void sched_kit_update(sched_kit *kit, uint64_t step, const quire_model_output *more);
/* Both. */
void sched_kit_step(sched_kit *kit);

/* What was told since the last call, "" when nothing was. */
const char *sched_kit_told(sched_kit *kit);
quire_req_status sched_kit_status(const sched_kit *kit, quire_req req);
/* The output of a request in the last update, NULL when there is none. */
const quire_output *sched_kit_output(const sched_kit *kit, quire_req req);

#endif
