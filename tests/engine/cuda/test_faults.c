/* Every call into CUDA's driver fails once: while a backend is made, in a step, in the reference.
 * Each time the answer is an error, the backend can be destroyed, and nothing is left behind.
 * `test_faults STRIDE`: not every call, but each STRIDE-th. Needs the stand-in: 77 where
 * QUIRE_CUDA_LIBRARY names none.
 */
#include "cuda/fake_cuda.h"
#include "engine/backend.h"
#include "engine/cuda/card.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = 2, LAUNCH_FAILED = 719, BLOCKS = 12, POSITIONS = 32, VOCABULARY = 16 };
enum { MOST_CALLS = 2000 };

static const fake_cuda_controls *controls;
static engine_backend_config config;
static uint64_t most_live; /* that was left after a backend: the card and a seat, in the end */

static void must(int is_good, const char *what, uint64_t nth)
{
    if (is_good)
        return;
    fprintf(stderr, "%s, at call %llu\n", what, (unsigned long long)nth);
    exit(1);
}

static int find_controls(void)
{
    const char *path = getenv("QUIRE_CUDA_LIBRARY");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, "fake_cuda_get_controls");
    fake_cuda_get_controls_t get;
    if (symbol == NULL)
        return 1;
    memcpy(&get, &symbol, sizeof get);
    controls = get();
    return 0;
}

static int create(void **backend)
{
    int status = ENGINE_CUDA_OPS.create(&config, backend);
    must(status == QUIRE_OK || quire_refusal()[0] != 0, "an error without a message", 0);
    return status;
}

/* One of everything that a step can do. */
static int run_step(void *backend, float *logits)
{
    static const quire_block blocks[2] = {3, 7};
    static const uint32_t slots[2] = {0, 1};
    static const quire_token tokens[3] = {1, 2, 3};
    static const int64_t places[3] = {12, 13, 14};
    static const uint32_t last = 2;
    const quire_block_copy copy = {.from = 4, .to = 5};
    const engine_table_diff diff = {.row = 0, .count = 2, .blocks = blocks};
    const engine_span span = {.num_tokens = 3};
    const engine_work work = {.num_swap_out = 2,
                              .swap_out_blocks = blocks,
                              .swap_out_slots = slots,
                              .num_zero = 2,
                              .zero_blocks = blocks,
                              .num_swap_in = 2,
                              .swap_in_blocks = blocks,
                              .swap_in_slots = slots,
                              .num_copies = 1,
                              .copies = &copy,
                              .num_diffs = 1,
                              .diffs = &diff,
                              .num_tokens = 3,
                              .num_spans = 1,
                              .spans = &span,
                              .tokens = tokens,
                              .slot_mappings = {places},
                              .num_logits = 1,
                              .logit_tokens = &last};
    uint64_t ticket;
    const float *seen = NULL;
    float expected[VOCABULARY];
    int status = ENGINE_CUDA_OPS.submit(backend, &work, &ticket);
    if (status == QUIRE_OK)
        status = ENGINE_CUDA_OPS.wait(backend, ticket, &seen);
    if (status == QUIRE_OK)
        memcpy(logits, seen, sizeof expected);
    if (status == QUIRE_OK)
        status = ENGINE_CUDA_OPS.reference(backend, 0, 0, tokens, 3, 1, expected);
    if (status == QUIRE_OK)
        status = ENGINE_CUDA_OPS.reference_copy(backend, 0, 1, 3);
    if (status == QUIRE_OK)
        must(memcmp(logits, expected, sizeof expected) == 0, "logits differ", 0);
    return status;
}

/* Whether call nth of the making, or of the step, was there to fail. */
static int try_fault(uint64_t nth, int is_in_step, int result)
{
    float logits[VOCABULARY];
    void *backend = NULL;
    uint64_t before = controls->num_calls();
    int status = QUIRE_OK;
    if (is_in_step) {
        must(create(&backend) == QUIRE_OK, "create", nth);
        before = controls->num_calls();
    }
    controls->fail_at(NULL, nth, result);
    if (is_in_step)
        status = run_step(backend, logits);
    else
        status = create(&backend);
    int was_hit = controls->num_calls() - before >= nth;
    controls->fail_at(NULL, 0, 0);
    must(status == QUIRE_OK || was_hit, "an error without a fault", nth);
    if (is_in_step || status == QUIRE_OK)
        ENGINE_CUDA_OPS.destroy(backend);
    must(controls->num_misuses() == 0, "a call that the driver would answer with harm", nth);
    uint64_t live = controls->num_live();
    most_live = live > most_live ? live : most_live;
    return was_hit;
}

int main(int argc, char **argv)
{
    uint64_t stride = argc > 1 ? strtoull(argv[1], NULL, 10) : 1; /* every so many-th call */
    float logits[VOCABULARY];
    void *backend = NULL;
    engine_model_config model = {.vocabulary = VOCABULARY, .width = 8, .num_layers = 2};
    model.num_heads = 2;
    model.num_kv_heads = 1;
    model.head_size = 4;
    model.hidden = 8;
    model.max_positions = POSITIONS;
    model.num_groups = 1;
    if (find_controls() != 0 || engine_ptx_bytes <= 1)
        return 77;
    config = (engine_backend_config){.model = engine_model_create(&model), .num_blocks = BLOCKS};
    config.block_sizes[0] = 4;
    config.max_rows = 2;
    config.max_row_blocks = 8;
    config.max_tokens = config.max_logits = 8;
    config.max_works = 2;
    config.num_swap_blocks = config.num_slots = 4;
    config.num_references = 2;
    config.slots = aligned_alloc(4096, 4096 * (4 * engine_block_bytes(&config) / 4096 + 1));
    must(config.model != NULL && config.slots != NULL, "memory", 0);
    uint64_t calls[3] = {1, 1,
                         1}; /* of a making with all that backends share, without, of a step */
    for (int i = 0; i < 3; i++)
        while (calls[i] < MOST_CALLS &&
               try_fault(calls[i], i == 2, i == 2 ? LAUNCH_FAILED : OUT_OF_MEMORY))
            calls[i] += stride;
    must(calls[0] > 20 && calls[1] > 20 && calls[2] > 20, "too few calls to be true", calls[0]);
    must(create(&backend) == QUIRE_OK && run_step(backend, logits) == QUIRE_OK, "the end", 0);
    ENGINE_CUDA_OPS.destroy(backend);
    must(controls->num_live() == most_live, "something was left behind", 0);
    printf("of %llu and %llu calls in create and %llu in a step, each %llu. failed\n",
           (unsigned long long)calls[0] - 1, (unsigned long long)calls[1] - 1,
           (unsigned long long)calls[2] - 1, (unsigned long long)stride);
    free(config.slots);
    engine_model_destroy((engine_model *)(uintptr_t)config.model);
}
