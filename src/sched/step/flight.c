/* sched/step/flight.c - steps in flight: scheduled, and not updated yet.
 *
 *      batches   . [ 5 ][ 6 ][ 7 ] .      a ring, oldest first; mostly the oldest ends first, but
 *                    ^ first_batch        any of them may: those before it move up by one place
 *
 * A request's tokens must come in order, so its older steps must end first: then nothing is put
 * in a wrong place, and no load is confirmed by a step that only used it. vLLM does not look.
 *
 * What a step lists stays where it is until the next schedule, since places swap their arrays.
 */
#include "sched/sched.h"

uint32_t qr_flight_find(const quire_sched *s, uint64_t step)
{
    for (uint32_t place = 0; place < s->flight.num_batches; place++)
        if (qr_flight_batch(s, place)->step == step)
            return place;
    return QR_NIL;
}

void qr_flight_end(quire_sched *s, uint32_t place)
{
    if (place > 0) {
        qr_batch ended = *qr_flight_batch(s, place);
        for (; place > 0; place--)
            *qr_flight_batch(s, place) = *qr_flight_batch(s, place - 1);
        *qr_flight_batch(s, 0) = ended;
    }
    s->flight.first_batch =
        s->flight.first_batch + 1 == s->settings.max_batches ? 0 : s->flight.first_batch + 1;
    s->flight.num_batches--;
}

/* Who waits for the i-th output of the step; QR_NIL: nobody, since the request has ended, or has
 * begun again. */
uint32_t qr_flight_who_waits(const quire_sched *s, const qr_batch *batch, uint32_t i)
{
    uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
    const qr_request *r = index == QR_NIL ? NULL : &s->table.requests[index];
    bool waits = r != NULL && !qr_request_is_finished(r) && batch->step >= r->first_valid_step &&
                 batch->num_preemptions[i] == r->num_preemptions;
    return waits ? index : QR_NIL;
}

static void mark(quire_sched *s, const qr_batch *batch, uint32_t value)
{
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t index = qr_flight_who_waits(s, batch, i);
        if (index != QR_NIL)
            s->room.scratch[index] = value;
    }
}

/* vLLM keeps nothing of a step: neither for order nor for loads that are to be confirmed. */
static bool keeps_nothing(const quire_sched *s)
{
    uint64_t both = QR_QUIRK(ANY_OUTPUT) | QR_QUIRK(FAILED_BLOCKS_STAY);
    return (s->settings.quirks & both) == both;
}

bool qr_flight_is_in_order(quire_sched *s, uint32_t place)
{
    if (place == 0 || keeps_nothing(s))
        return true;
    const qr_batch *batch = qr_flight_batch(s, place);
    mark(s, batch, 0);
    for (uint32_t older = 0; older < place; older++)
        mark(s, qr_flight_batch(s, older), 1);
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t index = qr_flight_who_waits(s, batch, i);
        if (index != QR_NIL && s->room.scratch[index] != 0)
            return false;
    }
    return true;
}

/* The tokens of a step whose outputs will not come are in flight no longer. */
static void drain_batch(quire_sched *s, const qr_batch *batch)
{
    for (uint32_t i = 0; i < batch->num_reqs && s->settings.rules.counts_in_flight; i++) {
        uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
        if (index != QR_NIL)
            (void)qr_request_drain(&s->table.requests[index], batch->num_tokens[i]);
    }
}

int qr_sched_forget_step(quire_sched *s, uint64_t step)
{
    uint32_t place = qr_flight_find(s, step);
    if (place == QR_NIL)
        return QUIRE_E_ARGUMENT;
    bool stays = keeps_nothing(s);
    drain_batch(s, qr_flight_batch(s, place));
    if (!stays) {
        memset(s->room.scratch, 0, (size_t)s->settings.max_requests * sizeof *s->room.scratch);
        mark(s, qr_flight_batch(s, place), 1);
    }
    qr_flight_end(s, place);
    if (!stays)
        qr_sched_begin_again(s, s->room.scratch);
    qr_fence_settle(s);
    qr_assert_expensive(qr_sched_is_valid(s));
    return QUIRE_OK;
}
