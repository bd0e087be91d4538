/* sched_image/test_image_old.c - images that an earlier version wrote (data/) are read, and the
 * schedulers go on: in profile 0.20 as schedulers that did the same work from the start. The
 * default profile has other rules since: its schedulers go on as those do that are read from new
 * images of theirs.
 *
 *      sched_image_old                 the test
 *      sched_image_old DIR             writes the images: built with the library of that version
 */
#include "base/unit.h"

#include <quire.h>
#include <quire/image.h>

enum { BLOCK = 4, LEN = 64, SAVED_AT = 9, LAST = 30, NUM_SEQS = 4, IMAGE = 3 };

typedef struct old_side {
    quire_hasher *hasher;
    quire_sched *sched;
    uint64_t digest;
    uint32_t num_ended;
} old_side;

static const struct {
    const char *name;
    quire_profile profile;
} OLD[] = {{"default", QUIRE_PROFILE_DEFAULT}, {"vllm-0.20", QUIRE_PROFILE_VLLM_0_20}};

static quire_group_config groups[2];
static quire_cache_config cache;

static quire_sched_config make_config(old_side *side, quire_profile profile)
{
    quire_hasher_config h = QUIRE_HASHER_CONFIG_INIT;
    h.algo = QUIRE_HASH_SHA256_CBOR;
    h.block_size = BLOCK;
    h.seed = (quire_bytes){"seed", 4};
    h.profile = profile;
    assert_int_equal(quire_hasher_create(&h, NULL, &side->hasher), QUIRE_OK);
    for (uint32_t g = 0; g < 2; g++)
        groups[g] = (quire_group_config){
            .spec = {.kind = g == 0 ? QUIRE_LAYER_FULL : QUIRE_LAYER_SLIDING_WINDOW,
                     .sliding_window = g == 0 ? 0 : 6,
                     .block_size = BLOCK,
                     .num_kv_heads = 1,
                     .head_size = 8,
                     .dtype = QUIRE_DTYPE_FLOAT16}};
    cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    cache.groups = groups;
    cache.num_groups = 2;
    cache.num_blocks = 40;
    cache.max_model_len = LEN;
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    c.cache = &cache;
    c.hasher = side->hasher;
    c.profile = profile;
    c.async_scheduling = QUIRE_ON;
    c.num_spec_tokens = 2;
    c.max_num_seqs = NUM_SEQS;
    c.max_requests = 8;
    c.max_num_batched_tokens = 24;
    c.max_text_tokens = 1024;
    c.max_loras = 2;
    c.encoder_cache_size = 4 * IMAGE;
    c.encoder_compute_budget = 2 * IMAGE;
    c.max_encoder_items = 8;
    return c;
}

static void see(old_side *side, uint64_t value)
{
    uint64_t state = side->digest ^ value;
    side->digest = unit_random(&state);
}

static void add(old_side *side, uint32_t number)
{
    quire_token prompt[LEN];
    char id[8];
    quire_req req;
    quire_mm_input image = {
        .feature = {.identifier = {"picture", 7}, .offset = 2, .length = IMAGE}};
    uint32_t n = 7 + 5 * (number % 4);
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (quire_token)(i < 8 ? i : i * number);
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    p.id = (quire_bytes){id, (size_t)snprintf(id, sizeof id, "r%u", number)};
    p.prompt = prompt;
    p.num_prompt_tokens = n;
    p.max_tokens = 6 + number % 5;
    p.is_resumable = number % 5 == 4;
    p.lora_id = number % 3;
    p.lora_name = p.lora_id == 0 ? (quire_bytes){0} : (quire_bytes){"adapter", 7};
    p.mm_inputs = &image;
    p.num_mm_inputs = number % 2;
    see(side, (uint32_t)quire_sched_add(side->sched, &p, &req));
}

static void see_step(old_side *side, const quire_step *step)
{
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        see(side, step->reqs[i]);
        see(side, (uint64_t)step->num_tokens[i] << 32 | step->num_computed_tokens[i]);
        for (uint32_t g = 0; g < 2; g++)
            for (uint32_t b = 0; b < step->blocks[2 * i + g].count; b++)
                see(side, step->blocks[2 * i + g].ids[b]);
    }
    see(side, step->encoder_start[step->num_reqs]);
    see(side, step->num_freed_encoder);
    see(side, step->num_preempted);
}

/* Step n is scheduled, step n - 1 comes back. */
static void turn(old_side *side, uint32_t n)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[NUM_SEQS];
    if (n % 2 == 1)
        add(side, n / 2);
    for (uint32_t i = 0; i < NUM_SEQS; i++)
        sampled[i] = (quire_token)(n + i);
    assert_int_equal(quire_sched_schedule(side->sched, &step), QUIRE_OK);
    see_step(side, step);
    if (n == 1)
        return;
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    output.sampled = sampled;
    assert_int_equal(quire_sched_update(side->sched, n - 1, &output, &outputs), QUIRE_OK);
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        see(side, outputs->outputs[i].req ^ (uint64_t)outputs->outputs[i].finish_reason << 60);
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        side->num_ended += outputs->outputs[i].finish_reason != 0;
    assert_int_equal(quire_sched_check(side->sched), QUIRE_OK);
}

static void open_and_run(old_side *side, quire_profile profile)
{
    *side = (old_side){0};
    quire_sched_config c = make_config(side, profile);
    assert_int_equal(quire_sched_create(&c, NULL, &side->sched), QUIRE_OK);
    for (uint32_t n = 1; n <= SAVED_AT; n++)
        turn(side, n);
}

static void close_side(old_side *side)
{
    quire_sched_destroy(side->sched);
    quire_hasher_destroy(side->hasher);
}

static FILE *open_file(const char *folder, const char *name, const char *mode)
{
    char path[512];
    snprintf(path, sizeof path, "%s/v13-%s.image", folder, name);
    FILE *file = fopen(path, mode);
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    return file;
}

static void write_images(const char *folder)
{
    for (size_t i = 0; i < COUNT(OLD); i++) {
        old_side side;
        open_and_run(&side, OLD[i].profile);
        size_t bytes = quire_sched_image_bytes(side.sched);
        void *image = malloc(bytes);
        assert_non_null(image);
        assert_int_equal(quire_sched_save(side.sched, image, bytes, &bytes), QUIRE_OK);
        FILE *file = open_file(folder, OLD[i].name, "wb");
        assert_int_equal(fwrite(image, 1, bytes, file), bytes);
        fclose(file);
        free(image);
        close_side(&side);
    }
}

static unsigned char image[1 << 18];

/* Saved by this version, and read. */
static void open_copy(old_side *copy, const old_side *of, quire_profile profile)
{
    size_t bytes;
    *copy = (old_side){0};
    quire_sched_config c = make_config(copy, profile);
    assert_int_equal(quire_sched_save(of->sched, image, sizeof image, &bytes), QUIRE_OK);
    assert_true(image[8] > 13);
    assert_int_equal(quire_sched_restore(&c, NULL, image, bytes, &copy->sched), QUIRE_OK);
}

static void old_images_go_on(void **state)
{
    (void)state;
#ifdef QUIRE_HOSTILE
    skip(); /* the memory of its flags is in other pieces */
#endif
    for (size_t i = 0; i < COUNT(OLD); i++) {
        FILE *file = open_file(QUIRE_TEST_DATA "/../../sched_image/data", OLD[i].name, "rb");
        size_t bytes = fread(image, 1, sizeof image, file);
        fclose(file);
        assert_int_equal(image[8], 13); /* its version */
        old_side other;
        old_side read = {0};
        quire_sched_config c = make_config(&read, OLD[i].profile);
        assert_int_equal(quire_sched_restore(&c, NULL, image, bytes, &read.sched), QUIRE_OK);
        if (OLD[i].profile == QUIRE_PROFILE_VLLM_0_20)
            open_and_run(&other, OLD[i].profile);
        else
            open_copy(&other, &read, OLD[i].profile);
        other.digest = 0;
        for (uint32_t n = SAVED_AT + 1; n <= LAST; n++) {
            turn(&other, n);
            turn(&read, n);
            assert_true(other.digest == read.digest);
        }
        assert_true(read.num_ended > 5); /* more than there were in the image */
        close_side(&other);
        close_side(&read);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_images_go_on)};
    if (argc > 1) {
        write_images(argv[1]);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
