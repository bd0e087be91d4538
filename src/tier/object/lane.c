/* tier/object/lane.c - which io a lane works for, its attempts and its pauses. */
#include "tier/object/object.h"

#include "base/hooks.h"

#include <string.h>

#define LONGEST_PAUSE_NS (10 * QR_NET_SECOND)

quire_tier_io *qr_lane_io(const qr_lane *lane)
{
    return &lane->batch->ios[lane->io];
}

/* ---- taking and freeing ------------------------------------------------------ */

static qr_lane *find_free(const quire_tier_object *object)
{
    for (uint32_t i = 0; object->num_taken < object->num_lanes && i < object->num_lanes; i++)
        if (object->lanes[i].state == QR_LANE_FREE)
            return &object->lanes[i];
    return NULL;
}

static void free_lane(qr_lane *lane)
{
    quire_tier_object *object = lane->object;
    if (lane->state == QR_LANE_RUNNING)
        qr_request_stop(lane);
    object->num_stores -= lane->batch != NULL && lane->batch->op == QUIRE_TIER_STORE;
    object->num_deletes -= lane->batch == NULL && lane->kind == QR_OBJECT_REMOVE;
    object->num_taken--;
    lane->state = QR_LANE_FREE;
    lane->batch = NULL;
}

void qr_lane_end(qr_lane *lane, quire_tier_status status)
{
    quire_tier_object *object = lane->object;
    qr_net_batch *batch = lane->batch;
    uint32_t io = lane->io;
    free_lane(lane);
    if (batch != NULL)
        qr_net_end_io(&object->net, batch, io, status);
}

static void start(qr_lane *lane)
{
    quire_tier_object *object = lane->object;
    lane->num_attempts++;
    qr_net_count(&object->net, QR_NET_REQUESTS, 1);
    qr_net_count(&object->net, QR_NET_RETRIES, lane->num_attempts > 1);
    if (qr_request_start(lane)) {
        lane->state = QR_LANE_RUNNING;
        return;
    }
    lane->state = QR_LANE_PAUSED; /* libcurl does not have it */
    qr_lane_end(lane, QUIRE_TIER_FAILED);
}

void qr_lane_begin(qr_lane *lane, qr_object_kind kind)
{
    if (lane->state == QR_LANE_RUNNING)
        qr_request_stop(lane);
    lane->kind = kind;
    lane->num_attempts = 0;
    lane->is_fresh = false;
    start(lane);
}

/* The next load finds it wrong again where there is no room to note it. */
void qr_lane_end_wrong(qr_lane *lane)
{
    quire_tier_object *object = lane->object;
    qr_net_count(&object->net, QR_NET_WRONG, 1);
    if (object->num_wrong < QR_OBJECT_WRONG)
        memcpy(object->wrong[object->num_wrong++], lane->path, sizeof lane->path);
    qr_lane_end(lane, QUIRE_TIER_WRONG);
}

/* Only a quarter of the lanes: a server that is wrong may be slow too. */
static bool may_delete(const quire_tier_object *object)
{
    return object->num_wrong > 0 && object->num_deletes <= object->num_lanes / 4;
}

static void delete_wrong(quire_tier_object *object)
{
    qr_lane *lane;
    while (may_delete(object) && (lane = find_free(object)) != NULL) {
        memcpy(lane->path, object->wrong[--object->num_wrong], sizeof lane->path);
        object->num_taken++;
        object->num_deletes++;
        qr_lane_begin(lane, QR_OBJECT_REMOVE);
    }
}

bool qr_lane_probe(quire_tier_object *object)
{
    qr_lane *lane = find_free(object);
    if (lane == NULL)
        return false;
    object->num_taken++;
    memcpy(lane->path, object->place.bucket_path, sizeof object->place.bucket_path);
    qr_lane_begin(lane, QR_OBJECT_PROBE);
    return true;
}

/* ---- waiting ios --------------------------------------------------------------- */

static uint32_t max_stores(const quire_tier_object *object)
{
    uint32_t n = object->num_lanes - object->num_lanes / 4;
    return object->num_lanes > 1 && n == object->num_lanes ? n - 1 : n;
}

/* The first batch, of stores or of the others, with an io that waits; that io is its next one. */
static qr_net_batch *find_waiting(const quire_tier_object *object, bool is_store)
{
    for (qr_net_batch *batch = object->net.active; batch != NULL; batch = batch->next) {
        if ((batch->op == QUIRE_TIER_STORE) != is_store)
            continue;
        while (batch->next_io < batch->num_ios && !qr_net_waits(&batch->ios[batch->next_io]))
            batch->next_io++;
        if (batch->next_io < batch->num_ios)
            return batch;
    }
    return NULL;
}

/* Whose io a lane takes next; NULL: none waits that may be taken now. */
static qr_net_batch *choose_batch(const quire_tier_object *object)
{
    qr_net_batch *batch = find_waiting(object, false);
    if (batch == NULL && object->num_stores < max_stores(object))
        batch = find_waiting(object, true);
    return batch;
}

static void fill_lanes(quire_tier_object *object)
{
    qr_lane *lane;
    qr_net_batch *batch;
    while ((lane = find_free(object)) != NULL && (batch = choose_batch(object)) != NULL) {
        bool is_store = batch->op == QUIRE_TIER_STORE;
        lane->batch = batch;
        lane->io = batch->next_io++;
        qr_place_write_path(&object->place, &qr_lane_io(lane)->key, lane->path);
        qr_lane_io(lane)->generation = QR_NET_ASKED;
        object->num_taken++;
        object->num_stores += is_store;
        qr_lane_begin(lane, is_store ? QR_OBJECT_CHECK : (qr_object_kind)batch->op);
    }
}

void qr_lane_fill(quire_tier_object *object)
{
    if (object->credentials.generation == 0)
        return;
    fill_lanes(object);
    delete_wrong(object);
}

bool qr_lane_can_fill(const quire_tier_object *object)
{
    return object->credentials.generation != 0 && find_free(object) != NULL &&
           (may_delete(object) || choose_batch(object) != NULL);
}

/* ---- attempts -------------------------------------------------------------------- */

static uint64_t draw_random(quire_tier_object *object)
{
    uint64_t z = object->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* At random, so that many engines do not return at once. */
static uint64_t draw_pause(quire_tier_object *object, uint32_t num_attempts)
{
    uint64_t most = object->retry_ns;
    for (uint32_t i = 1; i < num_attempts && most < LONGEST_PAUSE_NS; i++)
        most *= 2;
    most = most < LONGEST_PAUSE_NS ? most : LONGEST_PAUSE_NS;
    return most / 2 + draw_random(object) % (most / 2 + 1);
}

void qr_lane_retry(qr_lane *lane, uint64_t pause_ns)
{
    quire_tier_object *object = lane->object;
    uint64_t until = object->net.now_ns + pause_ns + draw_pause(object, lane->num_attempts);
    if (lane->batch == NULL || lane->num_attempts >= object->max_attempts ||
        until >= lane->batch->deadline_ns) {
        qr_lane_end(lane, QUIRE_TIER_FAILED);
        return;
    }
    if (lane->state == QR_LANE_RUNNING)
        qr_request_stop(lane);
    lane->state = QR_LANE_PAUSED;
    lane->until_ns = until;
}

void qr_lane_tend(quire_tier_object *object)
{
    uint64_t now = object->net.now_ns;
    for (uint32_t i = 0; object->num_taken > 0 && i < object->num_lanes; i++) {
        qr_lane *lane = &object->lanes[i];
        if (lane->state == QR_LANE_PAUSED && now >= lane->until_ns)
            start(lane);
        else if (lane->state == QR_LANE_RUNNING && now >= lane->moved_ns + object->stall_ns)
            qr_answer_lost(lane, "timeout: no byte moved");
    }
}

uint64_t qr_lane_next_time(const quire_tier_object *object)
{
    uint64_t when = UINT64_MAX;
    for (uint32_t i = 0; object->num_taken > 0 && i < object->num_lanes; i++) {
        const qr_lane *lane = &object->lanes[i];
        if (lane->state == QR_LANE_PAUSED)
            qr_earlier(&when, lane->until_ns);
        else if (lane->state == QR_LANE_RUNNING)
            qr_earlier(&when, lane->moved_ns + object->stall_ns);
    }
    return when;
}

/* ---- users that do not wait any longer --------------------------------------------- */

/* The batch is released with its last io; a hold on it keeps it valid until all lanes were looked
 * at. */
void qr_lane_leave(qr_net_client *net, qr_net_batch *batch, bool is_late)
{
    quire_tier_object *object = (quire_tier_object *)net;
    quire_tier_status status = is_late ? QUIRE_TIER_FAILED : QUIRE_TIER_CANCELLED;
    batch->open++;
    qr_net_end_waiting(net, batch, status);
    for (uint32_t i = 0; i < object->num_lanes; i++)
        if (object->lanes[i].batch == batch) {
            if (is_late && object->lanes[i].state == QR_LANE_RUNNING)
                qr_net_note(&object->target, "timeout: no reply");
            qr_lane_end(&object->lanes[i], status);
        }
    qr_net_release(net, batch);
}
