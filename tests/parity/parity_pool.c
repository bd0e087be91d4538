/* parity/parity_pool.c - Quire's pool against vLLM's BlockPool.
 *
 * Eight seats hold a request each; lines name seats, and what a seat holds is known on both sides.
 *
 *      pool 64 1 32 1,2,1    64 blocks, caching on, hashes of 32 bytes; group 1 joins 2 of them
 *                            (0.32: has the last of 2 as the key of a block)
 *      q3 0 4 2 9 1          seat 3: 9 hashes, 4 of family 0, then of family 2; group 1; they are
 *                            looked up, to the first miss
 *      03                    seat 3 gets a null block
 *      u3     touch and take what was found     n3 5   get_new_blocks(5) for seat 3
 *      c3 4   cache_full_blocks up to 4         f3     free all, last to first
 *      F3 2 1 free from the third on; 1: first to last
 *      t 4,5  touch    d 4,5  free              e 4,5  evict_blocks        z  reset_prefix_cache
 *      g 0 3 2 0,1           get_cached_block: family, depth, joined, groups
 *      k 0 3 1 7             cache block 7 as the one at depth 3 of family 0, in group 1
 *
 * After each operation its answer, its events and the whole state are compared.
 */
#include "parity/recording.h"
#include "parity/stream.h"

#include <quire/pool.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SEATS = 8,
    GROUPS = 3,
    MAX_BLOCKS = 256,
    MAX_HASHES = 64,
    MAX_HELD = 2 * MAX_BLOCKS,
    MAX_DIGEST = 32,
    MAX_JOINED = 3,
    MAX_EVENTS = MAX_BLOCKS,
    HASH_BLOCK_SIZE = 16
};

static const char *path;

typedef struct seat {
    unsigned char hashes[MAX_HASHES * MAX_DIGEST];
    uint32_t num_hashes; /* joined ones */
    uint32_t hash_len;   /* of a joined one */
    uint32_t group;
    uint32_t scale;
    uint32_t blocks[MAX_HELD];
    uint32_t num_blocks;
    uint32_t num_cached;
    uint32_t found[MAX_HASHES];
    uint32_t num_found;
} seat;

typedef struct pool_case {
    recording r;
    quire_pool *pool;
    uint32_t num_blocks;
    bool is_caching;
    uint32_t digest_bytes;
    uint32_t scales[GROUPS]; /* hashes joined for a block of each group */
    seat seats[SEATS];
    text events[MAX_EVENTS];
    uint32_t num_events;
} pool_case;

/* ---- what is compared ------------------------------------------------------ */

static uint64_t external_hash(const quire_event *event, uint32_t i)
{
    const unsigned char *hash = event->hashes;
    return quire_hash_external(
        (quire_bytes){hash + (size_t)i * event->hash_bytes, event->hash_bytes});
}

static void take_event(void *user, const quire_event *event)
{
    pool_case *c = user;
    recording_expect(&c->r, c->num_events < MAX_EVENTS, "events fit");
    text *t = &c->events[c->num_events++];
    text_clear(t);
    if (event->kind == QUIRE_EVENT_CLEARED) {
        text_add(t, "C");
        return;
    }
    bool stored = event->kind == QUIRE_EVENT_STORED;
    text_add(t, "%c%" PRIu32 ":", stored ? 'S' : 'R', event->group_id);
    bool is_first = true;
    for (uint32_t i = 0; i < event->num_blocks; i++) {
        if (event->blocks[i] == QUIRE_NULL_BLOCK)
            continue; /* vLLM's event leaves them out */
        text_add(t, is_first ? "%" PRIx64 : ",%" PRIx64, external_hash(event, i));
        is_first = false;
    }
    if (stored && event->parent.data == NULL)
        text_add(t, "^-/%" PRIu32, event->block_size);
    else if (stored)
        text_add(t, "^%" PRIx64 "/%" PRIu32, quire_hash_external(event->parent), event->block_size);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(((const text *)a)->data, ((const text *)b)->data);
}

static void add_events(pool_case *c, char op)
{
    if (op == 'e') /* vLLM goes through a Python set, whose order means nothing */
        qsort(c->events, c->num_events, sizeof c->events[0], compare_texts);
    text_add(&c->r.answer, "|");
    for (uint32_t i = 0; i < c->num_events; i++)
        text_add(&c->r.answer, i == 0 ? "%s" : " %s", c->events[i].data);
    c->num_events = 0;
}

static void add_key(text *t, const quire_block_info *info)
{
    const unsigned char *hash = info->hash.data;
    text_add(t, "@%" PRIu32 ".", info->group_id);
    for (size_t i = 0; i < 4; i++)
        text_add(t, "%02x", hash[i]);
    for (size_t i = info->hash.len - 4; i < info->hash.len; i++)
        text_add(t, "%02x", hash[i]);
    text_add(t, ".%zu", info->hash.len);
}

static void add_state(pool_case *c)
{
    uint32_t free_blocks[MAX_BLOCKS];
    text *t = &c->r.answer;
    uint32_t count = quire_pool_get_all_free_blocks(c->pool, free_blocks, MAX_BLOCKS);
    text_add(t, "|%" PRIu32 " %.9f %" PRIu32 "|", quire_pool_get_num_free_blocks(c->pool),
             quire_usage_level(quire_pool_get_usage(c->pool)),
             quire_pool_get_counts(c->pool).num_keys);
    text_add_ids(t, free_blocks, count);
    text_add(t, "|");
    bool is_first = true;
    for (uint32_t b = 1; b < c->num_blocks; b++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(c->pool, b, &info), QUIRE_OK);
        if (info.ref_cnt == 0 && info.hash.data == NULL)
            continue;
        text_add(t, is_first ? "%" PRIu32 ":%" PRIu32 : " %" PRIu32 ":%" PRIu32, b, info.ref_cnt);
        is_first = false;
        if (info.hash.data != NULL)
            add_key(t, &info);
    }
    recording_expect(&c->r, quire_pool_check(c->pool) == QUIRE_OK, "pool is valid");
}

static void expect_ok(pool_case *c, int status)
{
    if (status != QUIRE_OK)
        recording_differs(&c->r, "status", "QUIRE_OK", quire_status_name(status));
}

/* ---- operations on seats --------------------------------------------------- */

static void start_case(pool_case *c)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = c->num_blocks = recording_u32(&c->r);
    c->is_caching = recording_u32(&c->r) != 0;
    config.enable_caching = c->is_caching ? QUIRE_ON : QUIRE_OFF;
    c->digest_bytes = recording_u32(&c->r);
    uint32_t num_groups = recording_ids(&c->r, c->scales, GROUPS);
    config.hash_bytes = MAX_JOINED * c->digest_bytes;
    config.profile = c->r.profile;
    config.on_event = take_event;
    config.event_user = c;
    recording_expect(&c->r, c->num_blocks <= MAX_BLOCKS && c->digest_bytes <= MAX_DIGEST,
                     "pool fits");
    recording_expect(&c->r, num_groups == GROUPS, "number of groups");
    quire_pool_destroy(c->pool);
    expect_ok(c, quire_pool_create(&config, NULL, &c->pool));
    memset(c->seats, 0, sizeof c->seats);
    c->num_events = 0;
    recording_start_case(&c->r);
}

static void get_new_blocks(pool_case *c, seat *s)
{
    uint32_t n = recording_u32(&c->r);
    uint32_t blocks[MAX_HELD];
    recording_expect(&c->r, s->num_blocks + n <= MAX_HELD, "blocks fit");
    int status = quire_pool_get_new_blocks(c->pool, n, blocks);
    if (status != QUIRE_OK) {
        int refusal = n < c->num_blocks ? QUIRE_NO_SPACE : QUIRE_E_RANGE;
        recording_expect(&c->r, status == refusal, "status of a refusal is the right one");
        text_add(&c->r.answer, "!");
        return;
    }
    memcpy(s->blocks + s->num_blocks, blocks, n * sizeof blocks[0]);
    s->num_blocks += n;
    text_add_ids(&c->r.answer, blocks, n);
}

/* Both ways to look a prompt up must agree: hash by hash, and the whole run at once. */
static void look_up(pool_case *c, seat *s)
{
    uint32_t run[MAX_HASHES];
    uint32_t num_run = 0;
    s->num_found = 0;
    while (s->num_found < s->num_hashes) {
        quire_bytes hash = {s->hashes + (size_t)s->num_found * s->hash_len, s->hash_len};
        int status =
            quire_pool_get_cached_block(c->pool, hash, &s->group, 1, &s->found[s->num_found]);
        if (status == QUIRE_MISS)
            break;
        expect_ok(c, status);
        s->num_found++;
    }
    expect_ok(c, quire_pool_get_cached_prefix(c->pool, s->hashes, s->hash_len, s->num_hashes,
                                              &s->group, 1, run, &num_run));
    recording_expect(&c->r,
                     num_run == s->num_found && memcmp(run, s->found, num_run * sizeof *run) == 0,
                     "a run of lookups finds what single ones find");
    text_add_ids(&c->r.answer, s->found, s->num_found);
}

static void sit(pool_case *c, seat *s)
{
    uint32_t first = recording_u32(&c->r);
    uint32_t split = recording_u32(&c->r);
    uint32_t second = recording_u32(&c->r);
    uint32_t length = recording_u32(&c->r);
    uint32_t group = recording_u32(&c->r);
    recording_expect(&c->r, length <= MAX_HASHES && group < GROUPS, "seat fits");
    uint32_t scale = c->scales[group];
    recording_expect(&c->r, scale > 0 && scale <= MAX_JOINED, "joined hashes fit");
    *s = (seat){.num_hashes = length / scale,
                .hash_len = c->digest_bytes * scale,
                .group = group,
                .scale = scale};
    bool joins = c->r.profile == QUIRE_PROFILE_VLLM_0_20;
    for (uint32_t i = 0; i < length; i++)
        stream_digest(i < split ? first : second, i,
                      s->hashes + (size_t)(joins ? i : i / scale) * c->digest_bytes,
                      c->digest_bytes);
    if (!joins)
        s->hash_len = c->digest_bytes;
    if (c->is_caching)
        look_up(c, s);
    else
        text_add(&c->r.answer, "-");
}

static void touch_found(pool_case *c, seat *s)
{
    expect_ok(c, quire_pool_touch(c->pool, s->found, s->num_found));
    memcpy(s->blocks, s->found, s->num_found * sizeof s->found[0]);
    s->num_blocks = s->num_cached = s->num_found;
}

static void cache_full(pool_case *c, seat *s)
{
    uint32_t full = recording_u32(&c->r);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = s->blocks,
                                      .num_cached_blocks = s->num_cached,
                                      .num_full_blocks = full,
                                      .hashes = s->hashes,
                                      .hash_len = s->hash_len,
                                      .num_hashes = s->num_hashes,
                                      .group_id = s->group,
                                      .block_size = HASH_BLOCK_SIZE * s->scale,
                                      .request = s};
    expect_ok(c, quire_pool_cache_full_blocks(c->pool, &params));
    s->num_cached = full > s->num_cached ? full : s->num_cached;
}

static void free_seat(pool_case *c, seat *s, uint32_t start, bool forward)
{
    uint32_t going[MAX_HELD];
    uint32_t count = 0;
    recording_expect(&c->r, start <= s->num_blocks, "seat has so many blocks");
    for (uint32_t i = 0; i < s->num_blocks - start; i++) {
        uint32_t block = s->blocks[forward ? start + i : s->num_blocks - 1 - i];
        if (block != QUIRE_NULL_BLOCK)
            going[count++] = block;
    }
    expect_ok(c, quire_pool_free_blocks(c->pool, going, count));
    s->num_blocks = start;
    s->num_cached = s->num_cached < start ? s->num_cached : start;
}

static void seat_operation(pool_case *c, char op, seat *s)
{
    if (op == 'n') {
        get_new_blocks(c, s);
    } else if (op == 'q') {
        sit(c, s);
    } else if (op == 'u') {
        touch_found(c, s);
    } else if (op == 'c') {
        cache_full(c, s);
    } else if (op == 'f') {
        free_seat(c, s, 0, false);
    } else {
        recording_expect(&c->r, op == 'F', "operation is known");
        uint32_t start = recording_u32(&c->r);
        free_seat(c, s, start, recording_u32(&c->r) != 0);
    }
}

/* ---- operations on blocks -------------------------------------------------- */

static void get_cached(pool_case *c)
{
    unsigned char joined[MAX_JOINED * MAX_DIGEST];
    uint32_t groups[MAX_HASHES];
    uint32_t found[MAX_HASHES];
    uint32_t family = recording_u32(&c->r);
    uint32_t depth = recording_u32(&c->r);
    uint32_t scale = recording_u32(&c->r);
    uint32_t num_groups = recording_ids(&c->r, groups, MAX_HASHES);
    recording_expect(&c->r, scale <= MAX_JOINED, "joined hash fits");
    bool joins = c->r.profile == QUIRE_PROFILE_VLLM_0_20;
    for (uint32_t i = 0; i < scale; i++)
        stream_digest(family, depth * scale + i, joined + (joins ? (size_t)i * c->digest_bytes : 0),
                      c->digest_bytes);
    quire_bytes hash = {joined, (size_t)(joins ? scale : 1) * c->digest_bytes};
    int status = quire_pool_get_cached_block(c->pool, hash, groups, num_groups, found);
    if (status == QUIRE_MISS) {
        text_add(&c->r.answer, "!");
        return;
    }
    expect_ok(c, status);
    text_add_ids(&c->r.answer, found, num_groups);
}

static void cache_one(pool_case *c)
{
    unsigned char hashes[MAX_HASHES * MAX_DIGEST];
    uint32_t blocks[MAX_HASHES] = {QUIRE_NULL_BLOCK};
    uint32_t family = recording_u32(&c->r);
    uint32_t depth = recording_u32(&c->r);
    uint32_t group = recording_u32(&c->r);
    recording_expect(&c->r, depth < MAX_HASHES, "depth fits");
    blocks[depth] = recording_u32(&c->r);
    for (uint32_t i = 0; i <= depth; i++)
        stream_digest(family, i, hashes + (size_t)i * c->digest_bytes, c->digest_bytes);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = blocks,
                                      .num_cached_blocks = depth,
                                      .num_full_blocks = depth + 1,
                                      .hashes = hashes,
                                      .hash_len = c->digest_bytes,
                                      .num_hashes = depth + 1,
                                      .group_id = group,
                                      .block_size = HASH_BLOCK_SIZE};
    expect_ok(c, quire_pool_cache_full_blocks(c->pool, &params));
}

static void block_operation(pool_case *c, char op)
{
    uint32_t blocks[MAX_HELD];
    if (op == 'g') {
        get_cached(c);
    } else if (op == 'k') {
        cache_one(c);
    } else if (op == 'z') {
        int status = quire_pool_reset_prefix_cache(c->pool);
        if (status != QUIRE_BUSY)
            expect_ok(c, status);
        text_add(&c->r.answer, "%d", status == QUIRE_OK);
    } else {
        uint32_t count = recording_ids(&c->r, blocks, MAX_HELD);
        if (op == 't')
            expect_ok(c, quire_pool_touch(c->pool, blocks, count));
        else if (op == 'd')
            expect_ok(c, quire_pool_free_blocks(c->pool, blocks, count));
        else if (op == 'e')
            expect_ok(c, quire_pool_evict_blocks(c->pool, blocks, count));
        else
            recording_expect(&c->r, false, "operation is known");
    }
}

/* ---- the recording --------------------------------------------------------- */

static void run_line(pool_case *c)
{
    const char *word = recording_word(&c->r);
    if (strcmp(word, "pool") == 0) {
        start_case(c);
        return;
    }
    if (strcmp(word, "end") == 0) {
        recording_check_case(&c->r);
        return;
    }
    bool has_seat = word[1] >= '0' && word[1] < '0' + SEATS;
    seat *s = has_seat ? &c->seats[word[1] - '0'] : NULL;
    if (has_seat && word[0] == '0') {
        recording_expect(&c->r, s->num_blocks < MAX_HELD, "blocks fit");
        s->blocks[s->num_blocks++] = QUIRE_NULL_BLOCK;
        return;
    }
    text_add(&c->r.answer, "%c=", word[0]);
    if (has_seat)
        seat_operation(c, word[0], s);
    else
        block_operation(c, word[0]);
    add_events(c, word[0]);
    add_state(c);
    recording_check_answer(&c->r);
}

static void pool_answers_as_vllm(void **state)
{
    (void)state;
    static pool_case c;
    recording_open(&c.r, path, "pool");
    while (recording_next(&c.r))
        run_line(&c);
    recording_close(&c.r);
    quire_pool_destroy(c.pool);
    for (uint32_t i = 0; i < MAX_EVENTS; i++)
        text_free(&c.events[i]);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/pool.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test(pool_answers_as_vllm)};
    return cmocka_run_group_tests_name("parity_pool", tests, NULL, NULL);
}
