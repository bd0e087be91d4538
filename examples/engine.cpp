/* engine.cpp - the engine loop of engine.c in C++17: the same requests, the same blocks. */
#include <quire.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace
{

constexpr std::uint32_t block_size = 4, num_blocks = 20, max_running = 4;

struct chat {
    const char *name;
    std::uint32_t arrives, prompt_tokens, max_tokens;
    std::uint32_t num_new = 0, num_hit = 0, num_preempted = 0; /* what became of it */
};

/* The value, or the end of the program. */
template <class T> T must(quire::result<T> made, const char *what)
{
    if (!made) {
        std::fprintf(stderr, "%s: %s\n", what, made.state().sentence());
        std::exit(1);
    }
    return std::move(*made);
}

void arrive(quire::scheduler &engine, chat &c)
{
    std::array<quire_token, 24> prompt;
    quire_token next = 0;
    for (quire_token &token : prompt) { /* all begin alike */
        token = next < 8 ? next : c.name[0] * 100 + next;
        next++;
    }
    quire_request_params params = QUIRE_REQUEST_PARAMS_INIT;
    params.id = quire::bytes(c.name);
    params.prompt = prompt.data();
    params.num_prompt_tokens = c.prompt_tokens;
    params.max_tokens = c.max_tokens;
    params.user = &c;
    must(engine.add(params), "add");
}

quire::scheduler make_engine()
{
    quire_group_config group = {};
    group.spec.kind = QUIRE_LAYER_FULL;
    group.spec.num_kv_heads = 8;
    group.spec.head_size = 64;
    group.spec.block_size = block_size;
    group.spec.dtype = QUIRE_DTYPE_BFLOAT16;
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.block_size = block_size;
    hashing.seed = quire::bytes("engine");
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    cache.num_blocks = num_blocks;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = 64;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    config.max_num_seqs = max_running;
    config.max_num_batched_tokens = 16; /* of one step */
    return must(quire::scheduler::create(config, quire::hasher::create(hashing)), "scheduler");
}

void print_step(const quire::scheduler &engine, const quire::step &step)
{
    std::array<char, num_blocks + 1> blocks;
    quire_pool *pool = quire_cache_get_pool(engine.raw_cache());
    if (quire_pool_draw(pool, 0, num_blocks, blocks.data()) != QUIRE_OK)
        std::exit(1);
    std::printf("%3d ", static_cast<int>(step.number()));
    for (const quire::scheduled &each : step)
        std::printf("  %s%c%-2u", engine.user<chat>(each.req)->name, " +*"[each.kind],
                    each.num_tokens);
    std::printf("%*s   running %u  waiting %u   %s",
                static_cast<int>(max_running - step.size()) * 6, "", engine.counts().num_running,
                engine.counts().num_waiting, blocks.data());
    for (quire_req req : step.preempted()) {
        engine.user<chat>(req)->num_preempted++;
        std::printf("  %s preempted", engine.user<chat>(req)->name);
    }
}

void read_outputs(const quire::outputs &out)
{
    for (const quire_output &each : out) {
        chat &c = *static_cast<chat *>(each.user);
        c.num_new += each.num_new_tokens;
        if (each.has_prefill_stats != 0) /* with its first token */
            c.num_hit = each.num_local_cached;
        if (each.finish_reason != QUIRE_FINISH_NONE)
            std::printf("  %s ends", c.name);
    }
    std::printf("\n");
}

} // namespace

int main()
{
    quire::scheduler engine = make_engine();
    std::array<chat, 5> chats = {
        {{"A", 1, 18, 20}, {"B", 1, 14, 16}, {"C", 3, 20, 14}, {"D", 5, 11, 9}, {"E", 6, 16, 8}}};
    std::size_t arrived = 0;
    for (std::uint32_t n = 1; arrived < chats.size() || engine.counts().num_unfinished > 0; n++) {
        while (arrived < chats.size() && chats[arrived].arrives <= n)
            arrive(engine, chats[arrived++]);
        const quire::step step = must(engine.schedule(), "schedule");
        std::array<quire_token, max_running> sampled = {};
        for (std::uint32_t i = 0; i < step.size(); i++) /* where a model would run */
            sampled[i] =
                1000 + static_cast<quire_token>(step[i].num_computed_tokens + step[i].num_tokens);
        print_step(engine, step);
        read_outputs(must(engine.update(step.number(), sampled.data()), "update"));
    }
    for (const chat &c : chats)
        std::printf("%s: prompt %u, of which %u cached; %u new tokens; preempted %u times\n",
                    c.name, c.prompt_tokens, c.num_hit, c.num_new, c.num_preempted);
}
