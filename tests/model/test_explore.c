/* model/test_explore.c - every sequence of calls there is, on a pool of a few blocks.
 *
 *      states after 0 calls     after 1          after 2
 *             o ----------------> o -------------> o        from each state every call in scope;
 *              \--> (seen)         \--> o           \-> ..  what is reached and new is expanded
 *                                                           in the next layer
 *
 * Two sequences that lead to the same state (see state.h) go on alike, so it is enough to expand
 * one of them: when no new state appears, all sequences of any length are covered. The real pool
 * lives in a small buffer, and a state is put back by copying the bytes to the same address. The
 * naive one is rebuilt from the state.
 *
 * At every transition answers, events and the whole state are compared; after a call that must not
 * change the pool its memory must be the same byte for byte, and after one that did
 * quire_pool_check must find nothing. References above the scope's limit are compared, but not
 * explored further.
 *
 *      model_explore [--scope small|medium|groups|large]
 */
#include "block/pool.h"
#include "pair.h"
#include "plain.h"
#include "scope.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_POOL_BYTES = 4096 };

/* States that wait to be expanded, each with the real pool's bytes. */
typedef struct layer {
    size_t count;
    size_t capacity;
    unsigned char *items;
} layer;

typedef struct explorer {
    const scope *scope;
    pair both;
    naive_pool fresh; /* what state_to_pool starts from */
    size_t pool_bytes;
    size_t item_bytes;
    state_set seen;
    layer now;
    layer next;
    uint64_t transitions;
    uint64_t answers[32]; /* by status, from -16 on */
    _Alignas(QUIRE_ALIGNMENT) unsigned char memory[MAX_POOL_BYTES];
} explorer;

static bool layer_push(explorer *e, const state *s)
{
    layer *next = &e->next;
    if (next->count == next->capacity) {
        size_t capacity = next->capacity > 0 ? next->capacity * 2 : 1024;
        unsigned char *items = realloc(next->items, capacity * e->item_bytes);
        if (items == NULL)
            return false;
        next->items = items;
        next->capacity = capacity;
    }
    unsigned char *item = next->items + next->count++ * e->item_bytes;
    memcpy(item, s, sizeof *s);
    memcpy(item + sizeof *s, e->memory, e->pool_bytes);
    return true;
}

static bool refs_in_scope(const explorer *e)
{
    for (quire_block b = 1; b < e->both.naive.num_blocks; b++)
        if (e->both.naive.blocks[b].ref_cnt > e->scope->max_ref_cnt)
            return false;
    return true;
}

/* Takes note of the state both pools are in; NULL, or what went wrong. */
static const char *arrive(explorer *e)
{
    if (quire_pool_check(e->both.real) != QUIRE_OK)
        return "quire_pool_check finds the pool corrupt";
    if (!refs_in_scope(e))
        return NULL;
    state s = state_of_pool(&e->both.naive, &e->scope->keys);
    int added = state_set_add(&e->seen, &s);
    if (added == 0)
        return NULL;
    return added > 0 && layer_push(e, &s) ? NULL : "the test itself is out of memory";
}

static void restore(explorer *e, const unsigned char *item)
{
    state s;
    memcpy(&s, item, sizeof s);
    memcpy(e->memory, item + sizeof s, e->pool_bytes);
    memcpy(&e->both.naive, &e->fresh, naive_pool_size(&e->fresh));
    state_to_pool(&s, &e->scope->keys, &e->both.naive);
}

/* The hints of block/queue.h are only ever fetched; nobody can see whether they changed. */
static void hide_hints(quire_pool *pool)
{
    for (uint32_t b = 0; b <= pool->queue.num_blocks; b++)
        pool->queue.blocks[b].ahead = 0;
    memset(pool->queue.recent, 0, sizeof pool->queue.recent);
}

/* Whether the pool is, byte for byte but for hints, what it was when it was saved. */
static bool untouched(explorer *e, const unsigned char *saved)
{
    if (memcmp(e->memory, saved, e->pool_bytes) == 0)
        return true;
    unsigned char now[MAX_POOL_BYTES];
    hide_hints(e->both.real);
    memcpy(now, e->memory, e->pool_bytes);
    memcpy(e->memory, saved, e->pool_bytes);
    hide_hints(e->both.real);
    bool same = memcmp(e->memory, now, e->pool_bytes) == 0;
    memcpy(e->memory, saved, e->pool_bytes);
    return same;
}

static const char *transition(explorer *e, const unsigned char *item, const operation *op)
{
    const char *difference = pair_apply(&e->both, op);
    if (difference == NULL)
        difference = pair_same_state(&e->both);
    if (difference != NULL)
        return difference;
    e->transitions++;
    e->answers[e->both.naive_result.status + 16]++;
    if (e->both.naive_result.status == QUIRE_OK && op_kind_changes(op->kind)) {
        difference = arrive(e);
        if (difference == NULL)
            restore(e, item);
        return difference;
    }
    return untouched(e, item + sizeof(state))
               ? NULL
               : "a call that must not change the pool wrote into it";
}

/* All operations from all states of a layer. */
static bool expand(explorer *e)
{
    for (size_t i = 0; i < e->now.count; i++) {
        const unsigned char *item = e->now.items + i * e->item_bytes;
        restore(e, item);
        for (size_t k = 0; k < e->scope->num_operations; k++) {
            const operation *op = &e->scope->operations[k];
            const char *difference = transition(e, item, op);
            if (difference == NULL)
                continue;
            printf("scope %s, transition %llu\n", e->scope->name,
                   (unsigned long long)e->transitions);
            pair_print(&e->both, op, difference);
            restore(e, item);
            operation nothing = {.kind = OP_FREE_LIST};
            pair_print(&e->both, &nothing, "(the state before it)");
            return false;
        }
    }
    return true;
}

static bool begin(explorer *e, const scope *s, const uint64_t *secret_seed)
{
    quire_pool_config wanted = QUIRE_POOL_CONFIG_INIT;
    wanted.num_blocks = s->num_blocks;
    wanted.hash_bytes = 16;
    quire_pool_config config = pair_init(&e->both, &wanted, secret_seed);
    e->scope = s;
    e->fresh = e->both.naive;
    e->pool_bytes = quire_pool_bytes(&config);
    e->item_bytes = sizeof(state) + e->pool_bytes;
    if (e->pool_bytes == 0 || e->pool_bytes > MAX_POOL_BYTES || !state_set_init(&e->seen))
        return false;
    if (quire_pool_create(&config, &(quire_allocator){.memory = e->memory, .bytes = e->pool_bytes},
                          &e->both.real) != QUIRE_OK)
        return false;
    return pair_same_state(&e->both) == NULL && arrive(e) == NULL;
}

/* Layer by layer; the number of layers, or 0 when something differed. */
static unsigned explore(explorer *e)
{
    unsigned depth = 0;
    for (; e->next.count > 0; depth++) {
        layer done = e->now;
        e->now = e->next;
        e->next = done;
        e->next.count = 0;
        if (!expand(e))
            return 0;
    }
    return depth;
}

static int report(const explorer *e, unsigned depth, double seconds)
{
    for (int i = 0; i < 32; i++)
        if (e->answers[i] > 0)
            printf("%-24s %12llu\n", quire_status_name(i - 16), (unsigned long long)e->answers[i]);
    printf("scope %s: %u blocks, %u hashes, %u groups, ref_cnt <= %u, %zu operations\n",
           e->scope->name, (unsigned)e->scope->num_blocks, (unsigned)e->scope->keys.num_hashes,
           (unsigned)e->scope->keys.num_groups, (unsigned)e->scope->max_ref_cnt,
           e->scope->num_operations);
    printf("%zu states, %llu transitions, depth %u, %.1f s, 0 differences\n", e->seen.used,
           (unsigned long long)e->transitions, depth - 1, seconds);
    if (e->seen.used == e->scope->expected_states && e->transitions >= e->scope->min_transitions)
        return EXIT_SUCCESS;
    printf("EXPECTED: %llu states and at least %llu transitions\n",
           (unsigned long long)e->scope->expected_states,
           (unsigned long long)e->scope->min_transitions);
    return EXIT_FAILURE;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The whole scope once, with one secret. */
static int run(const scope *s, uint64_t secret_seed)
{
    static explorer e;
    memset(&e, 0, sizeof e);
    int result = EXIT_FAILURE;
    if (begin(&e, s, &secret_seed)) {
        double start = seconds_now();
        unsigned depth = explore(&e);
        if (depth > 0)
            result = report(&e, depth, seconds_now() - start);
    } else {
        printf("cannot begin: a new pool is not what it should be, or there is no memory\n");
    }
    quire_pool_destroy(e.both.real);
    state_set_destroy(&e.seen);
    free(e.now.items);
    free(e.next.items);
    return result;
}

int main(int argc, char **argv)
{
#if defined(MODEL_SLOW)
    const char *name = "small";
#else
    const char *name = "medium";
#endif
    if (argc == 3 && strcmp(argv[1], "--scope") == 0)
        name = argv[2];
    scope s;
    if (!scope_init(&s, name)) {
        printf("no such scope: %s\n", name);
        return EXIT_FAILURE;
    }
    int result = EXIT_SUCCESS;
    for (uint64_t secret = 1; secret <= s.num_secrets && result == EXIT_SUCCESS; secret++)
        result = run(&s, secret);
    scope_destroy(&s);
    return result;
}
