/* tier/promote/jobs.c - moves become jobs of a tier, and what becomes of those.
 *
 *      queues ── FIND, then LOAD, AHEAD, then STORE ──► a job ──► submit ──► out ──► ended
 *                                                         └ not taken: stalled, tried again first
 *                                                                      out ──► late ──► ended
 *
 * Loads go before stores, and stores leave a quarter of what the tier takes at once to loads.
 */
#include "tier/promote/parts.h"

#include "base/hooks.h"
#include "tier/core/tier.h"

void qr_promote_jobs_init(qr_promote *promote)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        qr_promote_tier *tier = &promote->tiers[t];
        uint32_t first = t * QR_LOWER_ALL_JOBS;
        for (uint32_t i = 0; i < QR_LOWER_ALL_JOBS; i++) {
            qr_promote_job *job = &promote->jobs[first + i];
            bool is_last = i + 1 == QR_LOWER_JOBS || i + 1 == QR_LOWER_ALL_JOBS;
            job->tier = (uint8_t)t;
            job->link.next = is_last ? QR_NIL : first + i + 1;
        }
        tier->free_job = first;
        tier->free_find = first + QR_LOWER_JOBS;
        tier->stalled = QR_NIL;
        tier->out = QR_CHAIN_EMPTY;
        tier->most_store_bytes = UINT64_MAX;
        for (uint32_t q = 0; q < QR_QUEUE_COUNT; q++)
            tier->queues[q] = (qr_promote_queue){.chain = QR_CHAIN_EMPTY};
    }
}

static uint32_t id_of(const qr_promote *promote, const qr_promote_job *job)
{
    return (uint32_t)(job - promote->jobs);
}

static void give_back_job(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    bool is_find = id_of(promote, job) % QR_LOWER_ALL_JOBS >= QR_LOWER_JOBS;
    uint32_t *list = is_find ? &tier->free_find : &tier->free_job;
    job->link.next = *list;
    *list = id_of(promote, job);
}

/* ---- the list of those that are out, oldest first -------------------------- */

static void put_out(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    job->is_out = true;
    qr_chain_insert(&tier->out, &promote->jobs->link, sizeof *job, QR_NIL, id_of(promote, job));
    tier->num_on_time++;
    if (job->job.op == QUIRE_TIER_LOAD)
        tier->loads_on_time += job->job.num_ios;
}

static void take_in(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    qr_chain_remove(&tier->out, &promote->jobs->link, sizeof *job, id_of(promote, job));
    tier->num_on_time--;
    if (job->job.op == QUIRE_TIER_LOAD)
        tier->loads_on_time -= job->job.num_ios;
}

/* ---- CPU blocks ------------------------------------------------------------ */

static void count_blocks(qr_promote *promote, qr_promote_job *job, bool is_start)
{
    job->has_blocks = is_start;
    qr_promote_tier *tier = &promote->tiers[job->tier];
    uint32_t n = job->job.num_ios;
    uint64_t bytes = n * promote->block_bytes;
    qr_count_add(&tier->counters.in_flight, is_start ? n : UINT64_C(0) - n);
    tier->bytes_out += is_start ? bytes : UINT64_C(0) - bytes;
    if (job->job.op == QUIRE_TIER_LOAD) {
        tier->num_loading += is_start ? n : UINT32_C(0) - n;
        return;
    }
    tier->num_stores += is_start ? 1 : UINT32_MAX;
    tier->num_storing += is_start ? n : UINT32_C(0) - n;
    tier->store_bytes_out += is_start ? bytes : UINT64_C(0) - bytes;
}

/* Blocks of a load that brought nothing are taken first again: what is not there must not cost the
 * CPU pool what it has. */
static void free_to_head(qr_promote *promote, const quire_block *blocks, uint32_t n)
{
    (void)quire_pool_hold(promote->pool, blocks, n);
    (void)quire_pool_free_blocks(promote->pool, blocks, n);
    (void)quire_pool_let_go(promote->pool, blocks, n, 1);
}

/* Gives the job's blocks back, the last first: a prefix is evicted from its end. What a load has
 * written to is not what it was, good or not. */
static void release_blocks(qr_promote *promote, qr_promote_job *job)
{
    uint32_t n = job->job.num_ios;
    uint32_t num_kept = 0;
    uint32_t num_empty = 0;
    bool is_load = job->job.op == QUIRE_TIER_LOAD;
    if (!job->has_blocks)
        return;
    count_blocks(promote, job, false);
    for (uint32_t i = n; i-- > 0;) {
        quire_tier_status status = job->job.ios[i].status;
        promote->contents[job->blocks[i]] += is_load;
        if (is_load && (status == QUIRE_TIER_MISSING || status == QUIRE_TIER_CANCELLED))
            promote->free_list[n - ++num_empty] = job->blocks[i];
        else
            promote->free_list[num_kept++] = job->blocks[i];
    }
    quire_pool_free_blocks(promote->pool, promote->free_list, num_kept);
    free_to_head(promote, promote->free_list + num_kept, num_empty);
}

static void end_move(qr_promote *promote, uint32_t move)
{
    qr_promote_move_end(promote, move, true);
}

/* The moves of a job end without success; how: qr_promote_move_fail, or end_move. */
static void fail_moves(qr_promote *promote, qr_promote_job *job,
                       void (*how)(qr_promote *promote, uint32_t move))
{
    for (uint32_t i = 0; i < job->job.num_ios; i++) {
        if (job->moves[i] == QR_NIL)
            continue;
        how(promote, job->moves[i]);
        job->moves[i] = QR_NIL;
    }
}

/* A job that no tier has. */
static void dissolve(qr_promote *promote, qr_promote_job *job,
                     void (*how)(qr_promote *promote, uint32_t move))
{
    if (job->job.op == QUIRE_TIER_STORE)
        qr_count_add(&promote->tiers[job->tier].counters.dropped_blocks, job->job.num_ios);
    fail_moves(promote, job, how);
    release_blocks(promote, job);
    give_back_job(promote, job);
}

/* The tier takes nothing of what waits for it. */
static void fail_queues(qr_promote *promote, uint32_t t,
                        void (*how)(qr_promote *promote, uint32_t move))
{
    qr_promote_tier *tier = &promote->tiers[t];
    if (tier->stalled != QR_NIL)
        dissolve(promote, &promote->jobs[tier->stalled], how);
    tier->stalled = QR_NIL;
    qr_count_add(&tier->counters.dropped_blocks, tier->queues[QR_QUEUE_STORE].count);
    for (uint32_t q = 0; q < QR_QUEUE_COUNT; q++)
        while (tier->queues[q].chain.first != QR_NIL)
            how(promote, tier->queues[q].chain.first);
}

/* ---- making jobs ----------------------------------------------------------- */

static qr_promote_job *begin_job(qr_promote *promote, uint32_t *list, quire_tier_op op)
{
    qr_promote_job *job = &promote->jobs[*list];
    *list = job->link.next;
    job->job.op = op;
    job->job.num_ios = 0;
    job->is_late = false;
    job->is_stale = false;
    job->is_out = false;
    job->has_blocks = false;
    return job;
}

static void add_io(qr_promote *promote, qr_promote_job *job, uint32_t move, quire_block block)
{
    const qr_move *m = &promote->moves[move];
    uint32_t i = job->job.num_ios++;
    quire_tier_io *io = &job->job.ios[i];
    bool has_memory = block != QUIRE_NULL_BLOCK && promote->memory != NULL;
    io->key = m->key;
    io->memory = has_memory ? promote->memory + block * promote->block_bytes : NULL;
    io->bytes = block != QUIRE_NULL_BLOCK ? (uint32_t)promote->block_bytes : 0;
    io->crc = m->crc;
    io->status = QUIRE_TIER_PENDING;
    if (promote->tiers[job->tier].loads_unknown)
        io->place = block; /* it has other memory */
    job->moves[i] = move;
    job->blocks[i] = block;
}

/* Whether b is a later block of the prefix that a is of: of the same request and group. */
static bool is_same_prefix(const qr_promote *promote, uint32_t a, uint32_t b)
{
    const qr_move *one = &promote->moves[a];
    const qr_move *other = &promote->moves[b];
    const qr_waiter *w = &promote->waiters[one->first_waiter];
    const qr_waiter *v = &promote->waiters[other->first_waiter];
    return one->key.group == other->key.group && w->record == v->record && w->epoch == v->epoch &&
           w->start < v->start;
}

/* The blocks of one prefix: the tier stops at the first that it has not. */
static qr_promote_job *make_find(qr_promote *promote, uint32_t t)
{
    qr_promote_tier *tier = &promote->tiers[t];
    if (tier->queues[QR_QUEUE_FIND].count == 0 || tier->free_find == QR_NIL)
        return NULL;
    qr_promote_job *job = begin_job(promote, &tier->free_find, QUIRE_TIER_FIND);
    job->job.is_prefix = 1;
    while (job->job.num_ios < QR_LOWER_FIND_IOS &&
           tier->queues[QR_QUEUE_FIND].chain.first != QR_NIL) {
        uint32_t move = tier->queues[QR_QUEUE_FIND].chain.first;
        if (!qr_promote_move_is_wanted(promote, move)) {
            qr_promote_move_end(promote, move, false);
            continue;
        }
        uint32_t n = job->job.num_ios;
        if (n > 0 && !is_same_prefix(promote, job->moves[n - 1], move))
            break;
        qr_promote_queue_remove(promote, move);
        add_io(promote, job, move, QUIRE_NULL_BLOCK);
    }
    if (job->job.num_ios > 0)
        return job;
    give_back_job(promote, job);
    return NULL;
}

/* CPU blocks for at most n loads, into free_list; returns how many. */
static uint32_t take_blocks(qr_promote *promote, const qr_promote_tier *tier, uint32_t n)
{
    uint32_t room = promote->max_loading - tier->num_loading;
    n = n < room ? n : room;
    uint32_t num_free = quire_pool_get_num_free_blocks(promote->pool);
    if (num_free < n && promote->make_room != NULL) {
        promote->make_room(promote->room_user, n);
        num_free = quire_pool_get_num_free_blocks(promote->pool);
    }
    n = n < num_free ? n : num_free;
    if (n == 0 || quire_pool_get_new_blocks(promote->pool, n, promote->free_list) != QUIRE_OK)
        return 0;
    qr_share_withdraw(&promote->share, promote->free_list, n);
    return n;
}

/* What nobody needs any more is not fetched. */
static uint32_t next_wanted(qr_promote *promote, qr_promote_queue *queue)
{
    while (queue->chain.first != QR_NIL && !qr_promote_move_is_wanted(promote, queue->chain.first))
        qr_promote_move_end(promote, queue->chain.first, false);
    return queue->chain.first;
}

/* How many of the queue's first moves one job may have. A tier that finds what it loads gets the
 * blocks of one prefix: it stops at the first that is missing. */
static uint32_t count_for_job(const qr_promote *promote, const qr_promote_tier *tier,
                              const qr_promote_queue *queue)
{
    uint32_t most = queue->count < promote->job_ios ? queue->count : promote->job_ios;
    uint32_t move = queue->chain.first;
    for (uint32_t n = 1; tier->loads_unknown && n < most; n++) {
        uint32_t next = promote->moves[move].link.next;
        if (!qr_promote_move_is_wanted(promote, next) || !is_same_prefix(promote, move, next))
            return n;
        move = next;
    }
    return most;
}

static qr_promote_job *make_load(qr_promote *promote, uint32_t t)
{
    qr_promote_tier *tier = &promote->tiers[t];
    qr_promote_queue *queue = &tier->queues[QR_QUEUE_LOAD];
    if (next_wanted(promote, queue) == QR_NIL)
        queue = &tier->queues[QR_QUEUE_AHEAD];
    if (tier->free_job == QR_NIL || next_wanted(promote, queue) == QR_NIL)
        return NULL;
    uint32_t n = take_blocks(promote, tier, count_for_job(promote, tier, queue));
    if (n == 0)
        return NULL;
    qr_promote_job *job = begin_job(promote, &tier->free_job, QUIRE_TIER_LOAD);
    job->job.is_prefix = tier->loads_unknown;
    while (job->job.num_ios < n) {
        uint32_t move = next_wanted(promote, queue);
        if (move == QR_NIL)
            break;
        qr_promote_queue_remove(promote, move);
        add_io(promote, job, move, promote->free_list[job->job.num_ios]);
    }
    if (job->job.num_ios < n) /* some were not wanted */
        quire_pool_free_blocks(promote->pool, promote->free_list + job->job.num_ios,
                               n - job->job.num_ios);
    count_blocks(promote, job, true);
    return job;
}

/* Whether the CPU block still has what was to be stored. */
static bool has_content(const qr_promote *promote, const qr_move *m)
{
    quire_block_info now;
    quire_tier_key key;
    if (m->content != promote->contents[m->block] ||
        quire_pool_get_blocks(promote->pool, &m->block, 1, &now) != QUIRE_OK ||
        now.hash.data == NULL || now.group_id != m->key.group)
        return false;
    qr_key_make(now.hash, m->key.group, m->key.rank, &key);
    return qr_key_is_equal(&key, &m->key);
}

static qr_promote_job *make_store(qr_promote *promote, uint32_t t)
{
    qr_promote_tier *tier = &promote->tiers[t];
    qr_promote_queue *queue = &tier->queues[QR_QUEUE_STORE];
    if (queue->count == 0 || tier->free_job == QR_NIL || tier->num_stores >= QR_LOWER_STORE_JOBS ||
        (tier->num_stores > 0 && tier->store_bytes_out >= tier->most_store_bytes))
        return NULL;
    uint32_t most = promote->max_storing - tier->num_storing;
    most = most < promote->job_ios ? most : promote->job_ios;
    if (most == 0)
        return NULL;
    qr_promote_job *job = begin_job(promote, &tier->free_job, QUIRE_TIER_STORE);
    job->job.has_crcs = promote->moves[queue->chain.first].has_crc;
    while (queue->chain.first != QR_NIL && job->job.num_ios < most) {
        uint32_t move = queue->chain.first;
        const qr_move *m = &promote->moves[move];
        if (m->has_crc != (job->job.has_crcs != 0))
            break;
        if (!has_content(promote, m)) {
            qr_count_add(&tier->counters.dropped_blocks, 1);
            qr_promote_move_end(promote, move, false); /* the block is another's */
            continue;
        }
        qr_promote_queue_remove(promote, move);
        add_io(promote, job, move, m->block);
    }
    if (job->job.num_ios > 0)
        return job;
    give_back_job(promote, job);
    return NULL;
}

/* ---- giving them to the tier ----------------------------------------------- */

/* Blocks of stores have no user before the tier has them: they can be evicted still. */
static void wait_for_room(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    if (job->job.op != QUIRE_TIER_STORE) {
        tier->stalled = id_of(promote, job);
        return;
    }
    tier->most_store_bytes = tier->bytes_out / 4 * 3;
    for (uint32_t i = job->job.num_ios; i-- > 0;)
        qr_promote_queue_push(promote, job->moves[i], QR_QUEUE_STORE, true);
    give_back_job(promote, job);
}

/* false: the tier takes no more now. */
static bool submit(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    job->job.deadline_ns =
        tier->deadline_ns != 0 ? qr_now_ns(&promote->hooks) + tier->deadline_ns : 0;
    int status = quire_tier_submit(tier->tier, &job->job);
    if (status == QUIRE_FULL && tier->num_on_time > 0) {
        wait_for_room(promote, job);
        return false;
    }
    if (status != QUIRE_OK) { /* its breaker is open, or it is stuck */
        tier->is_stuck = status == QUIRE_FULL;
        dissolve(promote, job, qr_promote_move_fail);
        fail_queues(promote, job->tier, qr_promote_move_fail);
        return false;
    }
    if (job->job.op == QUIRE_TIER_STORE) {
        quire_pool_touch(promote->pool, job->blocks, job->job.num_ios);
        count_blocks(promote, job, true);
    }
    put_out(promote, job);
    return true;
}

bool qr_promote_is_waiting(const qr_promote_tier *tier)
{
    uint32_t count = 0;
    for (uint32_t q = 0; q < QR_QUEUE_COUNT; q++)
        count += tier->queues[q].count;
    return count > 0 || tier->stalled != QR_NIL;
}

void qr_promote_jobs_pump(qr_promote *promote, uint32_t t)
{
    qr_promote_tier *tier = &promote->tiers[t];
    if (tier->stalled != QR_NIL) {
        qr_promote_job *job = &promote->jobs[tier->stalled];
        tier->stalled = QR_NIL;
        if (!submit(promote, job))
            return;
    }
    for (;;) {
        qr_promote_job *job = make_find(promote, t);
        if (job == NULL)
            job = make_load(promote, t);
        bool are_loads_waiting = tier->queues[QR_QUEUE_LOAD].count > 0 && tier->num_on_time > 0;
        if (job == NULL && !are_loads_waiting)
            job = make_store(promote, t);
        if (job == NULL)
            break;
        if (!submit(promote, job))
            return;
    }
    /* With nothing out nothing will change. */
    if (tier->num_on_time == 0 && qr_promote_is_waiting(tier)) {
        tier->is_stuck = tier->num_late > 0;
        fail_queues(promote, t, qr_promote_move_fail);
    }
}

/* ---- what becomes of them -------------------------------------------------- */

/* Keys for the blocks of ios [first, first + n), which are of one group. */
static void publish(qr_promote *promote, const qr_promote_job *job, uint32_t first, uint32_t n)
{
    uint32_t group = job->job.ios[first].key.group;
    size_t hash_len = promote->groups[group].hash_len;
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *hash =
            promote->hash_bytes > QUIRE_TIER_HASH_BYTES
                ? promote->long_hashes + (size_t)job->moves[first + i] * promote->hash_bytes
                : job->job.ios[first + i].key.hash;
        memcpy(promote->hash_scratch + i * hash_len, hash, hash_len);
        promote->contents[job->blocks[first + i]]++;
        qr_promote_block past = {.origin = (uint8_t)(job->tier + 1),
                                 .offered = (uint8_t)(1u << job->tier)};
        qr_promote_set_block(promote, job->blocks[first + i], past);
    }
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = job->blocks + first,
                                      .num_full_blocks = n,
                                      .hashes = promote->hash_scratch,
                                      .hash_len = hash_len,
                                      .num_hashes = n,
                                      .group_id = group,
                                      .block_size = promote->groups[group].block_size};
    quire_pool_cache_full_blocks(promote->pool, &params);
    for (uint32_t i = 0; i < n; i++)
        qr_share_offer(&promote->share, &job->blocks[first + i], &job->job.ios[first + i].crc, 1);
}

static void end_load(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    const quire_tier_io *ios = job->job.ios;
    uint32_t num_ios = job->job.num_ios;
    uint32_t num_done = 0;
    uint32_t num_absent = 0; /* that nobody said would be there */
    for (uint32_t i = 0; i < num_ios;) {
        uint32_t n = 0;
        while (i + n < num_ios && ios[i + n].status == QUIRE_TIER_DONE &&
               ios[i + n].key.group == ios[i].key.group)
            n++;
        if (n > 0)
            publish(promote, job, i, n);
        num_done += n;
        i += n > 0 ? n : 1;
    }
    release_blocks(promote, job);
    for (uint32_t i = 0; i < num_ios; i++)
        if (ios[i].status == QUIRE_TIER_DONE)
            qr_promote_move_end(promote, job->moves[i], false);
        else if (ios[i].status == QUIRE_TIER_CANCELLED && i > 0 && tier->loads_unknown)
            qr_promote_move_skip(promote, job->moves[i]);
        else
            qr_promote_move_fail(promote, job->moves[i]);
    for (uint32_t i = 0; tier->loads_unknown && i < num_ios; i++)
        num_absent += ios[i].status == QUIRE_TIER_MISSING || ios[i].status == QUIRE_TIER_CANCELLED;
    qr_count_add(&tier->counters.promoted_blocks, num_done);
    qr_count_add(&tier->counters.failed_blocks, num_ios - num_done - num_absent);
}

static void end_find(qr_promote *promote, qr_promote_job *job)
{
    for (uint32_t i = 0; i < job->job.num_ios; i++) {
        quire_tier_status status = job->job.ios[i].status;
        if (status == QUIRE_TIER_DONE)
            qr_promote_move_load(promote, job->moves[i]);
        else if (status == QUIRE_TIER_CANCELLED && i > 0)
            qr_promote_move_skip(promote, job->moves[i]);
        else
            qr_promote_move_fail(promote, job->moves[i]);
    }
}

static void end_store(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    uint32_t num_done = 0;
    for (uint32_t i = 0; i < job->job.num_ios; i++) {
        bool is_done = job->job.ios[i].status == QUIRE_TIER_DONE;
        num_done += is_done ? 1 : 0;
        qr_promote_move_end(promote, job->moves[i], !is_done);
    }
    release_blocks(promote, job);
    if (tier->most_store_bytes < UINT64_MAX / 2) /* there may be more room than there was once */
        tier->most_store_bytes += tier->most_store_bytes / 8 + promote->block_bytes;
    qr_count_add(&tier->counters.stored_blocks, num_done);
    qr_count_add(&tier->counters.failed_blocks, job->job.num_ios - num_done);
}

/* Its user goes on; a store is still what it was, only nobody waits for its end. */
static void make_late(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    take_in(promote, job);
    job->is_late = true;
    tier->num_late++;
    if (job->job.op == QUIRE_TIER_STORE)
        return;
    if (job->job.op == QUIRE_TIER_LOAD)
        qr_count_add(&tier->counters.late_blocks, job->job.num_ios);
    if (!job->is_stale)
        fail_moves(promote, job, end_move);
}

/* A store from before a reset may be found when it ends; with the last of them it is all forgotten
 * once more, and until then nobody looks. */
static void end_stale(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    release_blocks(promote, job);
    if (job->job.op == QUIRE_TIER_STORE && --tier->num_stale == 0 && !tier->is_void)
        (void)qr_tier_forget(tier->tier);
}

static void end_job(qr_promote *promote, qr_promote_job *job)
{
    qr_promote_tier *tier = &promote->tiers[job->tier];
    if (!job->is_late && quire_tier_is_late(tier->tier, &job->job))
        make_late(promote, job);
    if (job->is_late)
        tier->num_late--;
    else
        take_in(promote, job);
    job->is_out = false;
    tier->is_stuck = false;
    if (job->is_stale)
        end_stale(promote, job);
    else if (job->job.op == QUIRE_TIER_STORE)
        end_store(promote, job);
    else if (job->is_late)
        release_blocks(promote, job);
    else if (job->job.op == QUIRE_TIER_LOAD)
        end_load(promote, job);
    else
        end_find(promote, job);
    give_back_job(promote, job);
}

void qr_promote_jobs_poll(qr_promote *promote, uint32_t t)
{
    enum { MOST = QR_AT_A_TIME(32, 2) };
    qr_promote_tier *tier = &promote->tiers[t];
    quire_tier_job *jobs[MOST];
    uint32_t n = MOST;
    while (n == MOST && tier->num_on_time + tier->num_late > 0) {
        n = quire_tier_poll(tier->tier, jobs, MOST);
        for (uint32_t i = 0; i < n; i++)
            end_job(promote, (qr_promote_job *)(void *)jobs[i]);
    }
    while (tier->out.first != QR_NIL &&
           quire_tier_is_late(tier->tier, &promote->jobs[tier->out.first].job))
        make_late(promote, &promote->jobs[tier->out.first]);
}

void qr_promote_jobs_drop(qr_promote *promote, uint32_t t)
{
    fail_queues(promote, t, end_move);
    for (uint32_t i = 0; i < QR_LOWER_ALL_JOBS; i++) {
        qr_promote_job *job = &promote->jobs[t * QR_LOWER_ALL_JOBS + i];
        if (!job->is_out)
            continue;
        promote->tiers[t].num_stale += job->job.op == QUIRE_TIER_STORE && !job->is_stale ? 1 : 0;
        job->is_stale = true;
        fail_moves(promote, job, end_move);
    }
}
