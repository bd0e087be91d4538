/* router.c - two engines tell what their caches hold, and a router sends prompts where they are.
 *
 *      engine 0 ── events ──┐
 *                           ├──► index ──► "the first 3 blocks of this prompt are on engine 1"
 *      engine 1 ── events ──┘
 *
 * All in one process here; over tcp:// the three may be on three machines (then with keys).
 */
#include <quire.h>
#include <quire/events.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16, NUM_ENGINES = 2, MAX_PROMPT = 128, MAX_BLOCKS = MAX_PROMPT / BLOCK_SIZE };
enum { WAIT_MS = 20, MAX_ROUNDS = 500 };

typedef struct engine {
    quire_hasher *hasher;
    quire_sched *sched;
    quire_publisher *publisher;
    quire_subscriber *subscriber; /* the router's, to this engine */
} engine;

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

/* The same seed everywhere: so the same tokens have the same hash in engines and router. */
static quire_hasher *make_hasher(void)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.block_size = BLOCK_SIZE;
    config.seed = (quire_bytes){"fleet", 5};
    quire_hasher *hasher;
    must(quire_hasher_create(&config, NULL, &hasher), "hasher");
    return hasher;
}

static void open_engine(engine *e)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BLOCK_SIZE,
                                               .num_kv_heads = 8,
                                               .head_size = 128,
                                               .dtype = QUIRE_DTYPE_BFLOAT16}};
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    e->hasher = make_hasher();
    cache.num_blocks = 100;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = MAX_PROMPT + 16;
    config.hasher = e->hasher;
    config.monitor = &monitor; /* so that others may look */
    must(quire_sched_create(&config, NULL, &e->sched), "scheduler");

    quire_publisher_config p = QUIRE_PUBLISHER_CONFIG_INIT;
    p.monitor = quire_sched_get_monitor(e->sched);
    p.endpoint = "tcp://127.0.0.1:*"; /* the system chooses a port */
    p.replay_endpoint = "tcp://127.0.0.1:*";
    must(quire_publisher_create(&p, &e->publisher), quire_refusal());

    quire_subscriber_config s = QUIRE_SUBSCRIBER_CONFIG_INIT;
    s.endpoint = quire_publisher_endpoint(e->publisher);
    s.replay_endpoint = quire_publisher_replay_endpoint(e->publisher);
    must(quire_subscriber_create(&s, &e->subscriber), quire_refusal());
}

static void make_prompt(quire_token *prompt, char letter, uint32_t num_same)
{
    for (uint32_t i = 0; i < MAX_PROMPT; i++)
        prompt[i] = (quire_token)(i + (i < num_same ? 0 : 1000u * (unsigned char)letter));
}

/* Computes a prompt and one token. */
static void serve(engine *e, const quire_token *prompt, uint32_t num_tokens)
{
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {"request", 7},
                                   .prompt = prompt,
                                   .num_prompt_tokens = num_tokens,
                                   .max_tokens = 1};
    quire_req req;
    must(quire_sched_add(e->sched, &params, &req), "add");
    while (quire_sched_get_num_unfinished(e->sched) > 0) {
        const quire_step *step;
        const quire_outputs *outputs;
        const quire_token sampled[1] = {7};
        must(quire_sched_schedule(e->sched, &step), "schedule");
        must(quire_sched_update(
                 e->sched, step->step,
                 &(quire_model_output){.size = sizeof(quire_model_output), .sampled = sampled},
                 &outputs),
             "update");
    }
}

/* Takes what the engines publish until the index has num_blocks. A router's loop does not end; this
 * one gives up when they do not come. */
static void listen_all(engine *engines, quire_index *index, uint64_t num_blocks)
{
    for (int round = 0; quire_index_get_stats(index)->num_blocks < num_blocks; round++) {
        must(round < MAX_ROUNDS ? QUIRE_OK : QUIRE_RETRY, "events do not come");
        for (uint32_t w = 0; w < NUM_ENGINES; w++) {
            quire_delivery d = QUIRE_DELIVERY_INIT;
            int status = quire_subscriber_next(engines[w].subscriber, WAIT_MS, &d);
            if (status == QUIRE_RETRY) /* nothing came */
                continue;
            must(status, "events"); /* docs/events.md has what a router does instead */
            if (d.kind == QUIRE_DELIVERY_GAP || d.kind == QUIRE_DELIVERY_RESTART)
                must(quire_index_clear(index, w), "clear");
            for (uint32_t i = 0; i < d.batch.num_events; i++)
                must(quire_index_apply(index, w, quire_wire_get(d.events, i)), "apply");
        }
    }
}

static void route(quire_hasher *hasher, const quire_index *index, const char *name,
                  const quire_token *prompt)
{
    _Alignas(8) unsigned char memory[1024];
    unsigned char digests[MAX_BLOCKS][32];
    quire_wire_hash hashes[MAX_BLOCKS] = {{0}};
    uint32_t found[NUM_ENGINES];
    quire_chain *chain;
    size_t n;
    must(quire_chain_init(hasher, memory, sizeof memory, &chain), "chain");
    must(quire_chain_append(hasher, chain, prompt, MAX_PROMPT, NULL, digests, MAX_BLOCKS, &n),
         "append");
    for (size_t i = 0; i < n; i++)
        hashes[i].number = quire_hash_external((quire_bytes){digests[i], 32});
    must(quire_index_match(index, hashes, (uint32_t)n, 0, (quire_bytes){NULL, 0}, found), "match");
    uint32_t best = found[1] > found[0];
    printf("%s: engine 0 has %u of its %zu blocks, engine 1 has %u: to engine %u\n", name, found[0],
           n, found[1], best);
}

int main(void)
{
    engine engines[NUM_ENGINES];
    quire_token a[MAX_PROMPT], b[MAX_PROMPT], c[MAX_PROMPT];
    for (uint32_t w = 0; w < NUM_ENGINES; w++)
        open_engine(&engines[w]);
    make_prompt(a, 'a', 32); /* all three begin with the same 32 tokens */
    make_prompt(b, 'b', 32);
    make_prompt(c, 'c', 32);
    serve(&engines[0], a, MAX_PROMPT); /* 8 blocks */
    serve(&engines[1], b, 112);        /* 7 */

    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    config.max_workers = NUM_ENGINES;
    quire_index *index;
    must(quire_index_create(&config, &index), "index");
    listen_all(engines, index, 8 + 7);

    quire_hasher *hasher = make_hasher();
    route(hasher, index, "prompt a", a);
    route(hasher, index, "prompt b", b);
    route(hasher, index, "prompt c", c);
    quire_hasher_destroy(hasher);
    quire_index_destroy(index);
    for (uint32_t w = 0; w < NUM_ENGINES; w++) {
        quire_subscriber_destroy(engines[w].subscriber);
        quire_publisher_destroy(engines[w].publisher);
        quire_sched_destroy(engines[w].sched);
        quire_hasher_destroy(engines[w].hasher);
    }
    return 0;
}
