/* tier/planner/torture_ranks.c - a planner and the workers of 8 ranks in 8 processes, with
 * everything going wrong at random: tiers and devices of single ranks that fail, are slow, have
 * wrong bytes, and processes that are killed. Requests are aborted and preempted, the host pool is
 * reset.
 *
 *      program [--moves N] [--seed N] [--ranks N] [--same] [--ignore-marks]
 *
 * Every block that a request loads is compared with what was computed for its key, in every rank:
 * no byte may be wrong, no request may wait for ever, and at the end nothing is held.
 * --same: all ranks have the same bytes (MLA), in a directory that they share. --ignore-marks:
 * copies do not wait for compute; then the test must fail. */
#define _GNU_SOURCE /* nftw */
#include "base/unit.h"
#include "rank.h"

#include <ftw.h>
#include <sys/stat.h>
#include <time.h>

enum {
    MAX_RANKS = 64,
    NUM_BLOCKS = 2048,
    NUM_SLOTS = 1500,
    TOKENS = 16,
    MAX_REQUESTS = 48,
    LONGEST = 330, /* blocks: more than a batch of copies has */
    NUM_DOCUMENTS = 12,
    CHUNK = 40, /* blocks that a request computes in a step */
    MOST_WAITS = 20000
};

typedef enum state { NEW = 0, WAITING, LOADING, RUNNING } state;

typedef struct request {
    state state;
    quire_req req;
    uint32_t num_blocks;
    uint32_t num_computed; /* blocks */
    uint32_t num_asked;
    uint32_t num_waits;
    bool has_blocks;
    quire_block blocks[LONGEST];
    unsigned char hashes[LONGEST][RANK_HASH_BYTES];
} request;

typedef struct list {
    rank_block *blocks;
    uint32_t n;
    uint32_t room;
} list;

typedef struct engine {
    uint64_t seed;
    uint64_t num_unique;
    uint32_t num_ranks;
    bool must_be_good;
    rank_config config;
    rank *ranks[MAX_RANKS];
    rank_faults faults[MAX_RANKS];
    uint64_t num_wrong;
    uint64_t num_checked;
    uint64_t last_checked[MAX_RANKS];
    uint64_t last_wrong[MAX_RANKS];
    quire_planner *planner;
    uint64_t step;
    uint32_t users[NUM_BLOCKS];
    uint32_t free_blocks[NUM_BLOCKS];
    uint32_t first_free; /* a ring */
    uint32_t num_free;
    request requests[MAX_REQUESTS];
    list checks;   /* in the next step */
    list computes; /* in this step */
    uint64_t num_kills;
    uint64_t num_resets;
    uint64_t num_loaded;
    uint64_t num_failed;
    uint64_t num_ended;
} engine;

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, quire_refusal());  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint32_t below(engine *e, uint32_t n)
{
    return unit_random_below(&e->seed, n);
}

/* ---- blocks ---------------------------------------------------------------- */

static void add_user(engine *e, quire_block block)
{
    e->users[block]++;
}

static void drop_user(engine *e, quire_block block)
{
    NEED(e->users[block] > 0);
    if (--e->users[block] == 0)
        e->free_blocks[(e->first_free + e->num_free++) % NUM_BLOCKS] = block;
}

static quire_block take_block(engine *e)
{
    quire_block block = e->free_blocks[e->first_free];
    e->first_free = (e->first_free + 1) % NUM_BLOCKS;
    e->num_free--;
    e->users[block] = 1;
    return block;
}

static void free_blocks(engine *e, request *r)
{
    for (uint32_t i = 0; r->has_blocks && i < r->num_blocks; i++)
        drop_user(e, r->blocks[i]);
    r->has_blocks = false;
}

static void add(list *l, const request *r, uint32_t i)
{
    if (l->n == l->room) {
        l->room = l->room == 0 ? 4096 : 2 * l->room;
        l->blocks = realloc(l->blocks, l->room * sizeof *l->blocks);
    }
    l->blocks[l->n].block = r->blocks[i];
    l->blocks[l->n].group = 0;
    memcpy(l->blocks[l->n++].hash, r->hashes[i], RANK_HASH_BYTES);
}

/* ---- requests -------------------------------------------------------------- */

static void make_hash(unsigned char *hash, uint64_t of, uint64_t i)
{
    uint64_t number = of * UINT64_C(1000003) + i;
    uint64_t words[2] = {unit_random(&number), unit_random(&number)};
    memcpy(hash, words, RANK_HASH_BYTES);
}

/* The beginning of a document, and then something new. */
static void begin_request(engine *e, request *r)
{
    uint32_t document = below(e, NUM_DOCUMENTS);
    uint64_t unique = 1000 + e->num_unique++;
    *r = (request){.state = WAITING, .num_blocks = 1 + below(e, below(e, 4) == 0 ? LONGEST : 90)};
    uint32_t branch = below(e, r->num_blocks + 1);
    for (uint32_t i = 0; i < r->num_blocks; i++)
        make_hash(r->hashes[i], i < branch ? document : unique, i);
    NEED(quire_planner_add(e->planner, &r->req) == QUIRE_OK);
}

static quire_planner_request seen(const request *r)
{
    return (quire_planner_request){.req = r->req,
                                   .hashes = r->hashes,
                                   .num_hashes = r->num_blocks,
                                   .num_tokens = r->num_blocks * TOKENS + 1};
}

/* Before blocks are freed. */
static void hold_blocks(engine *e)
{
    const quire_block *held;
    uint32_t num_held;
    NEED(quire_planner_take_held(e->planner, &held, &num_held) == QUIRE_OK);
    for (uint32_t i = 0; i < num_held; i++)
        add_user(e, held[i]);
}

static void end_request(engine *e, request *r)
{
    hold_blocks(e);
    NEED(quire_planner_finished(e->planner, r->req) == QUIRE_OK);
    free_blocks(e, r);
    r->state = NEW;
    e->num_ended++;
}

static bool admit(engine *e, request *r)
{
    quire_planner_request asked = seen(r);
    uint32_t num_external = 0;
    if (below(e, 8) == 0)
        NEED(quire_planner_prefetch(e->planner, &asked, 0) == QUIRE_OK);
    int status = quire_planner_match(e->planner, &asked, 0, &num_external);
    NEED(status == QUIRE_OK || status == QUIRE_RETRY);
    NEED(++r->num_waits < MOST_WAITS);
    if (status == QUIRE_RETRY)
        return true;
    NEED(num_external % TOKENS == 0 && num_external <= r->num_blocks * TOKENS);
    if (e->num_free < r->num_blocks)
        return false;
    for (uint32_t i = 0; i < r->num_blocks; i++)
        r->blocks[i] = take_block(e);
    r->has_blocks = true;
    quire_block_span span = {r->blocks, r->num_blocks};
    NEED(quire_planner_allocated(e->planner, r->req, &span, num_external) == QUIRE_OK);
    r->num_asked = num_external / TOKENS;
    r->num_computed = 0;
    r->num_waits = 0;
    r->state = num_external > 0 ? LOADING : RUNNING;
    return true;
}

static void run_request(engine *e, request *r)
{
    quire_planner_request now = seen(r);
    quire_block_span span = {r->blocks, r->num_blocks};
    now.is_last = r->num_computed == r->num_blocks;
    int status = quire_planner_computed(e->planner, &now, &span, r->num_computed * TOKENS);
    NEED(status == QUIRE_OK || (status == QUIRE_RETRY && now.is_last == 0));
    if (now.is_last != 0) {
        for (uint32_t i = 0; i < r->num_blocks; i++)
            add(&e->checks, r, i);
        end_request(e, r);
        return;
    }
    for (uint32_t n = 0; n < CHUNK && r->num_computed < r->num_blocks; n++)
        add(&e->computes, r, r->num_computed++);
}

static void disturb(engine *e, request *r)
{
    uint32_t what = below(e, 1000);
    if (what < 4) {
        end_request(e, r);
    } else if (what < 10 && r->state == RUNNING) {
        hold_blocks(e);
        NEED(quire_planner_preempted(e->planner, r->req) == QUIRE_OK);
        free_blocks(e, r);
        r->state = WAITING;
    }
}

/* ---- steps ----------------------------------------------------------------- */

static void choose_faults(engine *e)
{
    for (uint32_t i = 0; i < e->num_ranks; i++) {
        bool is_bad = e->step % 64 >= 24 && below(e, 6) == 0;
        e->faults[i] = (rank_faults){.tier_per_mille = is_bad ? below(e, 120) : 0,
                                     .device_per_mille = is_bad ? below(e, 60) : 0,
                                     .copy_delay_us = is_bad ? below(e, 40) : 0};
    }
}

static void start_rank(engine *e, uint32_t i)
{
    e->config.rank = i;
    e->config.seed = e->seed + i;
    e->last_checked[i] = e->last_wrong[i] = 0;
    e->ranks[i] = rank_start(&e->config);
    NEED(e->ranks[i] != NULL);
}

/* Its GPU is empty: whatever was computed is lost, in all ranks. */
static void lose_rank(engine *e, uint32_t i)
{
    NEED(rank_end(e->ranks[i]) == -1); /* killed: any other end is an error */
    start_rank(e, i);
    for (uint32_t k = 0; k < MAX_REQUESTS; k++)
        if (e->requests[k].state != NEW)
            end_request(e, &e->requests[k]);
    e->checks.n = 0;
    e->num_kills++;
}

static void take_answer(engine *e, uint32_t i, const rank_answer *answer)
{
    e->num_checked += answer->num_checked - e->last_checked[i];
    e->num_wrong += answer->num_wrong - e->last_wrong[i];
    e->last_checked[i] = answer->num_checked;
    e->last_wrong[i] = answer->num_wrong;
    if (answer->report.len == 0)
        return;
    int status = quire_planner_report(e->planner, answer->report);
    NEED(status == QUIRE_OK || (status == QUIRE_LOST && e->num_kills > 0));
}

static void talk(engine *e, quire_bytes plan, uint32_t victim)
{
    rank_answer answer;
    bool is_gone[MAX_RANKS] = {false};
    for (uint32_t i = 0; i < e->num_ranks; i++) {
        is_gone[i] = !rank_send(e->ranks[i], &e->faults[i], e->checks.blocks, e->checks.n, plan,
                                e->computes.blocks, e->computes.n);
        if (i == victim)
            rank_kill(e->ranks[i]);
    }
    e->checks.n = e->computes.n = 0;
    for (uint32_t i = 0; i < e->num_ranks; i++) {
        if (!is_gone[i] && rank_receive(e->ranks[i], &answer))
            take_answer(e, i, &answer);
        else
            is_gone[i] = true;
    }
    for (uint32_t i = 0; i < e->num_ranks; i++)
        if (is_gone[i])
            lose_rank(e, i);
}

static request *find(engine *e, quire_req req)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        if (e->requests[i].state != NEW && e->requests[i].req == req)
            return &e->requests[i];
    return NULL;
}

static void take_results(engine *e)
{
    quire_planner_results results;
    NEED(quire_planner_get_results(e->planner, e->step, &results) == QUIRE_OK);
    for (uint32_t i = 0; i < results.num_loaded; i++) {
        request *r = find(e, results.loaded[i]);
        if (r == NULL) /* aborted */
            continue;
        NEED(r->state == LOADING);
        r->state = RUNNING;
        r->num_computed = r->num_asked;
        for (uint32_t k = 0; k < r->num_asked; k++)
            add(&e->checks, r, k);
        e->num_loaded += r->num_asked;
    }
    for (uint32_t i = 0; i < results.num_failed; i++) {
        request *r = find(e, results.failed[i]);
        if (r != NULL)
            r->state = RUNNING;
        e->num_failed++;
    }
    for (uint32_t i = 0; i < results.num_released; i++)
        drop_user(e, results.released[i]);
}

static void make_step(engine *e, bool has_new, uint32_t victim)
{
    quire_planner_out out;
    bool has_room = true;
    e->step++;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &e->requests[i];
        if (r->state != NEW && has_new)
            disturb(e, r); /* before it computes: a step's blocks are not freed in that step */
        if (r->state == NEW && has_new && below(e, 3) == 0)
            begin_request(e, r);
        if (r->state == WAITING && has_room)
            has_room = admit(e, r);
        else if (r->state == RUNNING)
            run_request(e, r);
    }
    NEED(quire_planner_plan(e->planner, e->step, e->computes.n * TOKENS, MAX_REQUESTS, &out) ==
         QUIRE_OK);
    for (uint32_t i = 0; i < out.num_held; i++)
        add_user(e, out.held[i]);
    talk(e, out.plan, victim);
    if (e->config.directory != NULL) /* files take their time, and here nothing is computed */
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    take_results(e);
    if (e->step % 32 == 0)
        NEED(quire_planner_check(e->planner) == QUIRE_OK);
}

static uint64_t count_moves(const engine *e)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    NEED(quire_planner_get_stats(e->planner, &stats) == QUIRE_OK);
    return e->num_ranks * (stats.stored_blocks + stats.loaded_blocks +
                           stats.tiers[0].promoted_blocks + stats.tiers[0].stored_blocks);
}

/* ---- the run --------------------------------------------------------------- */

static void open_engine(engine *e, const char *directory)
{
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = TOKENS,
                                                      .num_kv_heads = 1,
                                                      .head_size = 8,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_planner_config config = QUIRE_PLANNER_CONFIG_INIT;
    quire_planner_tier tier = {.tier = {.label = "faulty", .deadline_ns = UINT64_C(3000000000)}};
    tier.tier.is_persistent = tier.tier.is_shared = directory != NULL;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.num_blocks = NUM_BLOCKS;
    cache.max_model_len = LONGEST * TOKENS + TOKENS;
    cache.hash_block_size = TOKENS;
    cache.digest_bytes = RANK_HASH_BYTES;
    config.cache = &cache;
    config.num_slots = NUM_SLOTS;
    config.block_bytes = RANK_BLOCK_BYTES;
    config.max_requests = 4 * MAX_REQUESTS; /* aborted ones stay until their loads ended */
    config.num_ranks = e->num_ranks;
    config.learns = QUIRE_OFF; /* nothing is computed here: no load would be worth it */
    config.tiers = &tier;
    config.num_tiers = 1;
    NEED(quire_planner_create(&config, &e->planner) == QUIRE_OK);
    e->config = (rank_config){.num_ranks = e->num_ranks,
                              .num_blocks = NUM_BLOCKS,
                              .num_slots = NUM_SLOTS,
                              .ignores_marks = !e->must_be_good,
                              .has_same_bytes = directory != NULL,
                              .directory = directory};
    for (uint32_t i = 0; i < e->num_ranks; i++)
        start_rank(e, i);
    for (quire_block block = 1; block < NUM_BLOCKS; block++)
        e->free_blocks[e->num_free++] = block;
}

/* Without new requests everything ends. */
static void drain(engine *e)
{
    uint32_t num_left = 1;
    for (uint32_t i = 0; num_left > 0 || quire_planner_has_pending(e->planner); i++) {
        NEED(i < MOST_WAITS);
        make_step(e, false, UINT32_MAX);
        num_left = 0;
        for (uint32_t k = 0; k < MAX_REQUESTS; k++)
            num_left += e->requests[k].state != NEW;
    }
    NEED(quire_planner_check(e->planner) == QUIRE_OK);
    NEED(e->num_free == NUM_BLOCKS - 1);
}

static void close_engine(engine *e)
{
    rank_answer answer;
    for (uint32_t i = 0; i < e->num_ranks; i++) {
        rank_faults stop = {.must_stop = 1};
        NEED(rank_send(e->ranks[i], &stop, NULL, 0, (quire_bytes){0}, NULL, 0));
        NEED(rank_receive(e->ranks[i], &answer));
        NEED(rank_end(e->ranks[i]) == 0);
    }
    quire_planner_destroy(e->planner);
    free(e->checks.blocks);
    free(e->computes.blocks);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static void remove_tree(const char *path)
{
    enum { MOST_OPEN = 16 };
    NEED(nftw(path, remove_one, MOST_OPEN, FTW_DEPTH | FTW_PHYS) == 0);
}

static void run(engine *e, uint64_t num_moves)
{
    uint64_t next_kill = 20;
    while (count_moves(e) < num_moves) {
        uint32_t victim = UINT32_MAX;
        choose_faults(e);
        if (e->step >= next_kill) {
            victim = below(e, e->num_ranks);
            next_kill = e->step + 20 + below(e, 200);
        }
        if (below(e, 150) == 0) {
            int status = quire_planner_reset(e->planner);
            NEED(status == QUIRE_OK || status == QUIRE_E_IDENTITY);
            e->num_resets++;
        }
        make_step(e, true, victim);
    }
    memset(e->faults, 0, sizeof e->faults);
    drain(e);
}

int main(int argc, char **argv)
{
    static engine e = {.seed = 1, .num_ranks = 8, .must_be_good = true};
    uint64_t num_moves = 300000; /* enough for kills, and for loads from the tier */
    char shared[] = "/dev/shm/quire-ranks-XXXXXX"; /* memory: a busy disk may take minutes */
    const char *directory = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ignore-marks") == 0)
            e.must_be_good = false;
        else if (strcmp(argv[i], "--same") == 0)
            NEED((directory = mkdtemp(shared)) != NULL);
        else if (i + 1 == argc)
            NEED(!"an option without its value");
        else if (strcmp(argv[i], "--moves") == 0)
            num_moves = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            e.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--ranks") == 0)
            e.num_ranks = (uint32_t)strtoul(argv[++i], NULL, 10);
    }
    NEED(e.num_ranks > 0 && e.num_ranks <= MAX_RANKS);
    printf("seed %llu\n", (unsigned long long)e.seed);
    open_engine(&e, directory);
    run(&e, num_moves);
    uint64_t moves = count_moves(&e);
    quire_transfer_stats stats = QUIRE_TRANSFER_STATS_INIT;
    quire_offload_stats all = QUIRE_OFFLOAD_STATS_INIT;
    NEED(quire_planner_get_transfer_stats(e.planner, &stats) == QUIRE_OK);
    NEED(quire_planner_get_stats(e.planner, &all) == QUIRE_OK);
    make_step(&e, false, UINT32_MAX); /* the last checks */
    close_engine(&e);
    if (directory != NULL)
        remove_tree(directory);
    printf("%llu block moves, %llu steps, %llu requests, %llu blocks loaded (%llu from tiers), "
           "%llu loads failed\n",
           (unsigned long long)moves, (unsigned long long)e.step, (unsigned long long)e.num_ended,
           (unsigned long long)e.num_loaded, (unsigned long long)all.tiers[0].promoted_blocks,
           (unsigned long long)e.num_failed);
    printf("%llu kills, %llu resets, %llu failures of single ranks, %llu restarts seen\n",
           (unsigned long long)e.num_kills, (unsigned long long)e.num_resets,
           (unsigned long long)stats.rank_failures, (unsigned long long)stats.lost_workers);
    printf("tier: %llu stored, %llu promoted, %llu failed, %llu late, %llu skipped tokens, %llu "
           "dropped\n",
           (unsigned long long)all.tiers[0].stored_blocks,
           (unsigned long long)all.tiers[0].promoted_blocks,
           (unsigned long long)all.tiers[0].failed_blocks,
           (unsigned long long)all.tiers[0].late_blocks,
           (unsigned long long)all.tiers[0].skipped_tokens,
           (unsigned long long)all.tiers[0].dropped_blocks);
    printf("%llu blocks compared, %llu wrong\n", (unsigned long long)e.num_checked,
           (unsigned long long)e.num_wrong);
    NEED(e.num_loaded > 0 && e.num_checked > 0);
    NEED(all.tiers[0].promoted_blocks > 0 || directory != NULL);
    return e.num_wrong == 0 ? 0 : 1;
}
