/* model/test_noalloc.c - after start, nothing allocates.
 *
 *      start: create hasher, pool, table, cache, scheduler counted, and known to be above 0
 *      ---------------------------------------- the counter is set to 0
 *      a million calls on the pool, with hits, evictions and full pools; hashes of every request;
 *      rows and slots of the table; every call of the cache, with forks and copies; steps of
 *      the scheduler, with preemption and eviction
 *                                               counted: 0
 *      ---------------------------------------- one malloc on purpose
 *                                               counted: 1, so the counter does count
 *
 * The calls of cache and scheduler run once more in a process that the kernel ends at the first
 * system call other than read, write and exit: neither allocation nor lock nor clock goes there.
 *
 *      program [--steps N]      steps of the scheduler, sync and async together
 *
 * The program brings its own malloc and its relatives, over a fixed piece of memory; a call of any
 * of them, from the library or from what the library uses, is seen. Sanitizers bring theirs, so the
 * test is skipped there.
 */
#include "plain.h"

#include <stdio.h>

#ifdef MODEL_SANITIZED

int main(void)
{
    printf("skipped: the allocator is the sanitizer's\n");
    return 77;
}

#else

#include "noalloc_cache.h"
#include "noalloc_sched.h"

#include <quire/pool.h>
#include <quire/table.h>

#include <errno.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the allocator that counts ------------------------------------------ */

enum { HEAP_BYTES = 64 << 20, HEADER_BYTES = 16 };

static unsigned char heap[HEAP_BYTES];
static size_t heap_used;
static unsigned long num_allocations;
static unsigned long num_frees;

/* Never gives back: there is enough for one run of this program. The size stands in front. */
static void *take(size_t bytes, size_t alignment)
{
    num_allocations++;
    size_t align = alignment < HEADER_BYTES ? HEADER_BYTES : alignment;
    uintptr_t base = (uintptr_t)heap;
    size_t at = (size_t)((base + heap_used + HEADER_BYTES + align - 1) / align * align - base);
    if (at > HEAP_BYTES || bytes > HEAP_BYTES - at)
        return NULL;
    heap_used = at + bytes;
    memcpy(heap + at - HEADER_BYTES, &bytes, sizeof bytes);
    return heap + at;
}

void *malloc(size_t bytes)
{
    return take(bytes, HEADER_BYTES);
}

void *calloc(size_t count, size_t bytes)
{
    if (bytes != 0 && count > HEAP_BYTES / bytes)
        return NULL;
    return take(count * bytes, HEADER_BYTES); /* fresh static memory is zero */
}

void *realloc(void *memory, size_t bytes)
{
    size_t old = 0;
    if (memory != NULL)
        memcpy(&old, (unsigned char *)memory - HEADER_BYTES, sizeof old);
    void *moved = take(bytes, HEADER_BYTES);
    if (moved != NULL && old > 0)
        memcpy(moved, memory, old < bytes ? old : bytes);
    return moved;
}

void free(void *memory)
{
    num_frees += memory != NULL;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return take(bytes, alignment);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *memory = take(bytes, alignment);
    if (memory == NULL)
        return ENOMEM;
    *out = memory;
    return 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    num_allocations++;
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

/* ---- an engine without a model ------------------------------------------ */

enum {
    NUM_BLOCKS = 200,
    BLOCK_SIZE = 16,
    NUM_ROWS = 48,
    MAX_BLOCKS = 12, /* of a request */
    MAX_TOKENS = MAX_BLOCKS * BLOCK_SIZE,
    NUM_PROMPTS = 40, /* beginnings that requests share */
    POOL_CALLS = 1000000
};

typedef struct request {
    uint32_t num_blocks;
    quire_block blocks[MAX_BLOCKS];
} request;

typedef struct engine {
    quire_hasher *hasher;
    quire_pool *pool;
    quire_table *table;
    size_t digest_bytes;
    uint64_t chain_memory[256];
    request rows[NUM_ROWS];
    uint64_t random;
    uint64_t pool_calls;
    uint64_t hits;
    uint64_t evictions;
    uint64_t waits; /* the pool had too few blocks */
    uint64_t failures;
} engine;

static uint32_t below(engine *e, uint32_t limit)
{
    e->random = e->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((e->random >> 32) * limit) >> 32);
}

static void on_event(void *user, const quire_event *event)
{
    ((engine *)user)->evictions += event->kind == QUIRE_EVENT_REMOVED;
}

static void must(engine *e, int status)
{
    e->failures += status != QUIRE_OK;
}

static void finish(engine *e, request *r)
{
    quire_block reversed[MAX_BLOCKS];
    for (uint32_t i = 0; i < r->num_blocks; i++)
        reversed[i] = r->blocks[r->num_blocks - 1 - i];
    must(e, quire_pool_free_blocks(e->pool, reversed, r->num_blocks));
    e->pool_calls++;
    r->num_blocks = 0;
}

/* Hashes all but the last tokens in two appends, as a prompt and its first outputs. */
static uint32_t hash_prompt(engine *e, uint32_t num_tokens, unsigned char *digests)
{
    quire_token tokens[MAX_TOKENS];
    quire_chain *chain = NULL;
    size_t first = 0;
    size_t second = 0;
    uint32_t prompt = below(e, NUM_PROMPTS);
    uint32_t split = below(e, num_tokens);
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .lora_name = {prompt % 2 ? "adapter" : NULL, prompt % 2 ? 7 : 0}};
    for (uint32_t t = 0; t < num_tokens; t++)
        tokens[t] = (quire_token)(prompt * 1000 + t);
    must(e, quire_chain_init(e->hasher, e->chain_memory, sizeof e->chain_memory, &chain));
    must(e,
         quire_chain_append(e->hasher, chain, tokens, split, &extra, digests, MAX_BLOCKS, &first));
    must(e, quire_chain_append(e->hasher, chain, tokens + split, num_tokens - split, &extra,
                               digests + first * e->digest_bytes, MAX_BLOCKS - first, &second));
    return (uint32_t)(first + second);
}

static bool get_blocks(engine *e, request *r, const unsigned char *digests, uint32_t full)
{
    const uint32_t group = 0;
    uint32_t wanted = r->num_blocks;
    uint32_t hit = 0;
    must(e, quire_pool_get_cached_prefix(e->pool, digests, e->digest_bytes, full, &group, 1,
                                         r->blocks, &hit));
    must(e, quire_pool_touch(e->pool, r->blocks, hit));
    int status = quire_pool_get_new_blocks(e->pool, wanted - hit, r->blocks + hit);
    e->pool_calls += 3;
    e->hits += hit;
    if (status == QUIRE_NO_SPACE) {
        e->waits++;
        r->num_blocks = hit;
        finish(e, r);
        return false;
    }
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = r->blocks,
                                      .num_cached_blocks = hit,
                                      .num_full_blocks = full,
                                      .hashes = digests,
                                      .hash_len = e->digest_bytes,
                                      .num_hashes = full,
                                      .block_size = BLOCK_SIZE};
    must(e, status);
    must(e, quire_pool_cache_full_blocks(e->pool, &params));
    e->pool_calls++;
    return true;
}

static void fill_row(engine *e, uint32_t row, const request *r, uint32_t num_tokens)
{
    int64_t positions[MAX_TOKENS];
    int32_t query_start_loc[NUM_ROWS + 1] = {0};
    for (uint32_t t = 0; t < num_tokens; t++)
        positions[t] = t;
    for (uint32_t i = row + 1; i <= NUM_ROWS; i++)
        query_start_loc[i] = (int32_t)num_tokens;
    must(e, quire_table_add_row(e->table, row, r->blocks, r->num_blocks));
    must(e, quire_table_compute_slot_mapping(e->table, NUM_ROWS, query_start_loc, positions,
                                             num_tokens));
}

/* What is called seldom must not allocate either. */
static void seldom(engine *e)
{
    char drawing[NUM_BLOCKS + 1];
    quire_block_info info;
    quire_block victim = 1 + below(e, NUM_BLOCKS - 1);
    must(e, quire_pool_evict_blocks(e->pool, &victim, 1));
    must(e, quire_pool_get_block(e->pool, victim, &info));
    must(e, quire_pool_draw(e->pool, 0, NUM_BLOCKS, drawing));
    must(e, quire_pool_check(e->pool));
    must(e, quire_table_swap_row(e->table, 0, 1));
    must(e, quire_table_swap_row(e->table, 0, 1));
    e->pool_calls += 4;
    if (below(e, 4) > 0)
        return;
    for (uint32_t row = 0; row < NUM_ROWS; row++)
        finish(e, &e->rows[row]);
    must(e, quire_pool_reset_prefix_cache(e->pool));
    e->pool_calls++;
}

static void step(engine *e)
{
    unsigned char digests[MAX_BLOCKS * QUIRE_MAX_DIGEST_BYTES];
    uint32_t row = below(e, NUM_ROWS);
    request *r = &e->rows[row];
    finish(e, r);
    uint32_t num_tokens = 1 + below(e, MAX_TOKENS);
    uint32_t full = hash_prompt(e, num_tokens, digests);
    r->num_blocks = (num_tokens + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (get_blocks(e, r, digests, full))
        fill_row(e, row, r, num_tokens);
    if (below(e, 500) == 0)
        seldom(e);
}

/* ---- the test ----------------------------------------------------------- */

static void start(engine *e, quire_hash_algo algo)
{
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.algo = algo;
    hasher.block_size = BLOCK_SIZE;
    quire_pool_config pool = QUIRE_POOL_CONFIG_INIT;
    pool.num_blocks = NUM_BLOCKS;
    pool.on_event = on_event;
    pool.event_user = e;
    quire_table_config table = QUIRE_TABLE_CONFIG_INIT;
    table.max_num_reqs = NUM_ROWS;
    table.max_num_blocks_per_req = MAX_BLOCKS;
    table.max_num_batched_tokens = MAX_TOKENS;
    table.block_size = BLOCK_SIZE;
    memset(e, 0, sizeof *e);
    e->random = (uint64_t)algo + 1;
    e->digest_bytes = quire_hash_digest_bytes(algo);
    must(e, quire_hasher_create(&hasher, NULL, &e->hasher));
    must(e, quire_pool_create(&pool, NULL, &e->pool));
    must(e, quire_table_create(&table, NULL, &e->table));
}

/* One algorithm's share of the calls; false when something allocated or nothing happened. */
static bool run(quire_hash_algo algo, uint64_t pool_calls)
{
    static engine e;
    unsigned long before = num_allocations;
    start(&e, algo);
    unsigned long at_start = num_allocations - before;
    if (e.failures > 0 || at_start == 0)
        return false;
    num_allocations = 0;
    num_frees = 0;
    while (e.pool_calls < pool_calls)
        step(&e);
    unsigned long allocations = num_allocations;
    unsigned long frees = num_frees;
    printf("%-12s %8llu pool calls, %llu hits, %llu evictions, %llu waits, %llu failures: "
           "%lu allocations, %lu frees (%lu at start)\n",
           quire_hash_algo_name(algo), (unsigned long long)e.pool_calls, (unsigned long long)e.hits,
           (unsigned long long)e.evictions, (unsigned long long)e.waits,
           (unsigned long long)e.failures, allocations, frees, at_start);
    quire_table_destroy(e.table);
    quire_pool_destroy(e.pool);
    quire_hasher_destroy(e.hasher);
    return allocations == 0 && frees == 0 && e.failures == 0 && e.hits > 0 && e.evictions > 0 &&
           e.waits > 0;
}

/* ---- the cache ---------------------------------------------------------- */

#if defined(MODEL_SLOW)
enum { CACHE_CALLS = 60000, SEALED_CALLS = 20000, STEPS = 10000 };
#else
enum { CACHE_CALLS = 600000, SEALED_CALLS = 200000, STEPS = 100000 };
#endif

static bool run_cache(void)
{
    static noalloc_cache c;
    unsigned long before = num_allocations;
    if (!noalloc_cache_start(&c, 1))
        return false;
    unsigned long at_start = num_allocations - before;
    num_allocations = 0;
    num_frees = 0;
    noalloc_cache_run(&c, CACHE_CALLS);
    unsigned long allocations = num_allocations;
    unsigned long frees = num_frees;
    noalloc_cache_print(&c);
    printf("cache        %lu allocations, %lu frees (%lu at start)\n", allocations, frees,
           at_start);
    bool ok = noalloc_cache_did_all(&c);
    noalloc_cache_end(&c);
    return ok && allocations == 0 && frees == 0 && at_start > 0;
}

/* 77 where the kernel, or what stands in for it, cannot seal a process. */
static void run_sealed(noalloc_cache *c)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        syscall(SYS_exit, 77);
    noalloc_cache_run(c, SEALED_CALLS);
    syscall(SYS_exit, c->failures == 0 ? 0 : 1);
}

static bool run_cache_sealed(void)
{
    static noalloc_cache c;
    int status = 0;
    if (!noalloc_cache_start(&c, 2))
        return false;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run_sealed(&c);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    noalloc_cache_end(&c);
    bool is_skipped = WIFEXITED(status) && WEXITSTATUS(status) == 77;
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("cache        %d calls without system calls: %s\n", SEALED_CALLS,
           is_skipped ? "not tried, processes cannot be sealed here"
           : ok       ? "yes"
                      : "NO");
    return ok || is_skipped;
}

/* ---- the scheduler ------------------------------------------------------ */

static bool run_sched(bool is_async, uint64_t steps)
{
    static noalloc_sched e;
    unsigned long before = num_allocations;
    if (!noalloc_sched_start(&e, 3 + is_async, is_async))
        return false;
    unsigned long at_start = num_allocations - before;
    num_allocations = 0;
    num_frees = 0;
    noalloc_sched_run(&e, steps);
    unsigned long allocations = num_allocations;
    unsigned long frees = num_frees;
    noalloc_sched_print(&e);
    printf("sched        %lu allocations, %lu frees (%lu at start)\n", allocations, frees,
           at_start);
    bool ok = noalloc_sched_did_all(&e);
    noalloc_sched_end(&e);
    return ok && allocations == 0 && frees == 0 && at_start > 0;
}

static void run_sched_in_seal(noalloc_sched *e)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        syscall(SYS_exit, 77);
    noalloc_sched_run(e, STEPS / 10);
    syscall(SYS_exit, e->failures == 0 ? 0 : 1);
}

static bool run_sched_sealed(bool is_async)
{
    static noalloc_sched e;
    int status = 0;
    if (!noalloc_sched_start(&e, 5 + is_async, is_async))
        return false;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run_sched_in_seal(&e);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    noalloc_sched_end(&e);
    bool is_skipped = WIFEXITED(status) && WEXITSTATUS(status) == 77;
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("sched        %d steps without system calls: %s\n", STEPS / 10,
           is_skipped ? "not tried, processes cannot be sealed here"
           : ok       ? "yes"
                      : "NO");
    return ok || is_skipped;
}

/* Through a pointer that the compiler cannot see through, or it would leave the call out. */
static bool counter_counts(void)
{
    void *(*volatile allocate)(size_t) = malloc;
    void (*volatile release)(void *) = free;
    num_allocations = 0;
    num_frees = 0;
    release(allocate(1));
    unsigned long allocations = num_allocations; /* read now: printf may allocate its buffer */
    unsigned long frees = num_frees;
    printf("one malloc on purpose: %lu allocations, %lu frees\n", allocations, frees);
    return allocations == 1 && frees == 1;
}

int main(int argc, char **argv)
{
    const uint64_t num_algos = QUIRE_HASH_QUIRE128 + 1;
    bool has_steps = argc == 3 && strcmp(argv[1], "--steps") == 0;
    uint64_t steps = has_steps ? strtoull(argv[2], NULL, 10) : STEPS;
    bool ok = counter_counts();
    for (uint64_t algo = 0; algo < num_algos; algo++)
        ok = run((quire_hash_algo)algo, POOL_CALLS / num_algos + 1) && ok;
    ok = run_cache() && ok;
    ok = run_sched(false, steps / 2) && ok;
    ok = run_sched(true, steps / 2) && ok;
    ok = counter_counts() && ok;
    ok = run_cache_sealed() && ok;
    ok = run_sched_sealed(false) && run_sched_sealed(true) && ok;
    printf("%s\n", ok ? "0 allocations after start" : "FAILED");
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
