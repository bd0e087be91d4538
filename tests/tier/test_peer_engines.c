/* tier/test_peer_engines.c - engines that share host memory: what one has computed, another loads
 * through its lower tiers; what the CPU pool gives to other blocks, resets or renames is not
 * offered any more. The "model" knows what belongs into each block, and looks before it uses
 * one. */
#include "base/unit.h"

#include <quire.h>
#include <quire/offload.h>
#include <quire/tier_peer.h>

#include <time.h>

#define SECRET "known to all engines of the test"

enum {
    BLOCK_SIZE = 16,
    BLOCK_BYTES = 4096,
    GPU_BLOCKS = 25,
    NUM_PROMPTS = 6,
    PROMPT_BLOCKS = 10,
    PROMPT = PROMPT_BLOCKS * BLOCK_SIZE + 1
};

typedef struct engine {
    /* before open */
    uint32_t num_cpu;
    quire_offload_mode mode;
    const struct engine *source; /* whose host memory it loads from; NULL: none */
    bool has_device;
    uint32_t event_keys; /* of the peer tier: events are told */
    quire_monitor_config monitor;
    quire_hasher *hasher;
    quire_sched *sched;
    quire_offload *offload;
    quire_device device;
    quire_peer_server *server;
    quire_tier *peer;
    unsigned char *blocks;
    unsigned char *slots;
    uint32_t num_local;
    uint32_t num_wrong;
    uint64_t least_offered; /* after each part of a step */
} engine;

static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {1};
static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                  .block_size = BLOCK_SIZE,
                                                  .num_kv_heads = 1,
                                                  .head_size = 64,
                                                  .dtype = QUIRE_DTYPE_FLOAT16}};

/* ---- opening --------------------------------------------------------------- */

static void open_server(engine *e)
{
    char message[256] = "";
    quire_peer_server_config server = QUIRE_PEER_SERVER_CONFIG_INIT;
    server.address = "127.0.0.1:0";
    server.fingerprint = fingerprint;
    server.secret = SECRET;
    server.max_blocks = e->num_cpu;
    server.max_block_bytes = BLOCK_BYTES;
    assert_int_equal(quire_peer_server_open(&server, &e->server, message, sizeof message),
                     QUIRE_OK);
}

static void open_peer(engine *e)
{
    char message[256] = "";
    char address[32];
    quire_tier_peer_config peer = QUIRE_TIER_PEER_CONFIG_INIT;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u",
                   quire_peer_server_port(e->source->server));
    peer.server = address;
    peer.fingerprint = fingerprint;
    peer.secret = SECRET;
    peer.wait_ns = UINT64_C(10000000000);
    peer.event_keys = e->event_keys;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.breaker_strikes = 1000000; /* a new identity is tried at once */
    assert_int_equal(
        quire_tier_peer_open(&peer, &common, NULL, &e->peer, NULL, message, sizeof message),
        QUIRE_OK);
}

static void open_device(engine *e)
{
    char message[256] = "";
    e->blocks = calloc(GPU_BLOCKS, BLOCK_BYTES);
    e->slots = aligned_alloc(4096, (size_t)e->num_cpu * BLOCK_BYTES);
    quire_device_host_config device = QUIRE_DEVICE_HOST_CONFIG_INIT;
    device.blocks = e->blocks;
    device.num_blocks = GPU_BLOCKS;
    device.slots = e->slots;
    device.num_slots = e->num_cpu;
    device.block_bytes = BLOCK_BYTES;
    assert_int_equal(quire_device_host_open(&device, NULL, &e->device, message, sizeof message),
                     QUIRE_OK);
}

static void set_config(engine *e, quire_sched_config *config)
{
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hashing, NULL, &e->hasher), QUIRE_OK);
    config->hasher = e->hasher;
    config->cache.num_blocks = GPU_BLOCKS;
    config->cache.groups = &group;
    config->cache.num_groups = 1;
    config->cache.max_model_len = PROMPT + 15;
    config->max_num_seqs = 2;
}

static void open_engine(engine *e)
{
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    set_config(e, &config);
    e->monitor = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    config.monitor = e->event_keys > 0 ? &e->monitor : NULL;
    open_device(e);
    open_server(e);
    if (e->source != NULL)
        open_peer(e);
    quire_offload_config offload = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload_tier tiers[] = {{.tier = e->peer}};
    offload.sched = &config;
    offload.num_cpu_blocks = e->num_cpu;
    offload.mode = e->mode;
    offload.device = &e->device;
    offload.memory = e->slots;
    offload.block_bytes = BLOCK_BYTES;
    offload.peer_server = e->server;
    offload.tiers = tiers;
    offload.num_tiers = e->peer != NULL ? 1 : 0;
    offload.learns = QUIRE_OFF; /* it loads whatever there is */
    offload.events = e->event_keys > 0 ? QUIRE_ON : QUIRE_OFF;
    assert_int_equal(quire_offload_create(&offload, NULL, &e->offload), QUIRE_OK);
    config.connector = quire_offload_connector(e->offload);
    assert_int_equal(quire_sched_create(&config, NULL, &e->sched), QUIRE_OK);
    assert_int_equal(quire_offload_bind(e->offload, e->sched), QUIRE_OK);
}

static void close_engine(engine *e)
{
    assert_int_equal(e->num_wrong, 0);
    assert_int_equal(quire_tier_close(e->peer), QUIRE_OK);
    quire_device_close(&e->device);
    quire_sched_destroy(e->sched);
    assert_int_equal(quire_offload_destroy(e->offload), QUIRE_OK);
    quire_peer_server_stats stats;
    assert_int_equal(quire_peer_server_get_stats(e->server, &stats), QUIRE_OK);
    assert_int_equal(stats.offered, 0); /* with the offload all offers end */
    assert_int_equal(quire_peer_server_close(e->server), QUIRE_OK);
    quire_hasher_destroy(e->hasher);
    free(e->blocks);
    free(e->slots);
}

/* ---- the model ------------------------------------------------------------- */

/* What the model would compute for a block of a prompt. */
static uint64_t content_of(uint32_t prompt, uint32_t block)
{
    return prompt * UINT64_C(1000003) + block * UINT64_C(7919) + 1;
}

static void compute(engine *e, const quire_step *step)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t prompt = (uint32_t)(uintptr_t)quire_sched_user(e->sched, step->reqs[i]);
        uint32_t known = step->num_computed_tokens[i] / BLOCK_SIZE;
        uint32_t end = (step->num_computed_tokens[i] + step->num_tokens[i]) / BLOCK_SIZE;
        quire_block_span span;
        quire_sched_get_blocks(e->sched, step->reqs[i], &span);
        for (uint32_t b = 0; b < end && b < PROMPT_BLOCKS; b++) {
            unsigned char *at = e->blocks + (size_t)span.ids[b] * BLOCK_BYTES;
            uint64_t right = content_of(prompt, b);
            if (b < known)
                e->num_wrong += memcmp(at + 512, &right, sizeof right) != 0;
            else
                memcpy(at + 512, &right, sizeof right);
        }
    }
}

static void note_offered(engine *e)
{
    quire_peer_server_stats stats;
    assert_int_equal(quire_peer_server_get_stats(e->server, &stats), QUIRE_OK);
    if (stats.offered < e->least_offered)
        e->least_offered = stats.offered;
}

static void make_step(engine *e)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[2] = {7, 7};
    quire_model_output output = {.sampled = sampled};
    assert_int_equal(quire_sched_schedule(e->sched, &step), QUIRE_OK);
    note_offered(e);
    compute(e, step);
    assert_int_equal(quire_offload_poll(e->offload, step->step, &output), QUIRE_OK);
    assert_int_equal(quire_sched_update(e->sched, step->step, &output, &outputs), QUIRE_OK);
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        e->num_local += outputs->outputs[i].num_local_cached;
    note_offered(e);
}

static void run_prompt(engine *e, uint32_t p)
{
    quire_token prompt[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = (quire_token)(p * 1000 + i);
    quire_req req;
    quire_request_params params = {.id = {&p, sizeof p},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PROMPT,
                                   .max_tokens = 1,
                                   .user = (void *)(uintptr_t)p};
    assert_int_equal(quire_sched_add(e->sched, &params, &req), QUIRE_OK);
    while (quire_sched_num_unfinished(e->sched) > 0 || quire_offload_has_pending(e->offload))
        make_step(e);
    assert_int_equal(quire_offload_check(e->offload), QUIRE_OK);
}

static void run_prompts(engine *e)
{
    for (uint32_t p = 0; p < NUM_PROMPTS; p++)
        run_prompt(e, p);
}

static quire_offload_stats stats_of(const engine *e)
{
    quire_offload_stats stats;
    assert_int_equal(quire_offload_get_stats(e->offload, &stats), QUIRE_OK);
    return stats;
}

static quire_peer_server_stats served_by(const engine *e)
{
    quire_peer_server_stats stats;
    assert_int_equal(quire_peer_server_get_stats(e->server, &stats), QUIRE_OK);
    return stats;
}

/* ---- tests ------------------------------------------------------------------- */

/* B computes nothing of what A has; C gets it from B, which loaded it. Nobody stores to a peer. */
static void a_prefix_comes_from_another_engines_host_memory(void **state)
{
    (void)state;
    engine a = {.num_cpu = 101};
    engine b = {.num_cpu = 101, .source = &a};
    engine c = {.num_cpu = 101, .source = &b};
    open_engine(&a);
    run_prompts(&a);
    assert_int_equal(served_by(&a).offered, NUM_PROMPTS * PROMPT_BLOCKS);
    open_engine(&b);
    run_prompts(&b);
    quire_offload_stats stats = stats_of(&b);
    assert_int_equal(stats.tiers[0].hit_tokens, NUM_PROMPTS * PROMPT_BLOCKS * BLOCK_SIZE);
    assert_int_equal(stats.tiers[0].promoted_blocks, NUM_PROMPTS * PROMPT_BLOCKS);
    assert_int_equal(stats.tiers[0].stored_blocks + stats.tiers[0].failed_blocks +
                         stats.tiers[0].dropped_blocks + stats.tiers[0].not_admitted,
                     0);
    assert_int_equal(served_by(&a).blocks_sent, NUM_PROMPTS * PROMPT_BLOCKS);
    assert_int_equal(served_by(&b).offered, NUM_PROMPTS * PROMPT_BLOCKS);
    open_engine(&c);
    run_prompts(&c);
    assert_int_equal(stats_of(&c).tiers[0].hit_tokens, NUM_PROMPTS * PROMPT_BLOCKS * BLOCK_SIZE);
    close_engine(&c);
    close_engine(&b);
    close_engine(&a);
}

/* Host memory for two prompts: the blocks of the first are withdrawn before the third is written
 * there, by stores (A) and by loads (B, which has nothing to store). */
static void blocks_are_withdrawn_before_their_memory_is_written(void **state)
{
    (void)state;
    engine large = {.num_cpu = 101};
    engine a = {.num_cpu = 2 * PROMPT_BLOCKS + 1};
    engine b = {.num_cpu = 2 * PROMPT_BLOCKS + 1, .source = &large};
    open_engine(&large);
    run_prompts(&large);
    open_engine(&a);
    open_engine(&b);
    engine *const both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        run_prompt(both[i], 0);
        run_prompt(both[i], 1);
        assert_int_equal(served_by(both[i]).offered, 2 * PROMPT_BLOCKS);
        both[i]->least_offered = UINT64_MAX;
        run_prompt(both[i], 2);
        assert_true(both[i]->least_offered < 2 * PROMPT_BLOCKS);
        assert_int_equal(served_by(both[i]).offered, 2 * PROMPT_BLOCKS);
    }
    assert_int_equal(stats_of(&b).tiers[0].promoted_blocks, 3 * PROMPT_BLOCKS);
    assert_int_equal(stats_of(&b).stored_blocks, 0);
    close_engine(&b);
    close_engine(&a);
    close_engine(&large);
}

/* A's host memory has room for two prompts, and goes on to others while B loads. */
static void evicted_blocks_are_not_offered(void **state)
{
    for (int mode = 0; mode < 2; mode++) {
        (void)state;
        engine a = {.num_cpu = 22, .mode = mode == 0 ? QUIRE_OFFLOAD_EAGER : QUIRE_OFFLOAD_LAZY};
        engine b = {.num_cpu = 22, .source = &a, .mode = a.mode};
        open_engine(&a);
        open_engine(&b);
        for (uint32_t round = 0; round < 40; round++) {
            run_prompt(&a, round * 7 % NUM_PROMPTS);
            run_prompt(&b, round * 5 % NUM_PROMPTS);
            assert_true(served_by(&a).offered <= a.num_cpu - 1);
        }
        assert_true(served_by(&a).blocks_sent > 0);
        assert_true(stats_of(&b).tiers[0].hit_tokens > 0);
        close_engine(&b);
        close_engine(&a);
    }
}

/* ---- events of a peer -------------------------------------------------------- */

typedef struct told {
    uint32_t num_stored;
    uint32_t num_removed;
    uint8_t is_held[NUM_PROMPTS * PROMPT_BLOCKS + 1]; /* by block */
} told;

static void take_told(quire_reader *reader, told *t)
{
    quire_feed_event e;
    while (quire_reader_next(reader, &e) == QUIRE_OK) {
        if (e.kind > QUIRE_FEED_REMOVED || strcmp(e.medium, "PEER") != 0)
            continue;
        assert_int_equal(e.num_blocks, 1);
        assert_true(e.blocks[0] < sizeof t->is_held);
        bool is_stored = e.kind == QUIRE_FEED_STORED;
        assert_int_equal(t->is_held[e.blocks[0]], !is_stored); /* in this order for each block */
        t->is_held[e.blocks[0]] = is_stored;
        *(is_stored ? &t->num_stored : &t->num_removed) += 1;
    }
}

static quire_usage peer_usage(const engine *e)
{
    quire_tier_stats stats;
    assert_int_equal(quire_tier_get_stats(e->peer, &stats), QUIRE_OK);
    const quire_usage *u = &stats.usage;
    assert_int_equal(u->total, u->empty + u->cached + u->active + u->null_blocks);
    return stats.usage;
}

/* What B has seen of A's memory is told as medium PEER, and as removed when A has it no more. */
static void what_a_peer_has_is_told(void **state)
{
    (void)state;
    engine a = {.num_cpu = 3 * PROMPT_BLOCKS + 1};
    engine b = {
        .num_cpu = 2 * PROMPT_BLOCKS + 1, .source = &a, .event_keys = NUM_PROMPTS * PROMPT_BLOCKS};
    told t = {0};
    quire_reader *reader;
    open_engine(&a);
    open_engine(&b);
    assert_int_equal(quire_reader_create(quire_sched_monitor(b.sched), NULL, &reader), QUIRE_OK);
    for (uint32_t p = 0; p < 3; p++)
        run_prompt(&a, p);
    for (uint32_t p = 0; p < 3; p++)
        run_prompt(&b, p);
    take_told(reader, &t);
    assert_int_equal(t.num_stored, 3 * PROMPT_BLOCKS);
    assert_int_equal(t.num_removed, 0);
    assert_int_equal(peer_usage(&b).cached, 3 * PROMPT_BLOCKS);
    for (uint32_t p = 3; p < NUM_PROMPTS; p++) /* A's memory has others now */
        run_prompt(&a, p);
    run_prompt(&b, 0); /* B's own host memory has had two other prompts since */
    take_told(reader, &t);
    assert_true(t.num_removed > 0); /* it was looked for, and not found */
    assert_int_equal(peer_usage(&b).cached, t.num_stored - t.num_removed);
    quire_reader_destroy(reader);
    close_engine(&b); /* closes the tier before the offload */
    close_engine(&a);
}

static void a_reset_and_a_new_identity_withdraw_all(void **state)
{
    (void)state;
    static const unsigned char other[QUIRE_FINGERPRINT_BYTES] = {2};
    engine a = {.num_cpu = 101};
    engine b = {.num_cpu = 101, .source = &a};
    open_engine(&a);
    open_engine(&b);
    run_prompts(&a);
    assert_true(served_by(&a).offered > 0);
    assert_int_equal(quire_sched_reset_prefix_cache(a.sched, 0, 1), QUIRE_OK);
    assert_int_equal(served_by(&a).offered, 0);
    run_prompts(&a);
    assert_true(served_by(&a).offered > 0);
    assert_int_equal(quire_offload_set_identity(a.offload, other), QUIRE_OK);
    assert_int_equal(served_by(&a).offered, 0);
    assert_int_equal(quire_sched_reset_prefix_cache(a.sched, 0, 0), QUIRE_OK);
    run_prompts(&a); /* the same keys, under another identity */
    assert_true(served_by(&a).offered > 0);
    run_prompt(&b, 0);
    assert_int_equal(stats_of(&b).tiers[0].hit_tokens, 0);
    assert_int_equal(served_by(&a).blocks_sent, 0);
    assert_int_equal(quire_offload_set_identity(b.offload, other), QUIRE_OK);
    run_prompt(&b, 1);
    assert_int_equal(stats_of(&b).tiers[0].hit_tokens, PROMPT_BLOCKS * BLOCK_SIZE);
    close_engine(&b);
    close_engine(&a);
}

static void the_server_must_fit(void **state)
{
    (void)state;
    engine e = {.num_cpu = 30};
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    static unsigned char memory[31 * BLOCK_BYTES];
    set_config(&e, &config);
    open_server(&e);
    quire_offload_config good = QUIRE_OFFLOAD_CONFIG_INIT;
    good.sched = &config;
    good.num_cpu_blocks = 30;
    good.memory = memory;
    good.block_bytes = BLOCK_BYTES;
    good.peer_server = e.server;
    assert_true(quire_offload_bytes(&good) > 0);
    quire_offload_config c = good;
    c.num_cpu_blocks = 31;
    assert_int_equal(quire_offload_create(&c, NULL, &e.offload), QUIRE_E_CONFIG);
    c = good;
    c.block_bytes = BLOCK_BYTES + 1;
    assert_int_equal(quire_offload_create(&c, NULL, &e.offload), QUIRE_E_CONFIG);
    c = good;
    c.memory = NULL;
    assert_int_equal(quire_offload_create(&c, NULL, &e.offload), QUIRE_E_CONFIG);
    c = good;
    c.profile = QUIRE_PROFILE_VLLM_0_20;
    assert_int_equal(quire_offload_create(&c, NULL, &e.offload), QUIRE_E_CONFIG);
    assert_int_equal(quire_peer_server_close(e.server), QUIRE_OK);
    quire_hasher_destroy(e.hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_comes_from_another_engines_host_memory),
        cmocka_unit_test(blocks_are_withdrawn_before_their_memory_is_written),
        cmocka_unit_test(evicted_blocks_are_not_offered),
        cmocka_unit_test(what_a_peer_has_is_told),
        cmocka_unit_test(a_reset_and_a_new_identity_withdraw_all),
        cmocka_unit_test(the_server_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
