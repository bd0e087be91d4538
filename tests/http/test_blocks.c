/* http/test_blocks.c - /blocks: its numbers are those of the maps, and add up. */
#include "http/json_check.h"
#include "http/server_kit.h"

#include <stdlib.h>

/* The numbers of the list behind `"state":[` of the cells, summed. */
static uint64_t sum_of_cells(const char *text, const char *state, uint32_t *num)
{
    char key[32];
    uint64_t sum = 0;
    (void)snprintf(key, sizeof key, "\"%s\":[", state);
    const char *at = strstr(text, key);
    assert_non_null(at);
    at += strlen(key) - 1;
    for (*num = 0; *at != ']'; ++*num) {
        char *end;
        sum += strtoull(at + 1, &end, 10);
        at = end;
    }
    return sum;
}

/* What a map says of itself is what its cells have; returns how many blocks are active. */
static uint64_t check_map(const char *text)
{
    static const char *const STATES[] = {"cached", "active", "pinned"};
    uint64_t total = json_number(text, "total");
    uint64_t size = json_number(text, "cell_blocks");
    uint64_t sum = json_number(text, "null") + json_number(text, "empty");
    assert_non_null(strstr(text, "{\"name\":\"gpu\",\"medium\":\"GPU\",\"first_step\":"));
    assert_int_equal(total, 97);
    for (size_t i = 0; i < COUNT(STATES); i++) {
        uint32_t num_cells;
        uint64_t count = json_number(text, STATES[i]);
        assert_int_equal(sum_of_cells(text, STATES[i], &num_cells), count);
        assert_int_equal(num_cells, (total + size - 1) / size);
        sum += i < 2 ? count : 0;
    }
    assert_int_equal(sum, total);
    return json_number(text, "active");
}

static const char *get_blocks(server_kit *kit)
{
    assert_int_equal(server_get(kit, "/blocks"), 200);
    const char *text = client_body(&kit->reply);
    assert_true(json_check(text, kit->reply.body_bytes));
    return text;
}

static void block_maps_are_served(void **state)
{
    (void)state;
    static const char NONE[] = "{\"version\":1,\"map_ms\":1,\"maps\":[]}\n";
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    assert_memory_equal(get_blocks(&kit), NONE, sizeof NONE - 1);
    uint64_t most_active = 0;
    for (int round = 0; round < 20; round++) {
        engine_run(&kit.engine, 200);
        const char *text = get_blocks(&kit);
        uint64_t active = check_map(text);
        most_active = active > most_active ? active : most_active;
        assert_true(json_number(text, "last_step") <= kit.engine.num_steps);
        assert_true(json_number(text, "first_step") <= json_number(text, "last_step"));
    }
    assert_true(most_active > 0);
    engine_drain(&kit.engine);
    const char *text = get_blocks(&kit);
    uint64_t active = check_map(text);
    if (json_number(text, "cell_blocks") == 1) { /* the hostile build draws in parts */
        assert_non_null(strstr(text, "\"after\":\"update\""));
        assert_int_equal(active, 0);
    }
    server_close(&kit);
}

/* While the engine works: each answer is whole. */
static void maps_are_whole_while_the_engine_works(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    engine_run(&kit.engine, 100);
    engine_start(&kit.engine, UINT64_MAX, 20);
    uint64_t last = 0;
    uint32_t num_new = 0;
    for (int i = 0; i < 300; i++) {
        const char *text = get_blocks(&kit);
        uint64_t step = json_number(text, "last_step");
        (void)check_map(text);
        assert_true(step >= last);
        num_new += step > last;
        last = step;
    }
    engine_stop(&kit.engine);
    assert_true(num_new > 5);
    server_close(&kit);
}

static void other_parameters_are_refused(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    assert_int_equal(server_get(&kit, "/blocks?token=x"), 200);
    assert_int_equal(server_get(&kit, "/blocks?token=x&limit%0a=3"), 400);
    assert_non_null(
        strstr(client_body(&kit.reply), "blocks has no parameters, and no \"limit?\"\n"));
    server_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_maps_are_served),
        cmocka_unit_test(maps_are_whole_while_the_engine_works),
        cmocka_unit_test(other_parameters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
