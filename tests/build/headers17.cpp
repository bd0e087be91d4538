/* headers17.cpp - quire.hpp: handles move and free themselves, refusals have a sentence, steps and
 * outputs are ranges. Returns the line that failed. */
#include <quire.hpp>

#include <cstring>
#include <initializer_list>

#define EXPECT(what)                                                                               \
    if (!(what))                                                                                   \
    return __LINE__

namespace
{

struct world {
    quire_group_config group = {};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;

    world()
    {
        group.spec.kind = QUIRE_LAYER_FULL;
        group.spec.block_size = 16;
        group.spec.num_kv_heads = 8;
        group.spec.head_size = 128;
        group.spec.dtype = QUIRE_DTYPE_BFLOAT16;
        cache.num_blocks = 100;
        cache.groups = &group;
        cache.num_groups = 1;
        cache.max_model_len = 256;
        config.cache = &cache;
    }
    quire::result<quire::scheduler> make()
    {
        return quire::scheduler::create(config, quire::hasher::create());
    }
};

int refuses()
{
    world w;
    w.cache.num_blocks = 0;
    const quire::result<quire::scheduler> none = w.make();
    EXPECT(!none && none.state().value() == QUIRE_E_CONFIG);
    EXPECT(std::strstr(none.state().sentence(), "num_blocks 0") != nullptr);
    EXPECT(std::strcmp(none.state().name(), "QUIRE_E_CONFIG") == 0);
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.size = 1;
    const auto no_hasher = quire::scheduler::create(world().config, quire::hasher::create(hashing));
    EXPECT(!no_hasher && no_hasher.state().value() == QUIRE_E_CONFIG);
    EXPECT(!quire::pool::create(quire_pool_config()) &&
           !quire::cache::create(quire_cache_config()));
    EXPECT(std::strcmp(quire::status(QUIRE_MISS).sentence(), quire_strerror(QUIRE_MISS)) == 0);
    return 0;
}

int steps()
{
    world w;
    auto made = w.make();
    EXPECT(made);
    quire::scheduler engine = std::move(*made);
    EXPECT(engine && !*made);
    const quire_token prompt[40] = {1, 2, 3};
    int mark = 7;
    quire_request_params params = QUIRE_REQUEST_PARAMS_INIT;
    params.id = quire::bytes("one");
    params.prompt = prompt;
    params.num_prompt_tokens = 40;
    params.max_tokens = 2;
    params.user = &mark;
    const auto req = engine.add(params);
    EXPECT(req && engine.find("one") == *req && engine.find("two") == 0);
    EXPECT(*engine.user<int>(*req) == 7 && engine.user<int>(*req + 1) == nullptr);
    EXPECT(engine.add(params).state().value() == QUIRE_E_DUPLICATE);
    EXPECT(engine.fork(*req, params).state().value() == QUIRE_E_DISABLED);
    EXPECT(engine.pin(*req, 5).value() == QUIRE_E_DISABLED);
    EXPECT(engine.preempt(*req).value() == QUIRE_MISS);
    std::uint32_t tokens = 0, num_new = 0, num_steps = 0;
    while (engine.counts().num_unfinished > 0) {
        const auto step = engine.schedule();
        EXPECT(step && step->size() == 1 && step->number() == ++num_steps);
        for (const quire::scheduled &each : *step) {
            EXPECT(each.req == *req && each.blocks.size() == 1 && each.drafts.empty());
            EXPECT(each.kind == (num_steps == 1 ? QUIRE_STEP_NEW : QUIRE_STEP_RUNNING));
            EXPECT(each.num_computed_tokens == tokens);
            tokens += each.num_tokens;
        }
        EXPECT(step->preempted().empty() && step->copies().empty());
        const quire_token sampled = 9;
        const auto out = engine.update(step->number(), &sampled);
        EXPECT(out && out->size() == 1);
        for (const quire_output &each : *out)
            for (quire_token token : quire::new_tokens(each)) {
                EXPECT(token == 9);
                num_new++;
            }
        EXPECT(!engine.update(step->number(), &sampled));
    }
    EXPECT(tokens == 41 && num_new == 2 && engine.check());
    EXPECT(engine.schedule()->finished().size() == 1);
    return 0;
}

int moves()
{
    world w;
    quire::scheduler one = std::move(*w.make()), two = std::move(*w.make());
    const quire_sched *raw = two.get();
    one = std::move(two);
    EXPECT(one.get() == raw && two.get() == nullptr);
    EXPECT(one.usage().null_blocks == 1 && one.forget_step(1).value() == QUIRE_E_ARGUMENT);
    EXPECT(one.finish(5) && one.counts().num_unfinished == 0);
    auto cache = quire::cache::create(w.cache);
    quire::cache kept = std::move(*cache);
    EXPECT(kept && !*cache && quire_cache_get_pool(kept.get()) != nullptr);
    return 0;
}

} // namespace

int main()
{
    for (int (*test)() : {refuses, steps, moves})
        if (int line = test(); line != 0)
            return line % 256 == 0 ? 1 : line % 256;
    return 0;
}
