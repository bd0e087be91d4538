#include "sched/requests/fork_kit.h"

quire_sched_config fork_config(sched_kit *kit)
{
    quire_sched_config config = kit_config(kit);
    config.cache->max_copies = 8;
    return config;
}

/* The parent a has computed its prompt and has one token of output. */
quire_req open_parent(sched_kit *kit, const quire_sched_config *config)
{
    kit_open(kit, config);
    quire_req a = kit_add(kit, "a", TOKENS);
    kit_run(kit, 7);
    assert_int_equal(kit_info(kit, a).num_tokens, TOKENS + 1);
    return a;
}

quire_request_params child_params(const char *id)
{
    return (quire_request_params){.size = sizeof(quire_request_params), .id = {id, strlen(id)}};
}

int try_fork(sched_kit *kit, quire_req parent, const quire_request_params *p, quire_req *req)
{
    int err = quire_sched_fork(kit->sched, parent, p, req);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
    return err;
}

quire_req fork_of(sched_kit *kit, quire_req parent, const char *id)
{
    quire_req child = 0;
    quire_request_params p = child_params(id);
    assert_int_equal(try_fork(kit, parent, &p, &child), QUIRE_OK);
    return child;
}

void end(sched_kit *kit, quire_req req)
{
    uint32_t n = 0;
    assert_int_equal(quire_sched_finish(kit->sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, &n),
                     QUIRE_OK);
    assert_int_equal(n, 1);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

void close_empty(sched_kit *kit)
{
    quire_sched_finish_all(kit->sched, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(quire_sched_get_usage(kit->sched).active, 0);
    assert_int_equal(kit->sched->texts.store.num_free, kit->sched->texts.store.num_pages);
    kit_close(kit);
}

/* Each request gets a token of its own; row i of the step gets first + i. */
void answer_apart(sched_kit *kit, quire_token first)
{
    quire_token sampled[KIT_RUNNING];
    for (uint32_t i = 0; i < KIT_RUNNING; i++)
        sampled[i] = first + (quire_token)i;
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_update(kit->sched, kit->step->step, &output, &kit->outputs),
                     QUIRE_OK);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}
