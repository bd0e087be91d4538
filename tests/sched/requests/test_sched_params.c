/* sched/requests/test_sched_params.c - what a request was added with comes back:
 * quire_sched_get_params and
 * quire_sched_get_mm_input; and what a snapshot tells of the config. */
#include "sched/sched_kit.h"

static quire_bytes bytes_of(const char *text)
{
    return (quire_bytes){text, strlen(text)};
}

static bool is_text(quire_bytes bytes, const char *text)
{
    return bytes.len == strlen(text) && memcmp(bytes.data, text, bytes.len) == 0;
}

static void open_with_images(sched_kit *kit)
{
    quire_sched_config config = kit_config(kit);
    config.max_loras = 2;
    config.encoder_compute_budget = 16;
    config.encoder_cache_size = 16;
    kit_open(kit, &config);
}

static void every_field_comes_back(void **state)
{
    (void)state;
    sched_kit kit;
    open_with_images(&kit);
    int user = 0;
    const quire_token stops[] = {7, 9};
    quire_request_params given = {.size = sizeof(quire_request_params),
                                  .id = bytes_of("first"),
                                  .prompt = (const quire_token[]){1, 2, 3, 4, 5},
                                  .num_prompt_tokens = 5,
                                  .max_tokens = 6,
                                  .min_tokens = 2,
                                  .has_eos = 1,
                                  .eos_token_id = 11,
                                  .stop_token_ids = stops,
                                  .num_stop_token_ids = 2,
                                  .repetition_max_pattern = 5,
                                  .repetition_min_pattern = 2,
                                  .repetition_min_count = 3,
                                  .priority = -4,
                                  .arrival_time = 1.5,
                                  .client_index = 8,
                                  .lora_name = bytes_of("adapter"),
                                  .lora_id = 3,
                                  .cache_salt = bytes_of("salt"),
                                  .is_resumable = 1,
                                  .skip_reading_prefix = 1,
                                  .user = &user,
                                  .lora_path = bytes_of("/a/b")};
    quire_req req;
    assert_int_equal(quire_sched_add(kit.sched, &given, &req), QUIRE_OK);
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    memset(&p, 0xff, sizeof p);
    p.size = sizeof p;
    assert_int_equal(quire_sched_get_params(kit.sched, req, &p), QUIRE_OK);
    assert_true(is_text(p.id, "first") && p.num_prompt_tokens == 5);
    assert_true(p.max_tokens == 6 && p.min_tokens == 2 && p.has_eos == 1 && p.eos_token_id == 11);
    assert_int_equal(p.num_stop_token_ids, 2);
    assert_memory_equal(p.stop_token_ids, stops, sizeof stops);
    assert_true(p.stop_token_ids != stops); /* a copy */
    assert_true(p.repetition_max_pattern == 5 && p.repetition_min_pattern == 2);
    assert_true(p.repetition_min_count == 3 && p.priority == -4 && p.client_index == 8);
    assert_true(p.arrival_time == 1.5 && p.lora_id == 3 && is_text(p.lora_name, "adapter"));
    assert_true(is_text(p.lora_path, "/a/b") && p.lora_path.data != given.lora_path.data);
    assert_true(is_text(p.cache_salt, "salt") && p.is_resumable == 1 && p.is_pooling == 0);
    assert_true(p.skip_reading_prefix == 1 && p.use_grammar == 0 && p.user == &user);
    assert_true(p.prompt == NULL && p.hashes == NULL && p.mm_inputs == NULL);
    assert_true(p.num_mm_inputs == 0 && p.prompt_embeds == NULL && p.num_hashes == 0);
    kit_close(&kit);
}

static void adapter_comes_back_from_an_image(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    quire_sched *again = NULL;
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    config.max_loras = 1;
    kit_open(&kit, &config);
    quire_request_params given = *kit_params(&kit, "a", 5);
    given.lora_id = 1;
    given.lora_name = bytes_of("adapter");
    given.lora_path = bytes_of("/a/b");
    quire_req req;
    assert_int_equal(quire_sched_add(kit.sched, &given, &req), QUIRE_OK);
    kit_state saved = kit_save(kit.sched);
    assert_int_equal(quire_sched_restore(&config, NULL, saved.image, saved.bytes, &again),
                     QUIRE_OK);
    assert_int_equal(quire_sched_get_params(again, req, &p), QUIRE_OK);
    assert_true(is_text(p.lora_name, "adapter") && is_text(p.lora_path, "/a/b"));
    quire_sched_destroy(again);
    free(saved.image);
    kit_close(&kit);
}

static void images_come_back(void **state)
{
    (void)state;
    sched_kit kit;
    open_with_images(&kit);
    const uint8_t flags[] = {0, 1, 1, 0};
    const quire_mm_input images[] = {
        {.feature = {.identifier = bytes_of("cat"), .offset = 1, .length = 4}, .is_embed = flags},
        {.feature = {.identifier = bytes_of("dog"), .offset = 6, .length = 3}, .num_embeds = 2}};
    quire_request_params given = *kit_params(&kit, "a", 12);
    given.mm_inputs = images;
    given.num_mm_inputs = 2;
    quire_req req;
    assert_int_equal(quire_sched_add(kit.sched, &given, &req), QUIRE_OK);
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    assert_int_equal(quire_sched_get_params(kit.sched, req, &p), QUIRE_OK);
    assert_int_equal(p.num_mm_inputs, 2);
    quire_mm_input in;
    uint8_t got[5] = {9, 9, 9, 9, 9};
    assert_int_equal(quire_sched_get_mm_input(kit.sched, req, 0, &in, got), QUIRE_OK);
    assert_true(is_text(in.feature.identifier, "cat") && in.feature.offset == 1);
    assert_true(in.feature.length == 4 && in.num_embeds == 2 && in.is_embed == got);
    assert_memory_equal(got, flags, sizeof flags);
    assert_int_equal(got[4], 9);
    assert_int_equal(quire_sched_get_mm_input(kit.sched, req, 1, &in, NULL), QUIRE_OK);
    assert_true(is_text(in.feature.identifier, "dog") && in.feature.offset == 6);
    assert_true(in.feature.length == 3 && in.num_embeds == 2 && in.is_embed == NULL);
    assert_int_equal(quire_sched_get_mm_input(kit.sched, req, 1, &in, got), QUIRE_OK);
    assert_true(got[0] == 1 && got[1] == 1 && got[2] == 1);
    assert_int_equal(quire_sched_get_mm_input(kit.sched, req, 2, &in, NULL), QUIRE_E_RANGE);
    kit_close(&kit);
}

static void changes_and_refusals(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    kit_open(&kit, &config);
    quire_req req = kit_add(&kit, "a", 10);
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    quire_mm_input in;
    assert_int_equal(quire_sched_get_params(kit.sched, req, &p), QUIRE_OK);
    assert_int_equal(p.max_tokens,
                     kit.params.max_tokens > 0 ? kit.params.max_tokens : KIT_LEN - 10);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, req, 6, 1), QUIRE_OK);
    assert_int_equal(quire_sched_get_params(kit.sched, req, &p), QUIRE_OK);
    assert_true(p.num_prompt_tokens == 6 && p.max_tokens == 1);
    assert_int_equal(quire_sched_get_params(kit.sched, req + 1, &p), QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_sched_get_params(kit.sched, req, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_params(NULL, req, &p), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_mm_input(kit.sched, 0, 0, &in, NULL), QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_sched_get_mm_input(kit.sched, req, 0, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_mm_input(NULL, req, 0, &in, NULL), QUIRE_E_ARGUMENT);
    kit_close(&kit);
}

static void note_snapshot(void *user, const quire_snapshot *snapshot)
{
    *(uint32_t *)user = snapshot->num_watermark_blocks;
}

static void a_snapshot_has_the_watermark(void **state)
{
    (void)state;
    sched_kit kit;
    uint32_t noted = 99;
    quire_sched_config config = kit_config(&kit);
    config.cache->watermark = 0.25;
    config.on_snapshot = note_snapshot;
    config.observer = &noted;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 5);
    kit_run(&kit, 1);
    assert_int_equal(noted, config.cache->num_blocks / 4);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_comes_back),
        cmocka_unit_test(adapter_comes_back_from_an_image),
        cmocka_unit_test(images_come_back),
        cmocka_unit_test(changes_and_refusals),
        cmocka_unit_test(a_snapshot_has_the_watermark),
    };
    return cmocka_run_group_tests_name("sched_params", tests, NULL, NULL);
}
