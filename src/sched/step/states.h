/* sched/step/states.h - states of Mamba layers that a connector may store.
 *
 *      schedule, update     a state gets a key, or its key moves to a copy     noted
 *      end of schedule      quire_step.states: those of requests that still have their blocks
 *
 * In align mode a row has a state here and there, and gives it back soon. So the block and the tokens
 * of each are told at once: later nothing says where the state was. */
#ifndef QR_SCHED_STEP_STATES_H
#define QR_SCHED_STEP_STATES_H

#include "base/arena.h"
#include "sched/requests/request.h"

typedef struct qr_noted_state {
    quire_state_offer offer;
    quire_seq seq; /* of the blocks that the request has now */
} qr_noted_state;

typedef struct qr_states {
    qr_noted_state *noted; /* group by group */
    quire_state_offer *told;
    quire_state_offer *ended; /* of one request that ends */
    uint32_t capacity;        /* 0: nobody asks for them */
    uint32_t num_noted;
} qr_states;

void qr_states_carve(qr_states *states, qr_arena *arena, const quire_sched_config *config);
/* The cache tells of its states from here on. */
void qr_states_init(quire_sched *sched);
/* Those since the last step become the step's. */
void qr_states_tell(quire_sched *sched);
/* Those of a request that ends in `ended`, if it has computed nothing behind them; their number. */
uint32_t qr_states_end(quire_sched *sched, uint32_t index);

#endif
