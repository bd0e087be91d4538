/* agents.c - agents whose blocks stay while their tools run (quire_sched_pin).
 *
 *      agent   turn 1 ──► tool, 20 s ──► turn 2 ──► tool, 20 s ──► turn 3 ...
 *      chats              9 others, twice, which need the whole pool
 *
 * The prompt of a turn is the prompt of the turn before, its output, and what the tool said.
 * Without a pin the chats have taken the agent's blocks by then, and the whole prompt is computed
 * again. A pin with a TTL (time to live) longer than the tool call keeps the blocks. A pin with a
 * shorter TTL saves nothing. While blocks are pinned, the chats have less room and need more
 * steps.
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_SIZE   16
#define NUM_BLOCKS   97 /* and of them the null block */
#define NUM_AGENTS   3
#define NUM_TURNS    4
#define FIRST_PROMPT 256
#define TOOL_TOKENS  32
#define OUTPUT       32
#define NUM_CHATS    9 /* twice between two turns */
#define CHAT_PROMPT  160
#define CHAT_OUTPUT  16
#define MAX_RUNNING  8
#define MAX_TOKENS   1024
#define STEP_NS      UINT64_C(20000000)
#define SECOND_NS    UINT64_C(1000000000)

/* Whose text it is: the token at a place follows from both. */
typedef struct writer {
    quire_token number;
    uint32_t num_tokens;
    uint32_t is_agent;
} writer;

static struct {
    uint64_t now_ns;
    uint32_t prompt_tokens; /* of agents */
    uint32_t found_tokens;
    uint32_t num_steps;
    uint32_t most_pinned; /* blocks */
} world;

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static uint64_t clock_ns(void *user)
{
    (void)user;
    return world.now_ns;
}

static void look(void *user, const quire_snapshot *snapshot)
{
    (void)user;
    if (snapshot->num_pinned_blocks > world.most_pinned)
        world.most_pinned = snapshot->num_pinned_blocks;
}

static quire_token token_at(const writer *w, uint32_t place)
{
    return w->number * MAX_TOKENS + (quire_token)place;
}

static void add(quire_sched *sched, writer *w, uint32_t max_tokens, uint64_t pin_ns)
{
    static uint32_t num_names;
    char name[16];
    quire_token prompt[MAX_TOKENS];
    quire_req req;
    for (uint32_t i = 0; i < w->num_tokens; i++)
        prompt[i] = token_at(w, i);
    int length = snprintf(name, sizeof name, "%u", num_names++);
    const quire_request_params params = {.size = sizeof(quire_request_params),
                                         .id = {name, (size_t)length},
                                         .prompt = prompt,
                                         .num_prompt_tokens = w->num_tokens,
                                         .max_tokens = max_tokens,
                                         .user = w};
    must(quire_sched_add(sched, &params, &req), "add");
    if (pin_ns > 0)
        must(quire_sched_pin(sched, req, pin_ns), "pin");
}

/* Until all requests have ended. */
static void serve(quire_sched *sched)
{
    while (quire_sched_get_num_unfinished(sched) > 0) {
        const quire_step *step;
        const quire_outputs *out;
        quire_token sampled[MAX_RUNNING];
        must(quire_sched_schedule(sched, &step), "schedule");
        for (uint32_t i = 0; i < step->num_reqs; i++)
            sampled[i] = token_at(quire_sched_get_user(sched, step->reqs[i]),
                                  step->num_computed_tokens[i] + step->num_tokens[i]);
        world.now_ns += STEP_NS;
        const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
        must(quire_sched_update(sched, step->step, &output, &out), "update");
        for (const quire_output *o = out->outputs; o < out->outputs + out->num_outputs; o++) {
            const writer *w = o->user;
            if (!o->has_prefill_stats || !w->is_agent)
                continue;
            world.prompt_tokens += w->num_tokens;
            world.found_tokens += o->num_local_cached;
        }
        world.num_steps++;
    }
}

/* Chats that come while the tools run, first at once, then after 15 s. */
static void chat_for_20_s(quire_sched *sched)
{
    static quire_token number = NUM_AGENTS;
    writer chats[NUM_CHATS];
    uint64_t start_ns = world.now_ns;
    uint32_t before = world.num_steps;
    for (uint32_t wave = 0; wave < 2; wave++) {
        for (uint32_t i = 0; i < NUM_CHATS; i++) {
            chats[i] = (writer){.number = ++number, .num_tokens = CHAT_PROMPT};
            add(sched, &chats[i], CHAT_OUTPUT, 0);
        }
        serve(sched);
        world.now_ns = start_ns + (wave == 0 ? 15 : 20) * SECOND_NS;
    }
    printf(" %4u", world.num_steps - before);
}

static quire_sched *make_scheduler(quire_hasher *hasher, const quire_group_config *group)
{
    quire_sched *sched = NULL;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = NUM_BLOCKS;
    cache.groups = group;
    cache.num_groups = 1;
    cache.max_model_len = MAX_TOKENS;
    cache.digest_bytes = (uint32_t)quire_hash_digest_bytes(QUIRE_HASH_QUIRE128);
    config.hasher = hasher;
    config.max_num_seqs = MAX_RUNNING;
    config.max_pins = NUM_AGENTS;
    config.on_snapshot = look;
    config.hooks.now_ns = clock_ns;
    must(quire_sched_create(&config, NULL, &sched), "scheduler");
    return sched;
}

static void run(quire_hasher *hasher, const quire_group_config *group, uint32_t ttl_s)
{
    quire_sched *sched = make_scheduler(hasher, group);
    writer agents[NUM_AGENTS];
    world.prompt_tokens = world.found_tokens = world.most_pinned = 0;
    for (uint32_t i = 0; i < NUM_AGENTS; i++)
        agents[i] =
            (writer){.number = (quire_token)i + 1, .num_tokens = FIRST_PROMPT, .is_agent = 1};
    printf("%4u s  ", ttl_s);
    for (uint32_t turn = 1; turn <= NUM_TURNS; turn++) {
        for (uint32_t i = 0; i < NUM_AGENTS; i++)
            add(sched, &agents[i], OUTPUT, turn < NUM_TURNS ? ttl_s * SECOND_NS : 0);
        serve(sched);
        for (uint32_t i = 0; i < NUM_AGENTS; i++)
            agents[i].num_tokens += OUTPUT + TOOL_TOKENS;
        if (turn < NUM_TURNS)
            chat_for_20_s(sched);
    }
    printf("    %6u %6u %9u %8u\n", world.prompt_tokens, world.found_tokens,
           world.prompt_tokens - world.found_tokens, world.most_pinned);
    quire_sched_destroy(sched);
}

int main(void)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BLOCK_SIZE,
                                               .num_kv_heads = 8,
                                               .head_size = 64,
                                               .dtype = QUIRE_DTYPE_BFLOAT16}};
    quire_hasher *hasher = NULL;
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.algo = QUIRE_HASH_QUIRE128;
    hashing.block_size = BLOCK_SIZE;
    must(quire_hasher_create(&hashing, NULL, &hasher), "hasher");
    printf("%u agents, %u turns, a pool of %u blocks\n\n", NUM_AGENTS, NUM_TURNS, NUM_BLOCKS - 1);
    printf("   TTL   steps of the chats   prompt  found  computed   pinned\n");
    printf("         between two turns    tokens tokens    tokens   blocks\n");
    const uint32_t ttls_s[] = {0, 10, 60};
    for (uint32_t i = 0; i < 3; i++)
        run(hasher, &group, ttls_s[i]);
    quire_hasher_destroy(hasher);
    return 0;
}
