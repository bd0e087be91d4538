/* shared_cache.c - two engines, one cache: what one has computed, the other loads.
 *
 *      process A   computes the blocks of a prompt ── stores ──►  Redis cluster, or a directory
 *      process B   the same prompt, another tail   ◄── loads ───  that both can reach
 *
 *      shared_cache 127.0.0.1:7000      through Redis (quire tier redis-cluster up starts one)
 *      shared_cache /mnt/kv             through a directory
 *
 * They agree on names without talking to each other: the same hasher (algorithm and seed) names the
 * same tokens alike, and the fingerprint says what the bytes mean; another model, dtype or layout
 * has another, and finds nothing. Computing a block is a pattern of its key here, so that B can
 * tell whether it got what A computed.
 */
#include <quire.h>
#include <quire/tier_file.h>
#include <quire/tier_redis.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_SIZE = 16, NUM_BLOCKS = 8, PROMPT = BLOCK_SIZE * NUM_BLOCKS, SHARED_BLOCKS = 6 };
enum { BLOCK_BYTES = 256 * 1024 };

static unsigned char memory[NUM_BLOCKS][BLOCK_BYTES];

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

/* ---- names ----------------------------------------------------------------- */

/* The keys of a prompt's blocks: each hash stands for all tokens up to there. */
static void name_blocks(const quire_token *prompt, quire_tier_key *keys)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *hasher;
    quire_chain *chain;
    unsigned char hashes[NUM_BLOCKS * 32];
    size_t count;
    config.block_size = BLOCK_SIZE;
    config.seed = (quire_bytes){"fleet", 5}; /* the same everywhere */
    must(quire_hasher_create(&config, NULL, &hasher), "hasher");
    void *room = malloc(quire_chain_bytes(hasher));
    must(quire_chain_init(hasher, room, quire_chain_bytes(hasher), &chain), "chain");
    must(quire_chain_append(hasher, chain, prompt, PROMPT, NULL, hashes, NUM_BLOCKS, &count),
         "hashes");
    for (uint32_t i = 0; i < NUM_BLOCKS; i++)
        quire_tier_key_of((quire_bytes){hashes + i * 32, 32}, 0, 0, &keys[i]);
    free(room);
    quire_hasher_destroy(hasher);
}

static void name_content(unsigned char *fingerprint)
{
    quire_identity identity = QUIRE_IDENTITY_INIT;
    identity.model = (quire_bytes){"example/model", 13};
    identity.weights_digest = (quire_bytes){"revision 1", 10};
    identity.kv_dtype = (quire_bytes){"bfloat16", 8};
    identity.hash_algorithm = (quire_bytes){"sha256", 6};
    identity.hash_seed = (quire_bytes){"fleet", 5};
    identity.block_tokens = BLOCK_SIZE;
    identity.block_bytes = BLOCK_BYTES;
    must(quire_fingerprint(&identity, fingerprint), "fingerprint");
}

/* ---- the tier -------------------------------------------------------------- */

static quire_tier *open_tier(const char *where)
{
    quire_tier *tier;
    int status;
    if (strchr(where, '/') != NULL && strncmp(where, "unix:", 5) != 0) {
        quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
        config.path = where;
        config.is_shared = 1;
        config.block_bytes = BLOCK_BYTES;
        config.capacity_bytes = UINT64_C(1) << 30;
        name_content(config.fingerprint);
        status = quire_tier_file_open(&config, NULL, NULL, &tier);
    } else {
        unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
        quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
        name_content(fingerprint);
        config.servers = &where;
        config.num_servers = 1;
        config.fingerprint = fingerprint;
        config.wait_ns = UINT64_C(3000000000); /* an example: say at once that there is none */
        status = quire_tier_redis_open(&config, NULL, NULL, &tier, NULL);
    }
    must(status, quire_refusal());
    return tier;
}

/* Submits a job and waits. An engine goes on with its steps instead, and polls once in each. */
static uint32_t run_job(quire_tier *tier, quire_tier_op op, const quire_tier_key *keys, uint32_t n)
{
    quire_tier_io ios[NUM_BLOCKS] = {0};
    quire_tier_job job = {.op = op, .num_ios = n, .ios = ios};
    quire_tier_job *ended;
    uint32_t num_done = 0;
    for (uint32_t i = 0; i < n; i++) {
        ios[i].key = keys[i];
        ios[i].memory = memory[i];
        ios[i].bytes = BLOCK_BYTES;
    }
    must(quire_tier_submit(tier, &job), "submit");
    while (quire_tier_poll(tier, &ended, 1) == 0) {
        struct timespec step = {.tv_nsec = 200000};
        nanosleep(&step, NULL);
    }
    while (num_done < n && ios[num_done].status == QUIRE_TIER_DONE)
        num_done++;
    return num_done; /* of a prefix, only what is there without a gap is of use */
}

/* ---- two engines ----------------------------------------------------------- */

static void compute(const quire_tier_key *key, unsigned char *block)
{
    for (uint32_t i = 0; i < BLOCK_BYTES; i++)
        block[i] = (unsigned char)(key->hash[i % 32] + i / 32);
}

static void make_prompt(quire_token *prompt, int tail)
{
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i < SHARED_BLOCKS * BLOCK_SIZE ? i : i + 1000 * tail;
}

static int engine_a(const char *where)
{
    quire_token prompt[PROMPT];
    quire_tier_key keys[NUM_BLOCKS];
    quire_tier *tier = open_tier(where);
    make_prompt(prompt, 1);
    name_blocks(prompt, keys);
    for (uint32_t i = 0; i < NUM_BLOCKS; i++)
        compute(&keys[i], memory[i]);
    uint32_t num_stored = run_job(tier, QUIRE_TIER_STORE, keys, NUM_BLOCKS);
    printf("A: computed %d blocks, stored %u\n", NUM_BLOCKS, num_stored);
    must(quire_tier_close(tier), "close");
    return num_stored == NUM_BLOCKS ? 0 : 1;
}

static int engine_b(const char *where)
{
    static unsigned char expected[BLOCK_BYTES];
    quire_token prompt[PROMPT];
    quire_tier_key keys[NUM_BLOCKS];
    quire_tier *tier = open_tier(where);
    make_prompt(prompt, 2);
    name_blocks(prompt, keys);
    uint32_t num_found = run_job(tier, QUIRE_TIER_FIND, keys, NUM_BLOCKS);
    uint32_t num_loaded = num_found == 0 ? 0 : run_job(tier, QUIRE_TIER_LOAD, keys, num_found);
    uint32_t num_right = 0;
    for (uint32_t i = 0; i < num_loaded; i++) {
        compute(&keys[i], expected);
        num_right += memcmp(memory[i], expected, BLOCK_BYTES) == 0;
    }
    printf("B: found %u of %d blocks, loaded %u, %u as A computed them; computes %u\n", num_found,
           NUM_BLOCKS, num_loaded, num_right, NUM_BLOCKS - num_loaded);
    must(quire_tier_close(tier), "close");
    return num_right == SHARED_BLOCKS ? 0 : 1;
}

/* A process of its own, as on another machine. */
static int run_engine(int (*engine)(const char *where), const char *where)
{
    int status = 1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        exit(engine(where));
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: shared_cache SERVER[:PORT] | DIRECTORY/\n");
        return 2;
    }
    return run_engine(engine_a, argv[1]) != 0 || run_engine(engine_b, argv[1]) != 0;
}
