/* sched/requests/test_sched_hidden.c - prompts whose first tokens the scheduler does not know: the
 * same names for blocks as with all tokens, and zeros for whoever reads them. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { MAX_TOKENS = 3000, LONG = 2503, OUTPUT = 7, ALL = LONG + OUTPUT, FIRST_OUTPUT = 50 };

static sched_kit kit;
static quire_sched_config config;
static quire_token text[MAX_TOKENS];
static unsigned char hashes[MAX_TOKENS / KIT_BLOCK * QUIRE_MAX_DIGEST_BYTES];

static void open_kit(void)
{
    config = kit_config(&kit);
    config.cache->max_model_len = MAX_TOKENS;
    config.cache->num_blocks = 2 * MAX_TOKENS / KIT_BLOCK;
    config.max_num_batched_tokens = MAX_TOKENS;
    kit_open(&kit, &config);
    for (uint32_t i = 0; i < MAX_TOKENS; i++)
        text[i] = (quire_token)(i % 7 + 1);
}

/* n tokens with all their hashes; the first num_hidden tokens are hidden. */
static quire_request_params hidden_params(uint32_t n, uint32_t num_hidden)
{
    quire_chain *chain;
    size_t bytes = quire_chain_bytes(kit.hasher);
    size_t count = 0;
    void *memory = malloc(bytes);
    assert_int_equal(quire_chain_init(kit.hasher, memory, bytes, &chain), QUIRE_OK);
    assert_int_equal(quire_chain_append(kit.hasher, chain, text, n, NULL, hashes,
                                        sizeof hashes / QUIRE_MAX_DIGEST_BYTES, &count),
                     QUIRE_OK);
    free(memory);
    return (quire_request_params){.size = sizeof(quire_request_params),
                                  .id = {"a", 1},
                                  .prompt = num_hidden < n ? text + num_hidden : NULL,
                                  .num_prompt_tokens = n,
                                  .max_tokens = 30,
                                  .hashes = hashes,
                                  .num_hashes = (uint32_t)count,
                                  .num_hidden_tokens = num_hidden};
}

static quire_req add(const quire_request_params *p)
{
    quire_req req = 0;
    assert_int_equal(quire_sched_add(kit.sched, p, &req), QUIRE_OK);
    return req;
}

static void refuse(const quire_request_params *p, int status)
{
    quire_req req;
    kit_state before = kit_save(kit.sched);
    assert_int_equal(quire_sched_add(kit.sched, p, &req), status);
    kit_same(kit.sched, before);
}

static quire_token expected(uint32_t i, uint32_t num_hidden)
{
    return i < num_hidden ? 0 : i < LONG ? text[i] : (quire_token)(FIRST_OUTPUT + i - LONG);
}

static quire_req run_long(uint32_t num_hidden)
{
    open_kit();
    quire_request_params p = hidden_params(LONG, num_hidden);
    quire_req req = add(&p);
    for (uint32_t i = 0; i < OUTPUT; i++)
        kit_run(&kit, (quire_token)(FIRST_OUTPUT + i));
    return req;
}

/* In an image they are zeros. */
static void check_image(void)
{
    quire_sched *copy;
    kit_state saved = kit_save(kit.sched);
    assert_int_equal(quire_sched_restore(&config, NULL, saved.image, saved.bytes, &copy), QUIRE_OK);
    kit_same(copy, saved);
    quire_sched_destroy(copy);
}

static void check_long(uint32_t num_hidden, const void *whole, uint32_t num_whole)
{
    quire_req req = run_long(num_hidden);
    const void *own;
    uint32_t count;
    quire_token tokens[ALL];
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, UINT32_MAX, &own, &count), QUIRE_OK);
    assert_int_equal(count, num_whole);
    assert_memory_equal(own, whole, (size_t)count * kit.cache.digest_bytes);
    for (uint32_t first = 0; first < ALL; first += 1100) {
        uint32_t n = first == 0 ? ALL : 200; /* all, and some in the middle */
        assert_int_equal(quire_sched_get_tokens(kit.sched, req, first, n, tokens), QUIRE_OK);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(tokens[i], expected(first + i, num_hidden));
    }
    quire_request_params got = QUIRE_REQUEST_PARAMS_INIT;
    assert_int_equal(quire_sched_get_params(kit.sched, req, &got), QUIRE_OK);
    assert_int_equal(got.num_hidden_tokens, num_hidden);
    check_image();
    kit_close(&kit);
}

static void hidden_tokens_change_no_hash(void **state)
{
    (void)state;
    const void *own;
    uint32_t count;
    quire_req req = run_long(0);
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, UINT32_MAX, &own, &count), QUIRE_OK);
    assert_int_equal(count, ALL / KIT_BLOCK);
    size_t bytes = (size_t)count * kit.cache.digest_bytes;
    void *whole = malloc(bytes);
    memcpy(whole, own, bytes);
    kit_close(&kit);
    for (uint32_t n = 0; n <= LONG / KIT_BLOCK * KIT_BLOCK; n += n < 8 ? 1 : 499)
        check_long(n, whole, count);
    check_long(LONG / KIT_BLOCK * KIT_BLOCK, whole, count);
    free(whole);
}

static void what_cannot_be_hidden(void **state)
{
    (void)state;
    static const unsigned char rows[20 * 4];
    open_kit();
    quire_request_params p = hidden_params(20, 17);
    p.num_hashes = 4; /* the last of the hidden tokens has no hash */
    refuse(&p, QUIRE_E_RANGE);
    p = hidden_params(20, 16);
    p.prompt = NULL; /* and 4 are left */
    refuse(&p, QUIRE_E_ARGUMENT);
    p = hidden_params(20, 20);
    p.is_resumable = 1;
    refuse(&p, QUIRE_E_ARGUMENT);
    p.is_resumable = 0;
    p.prompt_embeds = rows;
    p.prompt_embed_bytes = 4;
    refuse(&p, QUIRE_E_ARGUMENT);
    p = hidden_params(20, 20);
    p.prompt = text;
    p.num_hidden_tokens = 21;
    refuse(&p, QUIRE_E_RANGE);
    p = hidden_params(20, 20);
    quire_req req = add(&p);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, req, 19, 0), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, req, 20, 0), QUIRE_OK);
    kit_run(&kit, 1);
    kit_close(&kit);
}

static void inputs_of_sessions_hide_nothing(void **state)
{
    (void)state;
    open_kit();
    quire_request_params p = hidden_params(20, 0);
    p.is_resumable = 1;
    quire_req req = add(&p);
    p.num_hidden_tokens = 4;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_E_ARGUMENT);
    p.num_hidden_tokens = 0;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_OK);
    kit_close(&kit);
}

/* Pages that another request has written to. */
static void used_pages_are_not_shown(void **state)
{
    (void)state;
    open_kit();
    quire_request_params p = hidden_params(LONG, 0);
    quire_req req = add(&p);
    assert_int_equal(quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    p = hidden_params(LONG, LONG - 4);
    req = add(&p);
    quire_token tokens[LONG];
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, 0, LONG, tokens), QUIRE_OK);
    qr_text_store *store = &kit.sched->texts.store;
    qr_text *own = &kit.sched->table.requests[quire_req_index(req)].text;
    check_image();
    for (uint32_t way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < LONG; i++) {
            assert_int_equal(tokens[i], expected(i, LONG - 4));
            assert_int_equal(qr_text_token(store, own, i), tokens[i]);
        }
        qr_text_show(store, own); /* to be read in place */
        assert_int_equal(own->num_hidden, 0);
    }
    kit_close(&kit);
}

/* Without prefix caching there are no hashes. */
static void hidden_without_caching(void **state)
{
    (void)state;
    config = kit_config(&kit);
    config.cache->enable_caching = QUIRE_OFF;
    kit_open(&kit, &config);
    for (uint32_t i = 0; i < MAX_TOKENS; i++)
        text[i] = 3;
    quire_request_params p = hidden_params(20, 19);
    p.num_hashes = 0;
    quire_req req = add(&p);
    kit_run(&kit, 8);
    quire_token tokens[21];
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, 0, 21, tokens), QUIRE_OK);
    for (uint32_t i = 0; i < 21; i++)
        assert_int_equal(tokens[i], i < 19 ? 0 : i < 20 ? 3 : 8);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_tokens_change_no_hash),
        cmocka_unit_test(what_cannot_be_hidden),
        cmocka_unit_test(inputs_of_sessions_hide_nothing),
        cmocka_unit_test(used_pages_are_not_shown),
        cmocka_unit_test(hidden_without_caching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
