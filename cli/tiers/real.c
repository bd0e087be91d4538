#include "real.h"

#include "output/failure.h"

#include <quire/tier_file.h>
#include <quire/tier_object.h>
#include <quire/tier_peer.h>
#include <quire/tier_redis.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { REAL_MAX_SERVERS = 32, REAL_EVENT_KEYS = 1 << 18 };
/* Jobs are looked at once in a step: a fast disk should have work until then. */
#define REAL_BYTES_IN_FLIGHT (UINT64_C(1) << 30)

/* ---- bytes that say whose they are -------------------------------------------- */

static uint64_t pattern_seed(const quire_pool *pool, quire_block block)
{
    quire_block_info info;
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);
    if (quire_pool_get_block(pool, block, &info) != QUIRE_OK || info.hash.data == NULL)
        return 0;
    const unsigned char *hash = info.hash.data;
    for (size_t i = 0; i < info.hash.len; i++)
        seed = (seed ^ hash[i]) * UINT64_C(0x100000001b3);
    return seed ^ info.group_id;
}

static uint64_t pattern_word(uint64_t seed, uint64_t i)
{
    return (seed + i) * UINT64_C(0xd1342543de82ef95);
}

static void fill(unsigned char *slot, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t word = pattern_word(seed, i);
        memcpy(slot + 8 * i, &word, 8);
    }
}

static bool is_filled(const unsigned char *slot, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t word = pattern_word(seed, i);
        if (memcmp(slot + 8 * i, &word, 8) != 0)
            return false;
    }
    return true;
}

/* A store is made when it is submitted: the slot belongs to it from then on. */
static void real_begun(void *user, const quire_device_job *job)
{
    const tiers_real *r = user;
    for (uint32_t i = 0; job->op == QUIRE_DEVICE_STORE && i < job->num_copies; i++) {
        quire_device_copy *copy = &job->copies[i];
        unsigned char *slot = r->memory + copy->slot * r->block_bytes;
        fill(slot, r->block_bytes, pattern_seed(r->gpu, copy->block));
        copy->crc = quire_crc32c(0, slot, r->block_bytes);
    }
}

static void real_done(void *user, quire_device_job *job)
{
    tiers_real *r = user;
    for (uint32_t i = 0; job->op == QUIRE_DEVICE_LOAD && i < job->num_copies; i++) {
        uint32_t slot = job->copies[i].slot;
        r->num_wrong += !is_filled(r->memory + slot * r->block_bytes, r->block_bytes,
                                   pattern_seed(r->cpu, slot));
    }
}

/* ---- what it lies in ------------------------------------------------------------ */

/* Blocks of another model, block size or way of hashing are never found. */
static int make_fingerprint(tiers_real *r, const tiers_run_config *config)
{
    quire_identity identity = QUIRE_IDENTITY_INIT;
    identity.model = (quire_bytes){config->model, strlen(config->model)};
    identity.layout = (quire_bytes){"quire replay pattern", 20};
    identity.hash_seed = (quire_bytes){"replay", 6};
    identity.block_tokens = config->block_size;
    identity.block_bytes = config->block_bytes;
    identity.hash_algorithm = (quire_bytes){config->hash_algo, strlen(config->hash_algo)};
    return quire_fingerprint(&identity, r->fingerprint);
}

/* The options that set what the library names. */
static void explain(const char *prefix, const char *name, const char *value, int status)
{
    char text[512];
    if (status == QUIRE_E_UNSAFE)
        fail_with("--%s %s is on another machine: add --%s-tls, or --%s-trust-network if the "
                  "network is trusted",
                  name, value, prefix, prefix);
    else
        fail_with("--%s %s: %s", name, value,
                  tls_explain(prefix, quire_refusal(), text, sizeof text));
}

/* The TLS fields of the configs of a server and of clients have the same names. */
#define SET_TLS(c, options)                                                                        \
    (c).tls = (options).is_on, (c).tls_ca_file = (options).ca_file,                                \
    (c).tls_cert_file = (options).cert_file, (c).tls_key_file = (options).key_file
#define SET_CLIENT_TLS(c, options)                                                                 \
    SET_TLS(c, options), (c).tls_trust_any = (options).trust_any,                                  \
                         (c).tls_server_name = (options).server_name

static int open_server(tiers_real *r)
{
    const tiers_settings *s = &r->settings;
    quire_peer_server_config c = QUIRE_PEER_SERVER_CONFIG_INIT;
    c.address = s->peer_listen;
    c.fingerprint = r->fingerprint;
    c.secret_file = s->peer_secret_file;
    c.trust_network = s->peer_trust_network;
    SET_TLS(c, s->peer_tls);
    c.max_blocks = s->cpu_blocks;
    c.max_block_bytes = (uint32_t)r->block_bytes;
    int status = quire_peer_server_open(&c, &r->server);
    if (status != QUIRE_OK)
        explain("peer", "peer-listen", s->peer_listen, status);
    else if (s->peer_port != NULL)
        *s->peer_port = quire_peer_server_port(r->server);
    return status;
}

bool tiers_real_open(tiers_real *r, const tiers_run_config *config, tiers_device *device)
{
    r->block_bytes = config->block_bytes;
    r->settings = *config->settings;
    r->has_events = config->sched->monitor != NULL;
    r->memory_bytes = config->settings->cpu_blocks * config->block_bytes;
    r->memory = mmap(NULL, r->memory_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->memory == MAP_FAILED || make_fingerprint(r, config) != QUIRE_OK) {
        fail_with("--cpu-blocks %u: real blocks of %llu bytes need %.1f GiB of memory: %s",
                  config->settings->cpu_blocks, (unsigned long long)config->block_bytes,
                  (double)r->memory_bytes / (1 << 30), strerror(errno));
        r->memory = NULL;
        return false;
    }
    device->bytes_user = r;
    device->begun = real_begun;
    device->done = real_done;
    return config->settings->peer_listen == NULL || open_server(r) == QUIRE_OK;
}

void tiers_real_close(tiers_real *r)
{
    (void)quire_peer_server_close(r->server);
    if (r->memory != NULL)
        munmap(r->memory, r->memory_bytes);
}

static int open_file(const tiers_real *r, const tiers_lower *lower, quire_slots_policy policy,
                     const quire_tier_config *common, quire_tier **tier)
{
    quire_tier_file_config c = QUIRE_TIER_FILE_CONFIG_INIT;
    c.path = lower->place;
    c.block_bytes = (uint32_t)r->block_bytes;
    c.capacity_bytes = lower->bytes;
    c.policy = policy;
    memcpy(c.fingerprint, r->fingerprint, sizeof c.fingerprint);
    int status = quire_tier_file_open(&c, common, NULL, tier);
    if (status != QUIRE_OK)
        fail_with("%s", quire_refusal());
    return status;
}

/* "HOST:PORT,HOST:PORT" into its parts. */
static uint32_t split_servers(char *text, const char *servers[REAL_MAX_SERVERS])
{
    uint32_t n = 0;
    char *rest = NULL;
    for (char *at = strtok_r(text, ",", &rest); at != NULL && n < REAL_MAX_SERVERS;
         at = strtok_r(NULL, ",", &rest))
        servers[n++] = at;
    return n;
}

static int open_redis(const tiers_real *r, const tiers_lower *lower,
                      const quire_tier_config *common, quire_tier **tier)
{
    enum { FIRST_ANSWER_S = 2 };
    char text[TIERS_PLACE_BYTES];
    const char *servers[REAL_MAX_SERVERS];
    memcpy(text, lower->place, sizeof text);
    quire_tier_redis_config c = QUIRE_TIER_REDIS_CONFIG_INIT;
    c.servers = servers;
    c.num_servers = split_servers(text, servers);
    c.fingerprint = r->fingerprint;
    c.trust_network = r->settings.trust_network;
    c.password_file = r->settings.password_file;
    SET_CLIENT_TLS(c, r->settings.redis_tls);
    c.wait_ns = FIRST_ANSWER_S * UINT64_C(1000000000);
    c.event_keys = r->has_events ? REAL_EVENT_KEYS : 0;
    int status = quire_tier_redis_open(&c, common, NULL, tier, NULL);
    if (status != QUIRE_OK)
        explain("redis", "redis", lower->place, status);
    return status;
}

static int open_peer(const tiers_real *r, const tiers_lower *lower, const quire_tier_config *common,
                     quire_tier **tier)
{
    enum { FIRST_ANSWER_S = 2 };
    quire_tier_peer_config c = QUIRE_TIER_PEER_CONFIG_INIT;
    c.server = lower->place;
    c.fingerprint = r->fingerprint;
    c.secret_file = r->settings.peer_secret_file;
    c.trust_network = r->settings.peer_trust_network;
    SET_CLIENT_TLS(c, r->settings.peer_tls);
    c.max_block_bytes = (uint32_t)r->block_bytes;
    c.wait_ns = FIRST_ANSWER_S * UINT64_C(1000000000);
    c.event_keys = r->has_events ? REAL_EVENT_KEYS : 0;
    int status = quire_tier_peer_open(&c, common, NULL, tier, NULL);
    if (status != QUIRE_OK)
        explain("peer", "peer", lower->place, status);
    return status;
}

/* ENDPOINT/BUCKET, as the options have checked. */
static int open_object(const tiers_real *r, const tiers_lower *lower,
                       const quire_tier_config *common, quire_tier **tier)
{
    enum { FIRST_ANSWER_S = 5 };
    char endpoint[TIERS_PLACE_BYTES];
    memcpy(endpoint, lower->place, sizeof endpoint);
    char *bucket = strrchr(endpoint, '/');
    *bucket++ = '\0';
    quire_tier_object_config c = QUIRE_TIER_OBJECT_CONFIG_INIT;
    c.endpoint = endpoint;
    c.bucket = bucket;
    c.region = r->settings.object_region;
    c.fingerprint = r->fingerprint;
    c.credentials_file = r->settings.object_credentials_file;
    c.tls_ca_file = r->settings.object_tls_ca_file;
    c.trust_network = r->settings.object_trust_network;
    c.wait_ns = FIRST_ANSWER_S * UINT64_C(1000000000);
    c.event_keys = r->has_events ? REAL_EVENT_KEYS : 0;
    int status = quire_tier_object_open(&c, common, NULL, tier, NULL);
    if (status == QUIRE_E_UNSAFE)
        fail_with("--object %s is on another machine: use https://, or add --object-trust-network "
                  "if the network is trusted",
                  lower->place);
    else if (status != QUIRE_OK)
        fail_with("--object %s: %s", lower->place, quire_refusal());
    return status;
}

int tiers_real_open_tier(tiers_real *r, const tiers_lower *lower, quire_slots_policy policy,
                         quire_tier **tier)
{
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.label = tiers_label(lower->kind);
    common.memory = r->memory;
    common.memory_bytes = r->memory_bytes;
    common.max_bytes_in_flight = REAL_BYTES_IN_FLIGHT;
    if (lower->kind == TIERS_FILE)
        return open_file(r, lower, policy, &common, tier);
    if (lower->kind == TIERS_PEER)
        return open_peer(r, lower, &common, tier);
    if (lower->kind == TIERS_OBJECT)
        return open_object(r, lower, &common, tier);
    return open_redis(r, lower, &common, tier);
}

void tiers_real_sleep(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}
