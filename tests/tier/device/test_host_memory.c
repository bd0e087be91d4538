/* tier/device/test_host_memory.c - host memory is what was asked for, and says so; what the
 * machine does
 * not give is an error with a sentence, or left out where it was not demanded. */
#include "base/unit.h"

#include <quire/device.h>

#include <unistd.h>

static char logged[256];

static void keep_log(void *user, quire_log_level level, const char *text)
{
    (void)user;
    (void)level;
    (void)snprintf(logged, sizeof logged, "%s", text);
}

static int open_with(quire_host_memory_config config, quire_host_memory **memory)
{
    logged[0] = 0;
    *memory = NULL;
    config.size = sizeof config;
    config.hooks.log = keep_log;
    int status = quire_host_memory_open(&config, memory);
    assert_int_equal(status == QUIRE_OK, *memory != NULL);
    assert_int_equal(status == QUIRE_OK, quire_refusal()[0] == 0);
    assert_int_equal(status == QUIRE_OK, logged[0] != 0);
    return status;
}

static void check_memory(const quire_host_memory *memory, uint64_t bytes)
{
    const quire_host_memory_info *info = quire_host_memory_get_info(memory);
    unsigned char *data = info->data;
    assert_true(info->bytes >= bytes && info->bytes < bytes + info->page_bytes);
    assert_int_equal((uintptr_t)info->data % info->page_bytes, 0);
    assert_int_equal(info->bytes % info->page_bytes, 0);
    for (uint64_t i = 0; i < info->bytes; i += 512)
        assert_int_equal(data[i], 0);
    memset(data, 0xff, (size_t)info->bytes);
}

static void all_sizes(void **state)
{
    (void)state;
    static const uint64_t SIZES[] = {1,       4096,          65537,  (2 << 20) - 1,
                                     2 << 20, (2 << 20) + 1, 9 << 20};
    for (size_t i = 0; i < COUNT(SIZES); i++)
        for (int variant = 0; variant < 6; variant++) {
            quire_host_memory *memory;
            quire_host_memory_config config = {.bytes = SIZES[i],
                                               .hugepages =
                                                   variant % 2 == 0 ? QUIRE_DEFAULT : QUIRE_OFF,
                                               .prefault = (quire_switch)(variant / 2),
                                               .dump = QUIRE_ON};
            assert_int_equal(open_with(config, &memory), QUIRE_OK);
            const quire_host_memory_info *info = quire_host_memory_get_info(memory);
            assert_int_equal(info->is_prefaulted, config.prefault != QUIRE_OFF);
            assert_int_equal(info->is_locked + info->is_bound, 0);
            if (variant % 2 == 1) {
                assert_int_equal(info->page_bytes, sysconf(_SC_PAGESIZE));
                assert_int_equal(info->is_transparent, 0); /* huge pages were not asked for */
            }
            check_memory(memory, SIZES[i]);
            quire_host_memory_close(memory);
        }
}

/* Either it is there, or the sentence says how to get it. */
static void demands(void **state)
{
    (void)state;
    quire_host_memory *memory;
    quire_host_memory_config config = {.bytes = 4 << 20, .hugepages = QUIRE_ON};
    int status = open_with(config, &memory);
    if (status == QUIRE_OK)
        assert_int_equal(quire_host_memory_get_info(memory)->is_huge, 1);
    else
        assert_non_null(strstr(quire_refusal(), "vm.nr_hugepages=2"));
    quire_host_memory_close(memory);

    config = (quire_host_memory_config){.bytes = 10000, .lock = QUIRE_ON};
    status = open_with(config, &memory);
    if (status == QUIRE_OK)
        assert_int_equal(quire_host_memory_get_info(memory)->is_locked, 1);
    else
        assert_non_null(strstr(quire_refusal(), "ulimit -l"));
    quire_host_memory_close(memory);

    config = (quire_host_memory_config){.bytes = 10000, .bind = QUIRE_ON};
    status = open_with(config, &memory);
    if (status == QUIRE_OK)
        assert_int_equal(quire_host_memory_get_info(memory)->is_bound, 1);
    else
        assert_non_null(strstr(quire_refusal(), "node 0"));
    quire_host_memory_close(memory);
}

static void nodes_that_are_not_there(void **state)
{
    (void)state;
    quire_host_memory *memory;
    quire_host_memory_config config = {.bytes = 10000, .bind = QUIRE_ON, .numa_node = 1023};
    assert_int_equal(open_with(config, &memory), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "1023"));
}

static void wrong_configs(void **state)
{
    (void)state;
    quire_host_memory *memory = NULL;
    for (int wrong = 0; wrong < 8; wrong++) {
        quire_host_memory_config config = {.bytes = 10000};
        quire_switch no_switch = (quire_switch)3;
        config.bytes = wrong == 0 ? 0 : wrong == 1 ? UINT64_MAX : config.bytes;
        config.hugepages = wrong == 2 ? no_switch : QUIRE_DEFAULT;
        config.prefault = wrong == 3 ? no_switch : QUIRE_DEFAULT;
        config.lock = wrong == 4 ? no_switch : QUIRE_DEFAULT;
        config.bind = wrong == 5 ? no_switch : QUIRE_DEFAULT;
        config.dump = wrong == 6 ? no_switch : QUIRE_DEFAULT;
        config.numa_node = wrong == 7 ? 1024 : 0;
        assert_int_equal(open_with(config, &memory), QUIRE_E_CONFIG);
    }
    quire_host_memory_config too_much = {.bytes = UINT64_C(1) << 60}; /* more than addresses have */
    assert_int_equal(open_with(too_much, &memory), QUIRE_E_NOMEM);
    quire_host_memory_config small = {.size = 2};
    assert_int_equal(quire_host_memory_open(&small, &memory), QUIRE_E_CONFIG);
    assert_int_equal(quire_host_memory_open(NULL, &memory), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_host_memory_open(&small, NULL), QUIRE_E_ARGUMENT);
    quire_host_memory_close(NULL);
    assert_null(quire_host_memory_get_info(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes),
        cmocka_unit_test(demands),
        cmocka_unit_test(nodes_that_are_not_there),
        cmocka_unit_test(wrong_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
