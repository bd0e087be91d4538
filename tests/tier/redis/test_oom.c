/* tier/redis/test_oom.c - memory that runs out: for every n, the n-th allocation fails, of opening
 * the Redis tier and of what follows: connections (with TLS where it is built), lookups, jobs.
 * Opening answers with an error, whoever runs goes on; nothing leaks. Names that change
 * or are not found in time are here too, since getaddrinfo is ours. (Linked so that malloc, calloc
 * and getaddrinfo come here.) */
#include "fake.h"
#include "redis_kit.h"

#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <unistd.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found);
void __wrap_freeaddrinfo(struct addrinfo *found);

/* ---- allocations ----------------------------------------------------------- */

static _Atomic uint64_t calls;
static _Atomic uint64_t failing; /* this one; 0: none */

static bool may_go_on(void)
{
    return ++calls != failing;
}

void *__wrap_malloc(size_t size)
{
    return may_go_on() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_go_on() ? __real_calloc(n, size) : NULL;
}

/* ---- names ----------------------------------------------------------------- */

static _Atomic bool is_hanging;
static _Atomic bool is_unknown;
static _Atomic uint32_t answered = 0x7f000001; /* an address */
static _Atomic uint32_t num_lookups;

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    (void)node;
    (void)service;
    (void)hints;
    num_lookups++;
    while (is_hanging)
        usleep(1000);
    if (is_unknown)
        return EAI_NONAME;
    struct addrinfo *a = malloc(sizeof *a + sizeof(struct sockaddr_in));
    if (a == NULL)
        return EAI_MEMORY;
    struct sockaddr_in *address = (struct sockaddr_in *)(a + 1);
    memset(a, 0, sizeof *a + sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(answered);
    a->ai_family = AF_INET;
    a->ai_addr = (struct sockaddr *)address;
    a->ai_addrlen = sizeof *address;
    *found = a;
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *found)
{
    free(found);
}

/* ---- opening and running --------------------------------------------------- */

static redis_fake *fake;
static unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];

static int open_named(quire_tier **tier)
{
    char address[32];
    const char *servers[1] = {address};
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    (void)snprintf(address, sizeof address, "localhost:%d", redis_fake_port(fake));
    config.servers = servers;
    config.num_servers = 1;
    config.fingerprint = fingerprint;
    config.password = "secret";
    config.breaker_ns = 1000000;
    config.max_nodes = 2;
    config.tls_server_name = quire_tier_redis_has_tls() != 0 ? "redis" : NULL;
    config.tls = quire_tier_redis_has_tls() != 0;
    common.deadline_ns = 20000000;
    int status = quire_tier_redis_open(&config, &common, NULL, tier, NULL);
    assert_int_equal(quire_refusal()[0] != 0, status != QUIRE_OK);
    return status;
}

static void run_once(quire_tier *tier)
{
    static unsigned char memory[100];
    quire_tier_io io = {.key = faulty_key(1), .memory = memory, .bytes = sizeof memory};
    quire_tier_job job = {.op = QUIRE_TIER_LOAD, .num_ios = 1, .ios = &io};
    quire_tier_job *ended;
    if (quire_tier_submit(tier, &job) != QUIRE_OK)
        return;
    while (quire_tier_poll(tier, &ended, 1) == 0)
        usleep(100);
    assert_int_not_equal(io.status, QUIRE_TIER_PENDING);
    assert_int_not_equal(io.status, QUIRE_TIER_DONE);
}

static int num_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

/* Threads that are left behind give theirs back when they end. */
static void expect_descriptors(int count)
{
    for (int i = 0; i < 1000 && num_descriptors() != count; i++)
        redis_sleep_ms(10);
    assert_int_equal(num_descriptors(), count);
}

/* The fake knows no TLS: with it, all allocations up to a greeting that fails are met. */
static void every_allocation_fails(void **state)
{
    (void)state;
    int before = num_descriptors();
    fake = redis_fake_start();
    uint64_t n = 0;
    uint64_t most = 0;
    do {
        quire_tier *tier = NULL;
        calls = 0;
        failing = ++n;
        if (open_named(&tier) == QUIRE_OK) {
            run_once(tier);
            failing = 0;
            assert_int_equal(quire_tier_close(tier), QUIRE_OK);
        }
        failing = 0;
        most = calls;
    } while (n <= most && n < 2000);
    printf("%llu allocations\n", (unsigned long long)n);
    assert_true(n > 8);
    redis_fake_stop(fake);
    expect_descriptors(before);
}

/* ---- names that change ----------------------------------------------------- */

static void names_are_looked_up_again(void **state)
{
    (void)state;
    redis_tier t = {.config.connect_ns = 100000000, .deadline_ms = 300};
    char address[32];
    const char *addresses[1] = {address};
    fake = redis_fake_start();
    (void)snprintf(address, sizeof address, "localhost:%d", redis_fake_port(fake));
    answered = 0x7f000009; /* nobody listens there */
    assert_int_equal(redis_tier_open_at(&t, addresses, 1), QUIRE_OK);
    redis_do(&t, QUIRE_TIER_STORE, 0, 3);
    assert_int_equal(redis_count(&t, QUIRE_TIER_DONE), 0);
    answered = 0x7f000001;
    for (int i = 0; i < 500 && redis_count(&t, QUIRE_TIER_DONE) < 3; i++) {
        redis_sleep_ms(10);
        redis_do(&t, QUIRE_TIER_STORE, 0, 3);
    }
    redis_expect_only(&t, REDIS_BIT(DONE));
    uint32_t before = num_lookups;
    redis_fake_cut(fake);
    for (int i = 0; i < 500 && num_lookups == before; i++)
        redis_do(&t, QUIRE_TIER_LOAD, 0, 3);
    assert_true(num_lookups > before);
    is_unknown = true;
    redis_fake_cut(fake);
    redis_sleep_ms(20);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 3);
    is_unknown = false;
    redis_tier_close(&t);
    redis_fake_stop(fake);
}

/* A lookup that does not come back: jobs end, and so does the tier. */
static void lookups_may_hang(void **state)
{
    (void)state;
    redis_tier t = {.config.connect_ns = 50000000, .deadline_ms = 150, .breaker_ms = 20};
    char address[32];
    const char *addresses[1] = {address};
    int before = num_descriptors();
    fake = redis_fake_start();
    (void)snprintf(address, sizeof address, "localhost:%d", redis_fake_port(fake));
    is_hanging = true;
    assert_int_equal(redis_tier_open_at(&t, addresses, 1), QUIRE_OK);
    for (int i = 0; i < 3; i++) {
        redis_do(&t, QUIRE_TIER_LOAD, 0, 3);
        redis_expect_only(&t, REDIS_BIT(FAILED) | REDIS_BIT(REFUSED));
        assert_true(t.took_ms < 150 + REDIS_SLACK_MS);
    }
    redis_tier_close(&t);
    is_hanging = false;
    redis_fake_stop(fake);
    expect_descriptors(before);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(names_are_looked_up_again),
        cmocka_unit_test(lookups_may_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
