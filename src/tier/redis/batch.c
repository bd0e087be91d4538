/* tier/redis/batch.c - jobs, and the calls that are made of them. */
#include "tier/redis/redis.h"

#include <string.h>

static const char ASKING[QR_REDIS_ASKING + 1] = "*1\r\n$6\r\nASKING\r\n";

/* ---- calls ----------------------------------------------------------------- */

qr_call *qr_call_take(quire_tier_redis *redis, bool is_ours)
{
    if (redis->num_free_calls <= (is_ours ? 0 : redis->num_kept_calls))
        return NULL;
    qr_call *call = redis->free_calls;
    redis->free_calls = call->next;
    redis->num_free_calls--;
    memset(call, 0, offsetof(qr_call, text));
    return call;
}

static void give_call(quire_tier_redis *redis, qr_call *call)
{
    call->next = redis->free_calls;
    redis->free_calls = call;
    redis->num_free_calls++;
}

quire_tier_io *qr_call_io(const qr_call *call)
{
    return &call->batch->ios[call->io];
}

void qr_call_end(quire_tier_redis *redis, qr_call *call, quire_tier_status status)
{
    qr_net_batch *batch = call->batch;
    uint32_t io = call->io;
    give_call(redis, call);
    if (batch != NULL)
        qr_net_end_io(&redis->net, batch, io, status);
}

static void write_command(quire_tier_redis *redis, qr_call *call, quire_tier_op op,
                          const quire_tier_io *io)
{
    memcpy(call->text, ASKING, QR_REDIS_ASKING);
    call->head = call->text + QR_REDIS_ASKING;
    call->head_bytes = qr_redis_command_write(&redis->space, op, io, redis->has_ttl,
                                              call->text + QR_REDIS_ASKING, &call->slot);
}

/* A store begins with the question whether the block is there. */
static qr_call *make_call(quire_tier_redis *redis, qr_net_batch *batch, uint32_t i)
{
    qr_call *call = qr_call_take(redis, false);
    if (call == NULL)
        return NULL;
    bool is_store = batch->op == QUIRE_TIER_STORE;
    call->batch = batch;
    call->io = i;
    call->kind = is_store ? QR_CALL_CHECK : (qr_call_kind)batch->op;
    write_command(redis, call, is_store ? QUIRE_TIER_FIND : batch->op, &batch->ios[i]);
    if (batch->op == QUIRE_TIER_LOAD)
        call->answer_bytes = QR_NET_HEADER + batch->ios[i].bytes;
    if (is_store || batch->op == QUIRE_TIER_LOAD)
        redis->value_bytes = batch->ios[i].bytes;
    return call;
}

void qr_call_send_store(quire_tier_redis *redis, qr_call *call)
{
    const quire_tier_io *io = qr_call_io(call);
    call->kind = QR_CALL_STORE;
    call->num_skipped = 0;
    call->body = io->memory;
    call->body_bytes = io->bytes;
    write_command(redis, call, QUIRE_TIER_STORE, io);
    qr_call_route(redis, call, NULL);
}

void qr_call_route(quire_tier_redis *redis, qr_call *call, qr_node *node)
{
    uint16_t owner = redis->owner[call->slot];
    if (node == NULL && owner != QR_REDIS_NOBODY)
        node = &redis->nodes[owner];
    if (node == NULL) {
        redis->wants_map = true;
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
    } else if (qr_node_is_open(node)) {
        qr_call_end(redis, call, QUIRE_TIER_REFUSED);
    } else {
        qr_node_push(node, call);
    }
}

void qr_call_drop_key(quire_tier_redis *redis, const qr_call *load)
{
    qr_call *call = qr_call_take(redis, false);
    if (call == NULL)
        return; /* the next load finds it wrong again */
    call->kind = QR_CALL_REMOVE;
    write_command(redis, call, QUIRE_TIER_REMOVE, qr_call_io(load));
    call->due_ns = redis->net.now_ns + 5 * QR_NET_SECOND;
    qr_call_route(redis, call, NULL);
}

/* Whether some server may still tell where the slots are. */
static bool may_learn(const quire_tier_redis *redis)
{
    for (uint32_t i = 0; i < redis->max_nodes; i++)
        if (redis->nodes[i].is_used && !qr_node_is_open(&redis->nodes[i]))
            return true;
    return false;
}

/* Whether its node has as many calls as one may have: so one that is stuck leaves room for the
 * others. */
static bool is_crowded(const quire_tier_redis *redis, uint32_t slot)
{
    uint16_t owner = redis->owner[slot];
    return owner != QR_REDIS_NOBODY && !qr_node_is_open(&redis->nodes[owner]) &&
           redis->nodes[owner].num_calls >= redis->node_share;
}

/* A call for an io, if its node has room; false: there is no call left. */
static bool route_io(quire_tier_redis *redis, qr_net_batch *batch, uint32_t i)
{
    quire_tier_io *io = &batch->ios[i]; /* its generation: 1 + its slot while that is crowded */
    if (io->generation != 0 && is_crowded(redis, io->generation - 1))
        return true;
    qr_call *call = make_call(redis, batch, i);
    if (call == NULL)
        return false;
    if (is_crowded(redis, call->slot)) {
        io->generation = call->slot + 1u;
        give_call(redis, call);
        return true;
    }
    io->generation = QR_NET_ASKED;
    qr_call_route(redis, call, NULL);
    return true;
}

/* Ends with the last io that is open: it may have ended, and the batch with it. */
static bool route_batch(quire_tier_redis *redis, qr_net_batch *batch)
{
    const quire_tier_io *ios = batch->ios;
    uint32_t num_ios = batch->num_ios;
    for (uint32_t i = batch->next_io; i < num_ios; i++) {
        if (!qr_net_waits(&ios[i])) {
            batch->next_io += i == batch->next_io;
            continue;
        }
        bool is_last = batch->open == 1;
        if (!route_io(redis, batch, i))
            return false;
        if (is_last)
            break;
        batch->next_io += i == batch->next_io && !qr_net_waits(&ios[i]);
    }
    return true;
}

void qr_batch_route_all(quire_tier_redis *redis)
{
    if (!redis->has_map && may_learn(redis))
        return;
    qr_net_batch *batch = redis->net.active;
    while (batch != NULL) {
        qr_net_batch *next = batch->next; /* ending its last io releases it, and only it */
        if (!redis->has_map)
            qr_net_end_waiting(&redis->net, batch, QUIRE_TIER_REFUSED);
        else if (!route_batch(redis, batch))
            return;
        batch = next;
    }
}

/* ---- users that do not wait any longer ------------------------------------- */

/* What cannot be left alone is closed first. If it was cancelled, a store that is half sent goes
 * on, but not for long. The batch is released with its last io; a hold on it keeps it valid here
 * until all nodes were looked at. */
void qr_batch_leave(qr_net_client *net, qr_net_batch *batch, bool is_late)
{
    quire_tier_redis *redis = (quire_tier_redis *)net;
    quire_tier_status status = is_late ? QUIRE_TIER_FAILED : QUIRE_TIER_CANCELLED;
    uint64_t until = net->now_ns + net->late_ns;
    if (!is_late && batch->deadline_ns > until)
        batch->deadline_ns = until;
    batch->open++;
    qr_net_end_waiting(&redis->net, batch, status);
    for (uint32_t n = 0; n < redis->max_nodes; n++) {
        qr_node *node = &redis->nodes[n];
        uint32_t num_gone = 0;
        if (!node->is_used || node->num_calls == 0)
            continue;
        qr_node_end_waiting(redis, node, batch, status);
        for (uint32_t i = 0; i < redis->num_links; i++)
            if (!qr_link_forget(redis, &node->links[i], batch, status, !is_late, &num_gone))
                qr_link_close(redis, &node->links[i], false);
        if (is_late && num_gone > 0 && !qr_node_is_open(node)) {
            qr_net_note(&node->target, "timeout: no reply");
            qr_node_strike(redis, node, false);
        }
    }
    qr_net_release(&redis->net, batch);
}
