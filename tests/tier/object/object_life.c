/* tier/object/object_life.c - one operation of an object store tier, for test_moto.py.
 *
 *      object_life ENDPOINT BUCKET OP FIRST NUM [CA_FILE]     OP: store, load, find, remove, all
 *
 * Credentials come from the environment. Prints how many ios have each status, as "DONE 20". */
#include "object_kit.h"

static const char *const ops[] = {NULL, "load", "store", "remove", "find"};
static const char *const statuses[] = {"PENDING", "DONE",   "MISSING",   "NO_ROOM",
                                       "WRONG",   "FAILED", "CANCELLED", "REFUSED"};

static void run(void **state)
{
    char **words = *state;
    object_tier t = {.deadline_ms = 60000};
    t.config.endpoint = words[1];
    t.config.bucket = words[2];
    t.config.tls_ca_file = words[6];
    t.config.access_key = getenv("AWS_ACCESS_KEY_ID");
    t.config.secret_key = getenv("AWS_SECRET_ACCESS_KEY");
    t.config.session_token = getenv("AWS_SESSION_TOKEN");
    t.config.stall_ns = UINT64_C(60000000000); /* Python is not fast */
    t.config.connections = 8;
    t.config.max_attempts = 1; /* a fault would be hidden otherwise */
    object_tier_open(&t, 0);
    if (strcmp(words[3], "all") == 0) {
        object_all_operations(&t);
    } else {
        uint32_t op = 1;
        while (op < COUNT(ops) && strcmp(ops[op], words[3]) != 0)
            op++;
        assert_true(op < COUNT(ops));
        object_do(&t, (quire_tier_op)op, (uint32_t)strtoul(words[4], NULL, 10),
                  (uint32_t)strtoul(words[5], NULL, 10));
    }
    for (uint32_t i = 1; i < COUNT(statuses); i++)
        if (object_count(&t, (quire_tier_status)i) > 0)
            printf("%s %u\n", statuses[i], object_count(&t, (quire_tier_status)i));
    printf("log: %s\n", t.log);
    object_tier_close(&t);
}

int main(int argc, char **argv)
{
    char *words[7] = {NULL};
    for (int i = 0; i < argc && i < 7; i++)
        words[i] = argv[i];
    if (argc < 6)
        return 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(run, words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
