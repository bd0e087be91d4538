/* sched_image/test_image_damage.c - images that are cut off, changed, forged, or of another config.
 *
 *      damaged   as it comes from a disk: every length, every byte; always refused
 *      forged    the same with a checksum that is right again: refused or taken, but never more
 *                than that. What is taken has passed the walker, and can be stepped and saved
 */
#include "hash/digest.h"
#include "image_world.h"
#include "model/plain.h"
#include "sched/sched.h"

enum { LENGTH_AT = 16, HEAD_BYTES = 56, CHECKSUM_BYTES = 16 };

#ifdef MODEL_SLOW
enum { BITS_APART = 8, CHANGES_APART = 5 }; /* one change of a byte, another one of the next */
#else
enum { BITS_APART = 1, CHANGES_APART = 1 };
#endif

static world w;

/* A world in the middle of its work, and its image. */
static unsigned char *open_busy(uint64_t seed, uint32_t rounds, size_t *bytes)
{
    world_open(&w, seed);
    for (uint32_t i = 0; i < rounds; i++)
        assert_true(world_round(&w));
    return world_save(&w, 0, bytes);
}

/* The first of some seeds whose world is as asked for. */
static unsigned char *open_some(uint32_t nth, size_t *bytes)
{
    for (uint64_t seed = 1;; seed++) {
        unsigned char *image = open_busy(seed, 24, bytes);
        bool is_rich = w.num_batches > 0 &&
                       quire_sched_get_counts(w.sides[0].sched).num_running > 1 &&
                       quire_sched_get_counts(w.sides[0].sched).num_waiting > 1 && *bytes < 6000;
        if (is_rich && nth-- == 0)
            return image;
        free(image);
        world_close(&w);
    }
}

/* The same with a request whose KV is in host slots. */
static unsigned char *open_swapped(size_t *bytes)
{
    for (uint64_t seed = 1;; seed++) {
        unsigned char *image = open_busy(seed, 24, bytes);
        if (w.sides[0].sched->swap.num_requests > 0 && w.num_batches > 0 && *bytes < 6000)
            return image;
        free(image);
        world_close(&w);
    }
}

static void close_world(unsigned char *image)
{
    free(image);
    world_close(&w);
}

/* One piece of memory for all tries. */
static void *try_memory(size_t bytes)
{
    static void *memory;
    static size_t room;
    if (bytes > room) {
        free(memory);
        room = (bytes + 63) / 64 * 64;
        memory = aligned_alloc(64, room);
        assert_non_null(memory);
    }
    return memory;
}

/* Restores into memory that nobody needs; a forged one is used a little. */
static int try_image(const unsigned char *image, size_t bytes)
{
    quire_sched_config config = world_side_config(&w, 1);
    size_t needed = quire_sched_bytes(&config);
    quire_sched *sched = (quire_sched *)&w; /* to see that it stays */
    int err = quire_sched_restore(&config,
                                  &(quire_allocator){.memory = try_memory(needed), .bytes = needed},
                                  image, bytes, &sched);
    if (err != QUIRE_OK) {
        assert_ptr_equal(sched, &w);
        return err;
    }
    assert_int_equal(quire_sched_check(sched), QUIRE_OK);
    const quire_token tokens[WORLD_MAX_SEQS] = {0};
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = tokens};
    const quire_outputs *outputs;
    const quire_step *step;
    quire_sched_schedule(sched, &step);
    quire_sched_update(sched, w.batches[0].step, &output, &outputs);
    quire_sched_schedule(sched, &step);
    quire_sched_finish_all(sched, QUIRE_REQ_FINISHED_ABORTED, NULL);
    quire_sched_schedule(sched, &step);
    size_t room = quire_sched_image_bytes(sched);
    size_t written;
    unsigned char *again = malloc(room);
    assert_non_null(again);
    assert_int_equal(quire_sched_save(sched, again, room, &written), QUIRE_OK);
    free(again);
    quire_sched_destroy(sched);
    return QUIRE_OK;
}

static bool is_refused(int err)
{
    return err == QUIRE_E_CORRUPT || err == QUIRE_E_CONFIG;
}

/* Length and checksum as they must be. */
static void seal(unsigned char *image, size_t bytes)
{
    uint64_t length = bytes;
    memcpy(image + LENGTH_AT, &length, sizeof length);
    qr_xxh3_128(image, bytes - CHECKSUM_BYTES, image + bytes - CHECKSUM_BYTES);
}

static void cut_images_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *image = open_some(0, &bytes);
    w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
    for (size_t n = 0; n < bytes; n++) {
        unsigned char *part = malloc(n + 1); /* exactly as long, so that reading on is seen */
        assert_non_null(part);
        memcpy(part, image, n);
        assert_int_equal(try_image(part, n), QUIRE_E_CORRUPT);
        free(part);
    }
    assert_int_equal(try_image(image, bytes), QUIRE_OK);
    close_world(image);
}

static void cut_and_forged_images_are_refused(void **state)
{
    (void)state;
    for (uint32_t nth = 0; nth < 3; nth++) {
        size_t bytes;
        unsigned char *image = open_some(nth, &bytes);
        w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
        for (size_t n = HEAD_BYTES + CHECKSUM_BYTES; n < bytes; n++) {
            unsigned char *part = malloc(n);
            assert_non_null(part);
            memcpy(part, image, n);
            seal(part, n);
            assert_int_equal(try_image(part, n), QUIRE_E_CORRUPT);
            free(part);
        }
        unsigned char *longer = calloc(1, bytes + 8);
        assert_non_null(longer);
        memcpy(longer, image, bytes);
        seal(longer, bytes + 8);
        assert_int_equal(try_image(longer, bytes + 8), QUIRE_E_CORRUPT);
        free(longer);
        close_world(image);
    }
}

static void flipped_bytes_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *image = open_some(1, &bytes);
    w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
    for (size_t at = 0; at < bytes; at++) {
        for (size_t bit = at % BITS_APART; bit < 8; bit += BITS_APART) {
            image[at] ^= (unsigned char)(1u << bit);
            assert_true(is_refused(try_image(image, bytes)));
            image[at] ^= (unsigned char)(1u << bit);
        }
    }
    assert_int_equal(try_image(image, bytes), QUIRE_OK);
    close_world(image);
}

/* Every byte takes some other values, and the checksum follows. */
static void forged_bytes_do_no_harm(void **state)
{
    (void)state;
    static const unsigned char CHANGES[] = {0x01, 0x02, 0x80, 0xff, 0x0f};
    uint32_t num_taken = 0;
    uint32_t num_refused = 0;
    for (uint32_t nth = 0; nth < 5; nth++) {
        size_t bytes;
        unsigned char *image = nth == 4 ? open_swapped(&bytes) : open_some(nth, &bytes);
        w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
        for (size_t at = 0; at < bytes - CHECKSUM_BYTES; at++) {
            for (size_t i = at % CHANGES_APART; i < COUNT(CHANGES); i += CHANGES_APART) {
                image[at] ^= CHANGES[i];
                if (at < LENGTH_AT || at >= LENGTH_AT + 8)
                    seal(image, bytes);
                int err = try_image(image, bytes);
                assert_true(err == QUIRE_OK || is_refused(err));
                assert_true(err != QUIRE_OK || at >= HEAD_BYTES);
                num_taken += err == QUIRE_OK;
                num_refused += err != QUIRE_OK;
                image[at] ^= CHANGES[i];
            }
            seal(image, bytes);
        }
        close_world(image);
    }
    printf("forged: %u refused, %u taken\n", num_refused, num_taken);
    assert_true(num_refused > 0 && num_taken > 0);
}

/* update looks at the request some places further before it looks at whether that is there: each
 * request of a step in flight must have a slot. */
static void requests_of_a_step_must_have_slots(void **state)
{
    (void)state;
    size_t bytes = 0;
    const qr_batch *batch = NULL;
    for (uint64_t seed = 1; batch == NULL || batch->num_reqs < 3 * QR_FETCH_AHEAD; seed++) {
        if (batch != NULL)
            world_close(&w);
        world_open_wide(&w, seed, false);
        for (uint32_t i = 0; i < 30 || (i < 60 && w.sides[0].sched->flight.num_batches == 0); i++)
            assert_true(world_round(&w));
        batch = &w.sides[0].sched->flight.batches[w.sides[0].sched->flight.first_batch];
    }
    unsigned char *image = world_save(&w, 0, &bytes);
    w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
    assert_true(w.sides[0].sched->flight.num_batches > 0);
    size_t length = batch->num_reqs * sizeof *batch->reqs;
    size_t at = 0;
    while (memcmp(image + at, batch->reqs, length) != 0)
        assert_true(++at + length < bytes);
    static const uint32_t WRONG[] = {0, WORLD_MAX_REQUESTS + 1, 0xf0000000, UINT32_MAX};
    for (size_t i = 0; i < COUNT(WRONG); i++) {
        quire_req req = batch->reqs[2 * QR_FETCH_AHEAD];
        quire_req wrong = (req & ~(quire_req)UINT32_MAX) | WRONG[i];
        memcpy(image + at + 2 * QR_FETCH_AHEAD * sizeof req, &wrong, sizeof wrong);
        seal(image, bytes);
        assert_int_equal(try_image(image, bytes), QUIRE_E_CORRUPT);
    }
    close_world(image);
}

/* ---- other configs --------------------------------------------------------- */

static int try_config(const quire_sched_config *config, const unsigned char *image, size_t bytes)
{
    quire_sched *sched = NULL;
    int err = quire_sched_restore(config, NULL, image, bytes, &sched);
    quire_sched_destroy(sched);
    return err;
}

static void other_configs_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *image = open_some(2, &bytes);
    w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
    const quire_sched_config right = world_side_config(&w, 1);
    assert_int_equal(try_config(&right, image, bytes), QUIRE_OK);
    quire_sched_config wrong[16];
    quire_cache_config caches[COUNT(wrong)];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        caches[i] = *right.cache;
        wrong[i] = right;
        wrong[i].cache = &caches[i];
    }
    wrong[0].cache->num_blocks++;
    wrong[1].max_num_seqs++;
    wrong[2].max_requests++;
    wrong[3].policy = right.policy == QUIRE_POLICY_FCFS ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    wrong[4].num_spec_tokens++;
    wrong[5].profile =
        right.profile == QUIRE_PROFILE_DEFAULT ? QUIRE_PROFILE_VLLM_0_20 : QUIRE_PROFILE_DEFAULT;
    wrong[6].cache->max_model_len++;
    wrong[7].max_num_batched_tokens++;
    wrong[8].max_batches++;
    wrong[9].encoder_cache_size++;
    wrong[10].async_scheduling = right.async_scheduling == QUIRE_ON ? QUIRE_OFF : QUIRE_ON;
    wrong[11].max_request_bytes += 8;
    wrong[12].log_stats = right.log_stats == QUIRE_ON ? QUIRE_OFF : QUIRE_ON;
    wrong[13].cache->event_log_bytes += 64;
    wrong[14].cache->watermark = 0.5;
    wrong[15].grammar = NULL;
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(try_config(&wrong[i], image, bytes), QUIRE_E_CONFIG);

    quire_cache_config quiet = *right.cache;
    quire_sched_config silent = right; /* callbacks are no part of it */
    silent.cache = &quiet;
    silent.cache->on_event = NULL;
    assert_int_equal(try_config(&silent, image, bytes), QUIRE_OK);
    close_world(image);
}

static void another_none_hash_is_refused(void **state)
{
    (void)state;
    for (uint32_t nth = 0; nth < 8; nth++) {
        size_t bytes;
        unsigned char *image = open_some(nth, &bytes);
        bool caches = w.config.cache->enable_caching != QUIRE_OFF;
        w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
        w.hasher_config.seed = (quire_bytes){"other", 5};
        quire_hasher *other = world_make_hasher(&w);
        quire_sched_config config = world_side_config(&w, 1);
        assert_int_equal(try_config(&config, image, bytes), QUIRE_OK);
        config.hasher = other;
        assert_int_equal(try_config(&config, image, bytes), caches ? QUIRE_E_CONFIG : QUIRE_OK);
        quire_hasher_destroy(other);
        close_world(image);
    }
}

static void another_version_is_refused(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *image = open_some(0, &bytes);
    w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
    image[8]++;
    seal(image, bytes);
    assert_int_equal(try_image(image, bytes), QUIRE_E_CONFIG);
    image[8]--;
    image[12]++; /* byte order */
    seal(image, bytes);
    assert_int_equal(try_image(image, bytes), QUIRE_E_CONFIG);
    image[12]--;
    image[0]++;
    seal(image, bytes);
    assert_int_equal(try_image(image, bytes), QUIRE_E_CORRUPT);
    close_world(image);
}

/* ---- arguments ------------------------------------------------------------- */

static void save_checks_its_arguments(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *image = open_some(0, &bytes);
    quire_sched *sched = w.sides[0].sched;
    size_t written = 77;
    assert_int_equal(quire_sched_image_bytes(NULL), 0);
    assert_int_equal(quire_sched_save(NULL, image, bytes, &written), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_save(sched, NULL, bytes, &written), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_save(sched, image, bytes, NULL), QUIRE_E_ARGUMENT);
    unsigned char before = image[0];
    image[0] = 'x';
    assert_int_equal(quire_sched_save(sched, image, bytes - 1, &written), QUIRE_E_TOO_SMALL);
    assert_int_equal(written, bytes);
    assert_int_equal(image[0], 'x');
    image[0] = before;
    quire_sched_config config = world_side_config(&w, 0);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(&config, NULL, NULL, bytes, &made), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_restore(NULL, NULL, image, bytes, &made), QUIRE_E_ARGUMENT);
    assert_null(made);
    close_world(image);
}

static void restore_in_uses_the_callers_memory(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *image = open_some(3, &bytes);
    quire_hasher *hasher = world_make_hasher(&w);
    quire_sched_config config = world_side_config(&w, 0);
    config.hasher = hasher;
    size_t room = (quire_sched_bytes(&config) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, room);
    assert_non_null(memory);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(&config, &(quire_allocator){.memory = memory, .bytes = 64},
                                         image, bytes, &made),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_sched_restore(&config,
                                         &(quire_allocator){.memory = memory, .bytes = room}, image,
                                         bytes - 1, &made),
                     QUIRE_E_CORRUPT);
    assert_int_equal(quire_sched_restore(&config, &(quire_allocator){.memory = NULL, .bytes = room},
                                         image, bytes, &made),
                     QUIRE_E_ARGUMENT);
    assert_null(made);
    unsigned char *shifted = malloc(bytes + 1); /* an image may lie anywhere */
    assert_non_null(shifted);
    memcpy(shifted + 1, image, bytes);
    assert_int_equal(quire_sched_restore(&config,
                                         &(quire_allocator){.memory = memory, .bytes = room},
                                         shifted + 1, bytes, &made),
                     QUIRE_OK);
    assert_int_equal(quire_sched_get_counts(made).num_running,
                     quire_sched_get_counts(w.sides[0].sched).num_running);
    quire_sched_destroy(made);
    free(shifted);
    free(memory);
    quire_hasher_destroy(hasher);
    close_world(image);
}

/* Forks a running request, and lets it write into a block that both have: false when it cannot. */
static bool fork_and_write(quire_sched *sched, quire_cache_request *child)
{
    quire_cache *cache = quire_sched_get_cache(sched);
    quire_cache_request parent = {0};
    quire_req req;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_true(quire_sched_get_queue(sched, 0, &req, 1) > 0);
    assert_int_equal(quire_sched_get_req_info(sched, req, &info), QUIRE_OK);
    parent.seq = info.seq;
    return quire_cache_fork(cache, &parent, child) == QUIRE_OK &&
           quire_cache_copy_on_write(cache, info.seq, 0, info.num_computed_tokens) == QUIRE_OK;
}

static unsigned char *open_forked(size_t *bytes, quire_cache_request *child)
{
    for (uint32_t nth = 0;; nth++) {
        unsigned char *image = open_some(nth, bytes);
        *child = (quire_cache_request){0};
        if (fork_and_write(w.sides[0].sched, child))
            return image;
        close_world(image);
    }
}

/* A fork is nobody's request, and there is no place for it in an image. The copies that it caused
 * are part of the state. */
static void forks_stand_in_the_way_and_copies_do_not(void **state)
{
    (void)state;
    size_t bytes;
    quire_cache_request child = {0};
    unsigned char *image = open_forked(&bytes, &child);
    quire_sched *sched = w.sides[0].sched;
    assert_int_equal(quire_sched_save(sched, image, bytes, &bytes), QUIRE_BUSY);
    assert_int_equal(quire_cache_free(quire_sched_get_cache(sched), &child), QUIRE_OK);
    free(image);
    image = world_save(&w, 0, &bytes);
    assert_int_equal(world_restore(&w, image, bytes), QUIRE_OK);
    const quire_block_copy *copies[2];
    uint32_t num_copies[2];
    for (uint32_t i = 0; i < 2; i++)
        quire_cache_take_copies(quire_sched_get_cache(w.sides[i].sched), &copies[i],
                                &num_copies[i]);
    assert_true(num_copies[0] > 0);
    assert_int_equal(num_copies[0], num_copies[1]);
    assert_memory_equal(copies[0], copies[1], num_copies[0] * sizeof *copies[0]);
    close_world(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_images_are_refused),
        cmocka_unit_test(cut_and_forged_images_are_refused),
        cmocka_unit_test(flipped_bytes_are_refused),
        cmocka_unit_test(forged_bytes_do_no_harm),
        cmocka_unit_test(requests_of_a_step_must_have_slots),
        cmocka_unit_test(other_configs_are_refused),
        cmocka_unit_test(another_none_hash_is_refused),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(save_checks_its_arguments),
        cmocka_unit_test(restore_in_uses_the_callers_memory),
        cmocka_unit_test(forks_stand_in_the_way_and_copies_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
