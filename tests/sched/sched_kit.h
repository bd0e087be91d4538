/* sched/sched_kit.h - a small scheduler in a box, for tests that write a scenario down.
 *
 *      kit_config   one group of full attention, blocks of 4, 17 of them, 4 requests run
 *      kit_add      "abc" is the id and, letter by letter, where no prompt is given, the prompt too
 *      kit_step     schedules; kit_answer updates with one token for each request past its prompt
 */
#ifndef SCHED_SCHED_KIT_H
#define SCHED_SCHED_KIT_H

#include "base/unit.h"

#include <quire.h>
#include <quire/image.h>

enum { KIT_BLOCK = 4, KIT_LEN = 48, KIT_RUNNING = 4, KIT_REQUESTS = 8, KIT_MAX_PROMPT = 64 };

typedef struct sched_kit {
    quire_group_config group;
    quire_hasher *hasher;
    quire_sched *sched;
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token prompt[KIT_MAX_PROMPT];
    quire_request_params params; /* for the next kit_add: what it does not set itself */
    quire_cache_config cache;    /* of the config that kit_config gives */
} sched_kit;

quire_sched_config kit_config(sched_kit *kit);
void kit_open(sched_kit *kit, const quire_sched_config *config);
void kit_close(sched_kit *kit);

/* The params of a request with n prompt tokens that depend on its id. */
const quire_request_params *kit_params(sched_kit *kit, const char *id, uint32_t n);
quire_req kit_add(sched_kit *kit, const char *id, uint32_t n);
void kit_step(sched_kit *kit);
void kit_answer(sched_kit *kit, uint64_t step, quire_token token);
/* Schedules and answers. */
void kit_run(sched_kit *kit, quire_token token);
/* The ids of a step's requests with their tokens: "a:4 b:1". */
const char *kit_shown_step(const sched_kit *kit);
/* The ids in a queue: "a b". */
const char *kit_shown_queue(const sched_kit *kit, uint32_t which);
quire_req_info kit_info(const sched_kit *kit, quire_req req);

/* The whole state, as an image: to see that a call changed nothing. */
typedef struct kit_state {
    void *image;
    size_t bytes;
} kit_state;

kit_state kit_save(const quire_sched *sched);
/* The state is the same still, and the walker finds nothing. Ends the saved one. */
void kit_same(const quire_sched *sched, kit_state before);

#endif
