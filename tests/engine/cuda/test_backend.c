/* The backend on a GPU against the one on the processor: the same works to both, and the same bits
 * come out. `test_backend ROUNDS SEED`; 77 where there is no GPU, and no stand-in for one.
 *
 *      each round   a model, sizes and a layout of its own; rows that grow by chunks, are forked
 *                   with copies of their last blocks, moved through swap slots and through offload
 *                   slots; two works in flight; and the reference over the same tokens
 *      at the end   all of KV memory, and the CRCs of its blocks
 *
 * And the kernels' code rounds after each product and each sum: the same bits must not be luck.
 */
#include "engine/backend.h"
#include "engine/cuda/card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, GROUPS = ENGINE_MAX_GROUPS, POSITIONS = 48, BLOCKS = 400, SLOTS = 400 };
enum { TOKENS = 64, STEPS = 24, SWAPS = 8, IN_FLIGHT = 2, MOVES = ROWS * GROUPS * POSITIONS };

typedef struct row {
    uint32_t num_tokens; /* 0: free */
    quire_token tokens[POSITIONS];
    quire_block blocks[GROUPS][POSITIONS];
} row;

/* What a work points to. */
typedef struct step {
    engine_work work;
    quire_block swap_out[SWAPS];
    quire_block swap_in[SWAPS];
    uint32_t swap_slots[SWAPS];
    quire_block zero[SWAPS];
    quire_block_copy copies[ROWS * GROUPS];
    engine_table_diff diffs[MOVES];
    engine_span spans[ROWS];
    quire_token tokens[TOKENS];
    int64_t slots[GROUPS][TOKENS];
    uint32_t logit_tokens[TOKENS];
} step;

typedef struct world {
    engine_model *model;
    engine_backend_config config;
    const engine_backend_ops *ops[2];
    void *backends[2];
    unsigned char *slots[2];
    row rows[ROWS];
    uint32_t users[BLOCKS];
    step step;
    uint32_t num_logits[IN_FLIGHT];
    uint64_t num_submitted;
    uint64_t num_waited;
    uint64_t num_compared;
} world;

static uint64_t random_state;
static uint64_t num_crcs; /* compared; not every backend makes them */

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static void must(int is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* ---- blocks ---------------------------------------------------------------- */

static quire_block take_block(world *w)
{
    for (;;) {
        quire_block block = 1 + draw(BLOCKS - 1);
        if (w->users[block] > 0)
            continue;
        w->users[block] = 1;
        return block;
    }
}

static uint32_t count_blocks(const world *w, const row *r, uint32_t group)
{
    uint32_t size = w->config.block_sizes[group];
    return (r->num_tokens + size - 1) / size;
}

static void set_entries(world *w, uint32_t group, uint32_t at, uint32_t first, uint32_t count)
{
    engine_work *work = &w->step.work;
    w->step.diffs[work->num_diffs++] =
        (engine_table_diff){group, at, first, count, &w->rows[at].blocks[group][first]};
}

static void free_row(world *w, row *r)
{
    for (uint32_t g = 0; g < w->model->config.num_groups; g++)
        for (uint32_t i = 0; i < count_blocks(w, r, g); i++)
            w->users[r->blocks[g][i]]--;
    r->num_tokens = 0;
}

/* ---- what a step does ------------------------------------------------------ */

/* A row's last block of a group goes out, its place is zeroed, and it comes back elsewhere. */
static void swap_row(world *w, uint32_t at)
{
    row *r = &w->rows[at];
    engine_work *work = &w->step.work;
    uint32_t group = draw(w->model->config.num_groups);
    uint32_t last = count_blocks(w, r, group) - 1;
    quire_block old = r->blocks[group][last];
    uint32_t n = work->num_swap_out;
    if (n == SWAPS || w->users[old] != 1)
        return;
    w->step.swap_out[n] = old;
    w->step.zero[n] = old;
    w->step.swap_slots[n] = n;
    w->step.swap_in[n] = take_block(w);
    w->users[old] = 0;
    r->blocks[group][last] = w->step.swap_in[n];
    work->num_swap_out = work->num_zero = work->num_swap_in = n + 1;
    set_entries(w, group, at, last, 1);
}

/* Full blocks are shared, the last one is copied. */
static void fork_row(world *w, uint32_t from, uint32_t to)
{
    engine_work *work = &w->step.work;
    w->rows[to] = w->rows[from];
    row *r = &w->rows[to];
    for (uint32_t g = 0; g < w->model->config.num_groups; g++) {
        uint32_t n = count_blocks(w, r, g);
        for (uint32_t i = 0; i + 1 < n; i++)
            w->users[r->blocks[g][i]]++;
        quire_block old = r->blocks[g][n - 1];
        r->blocks[g][n - 1] = take_block(w);
        w->step.copies[work->num_copies++] =
            (quire_block_copy){.from = old, .to = r->blocks[g][n - 1]};
        set_entries(w, g, to, 0, n);
    }
}

static void grow_row(world *w, uint32_t at, uint32_t count)
{
    row *r = &w->rows[at];
    engine_work *work = &w->step.work;
    uint32_t first = r->num_tokens;
    uint32_t begin = work->num_tokens;
    uint32_t before[GROUPS];
    for (uint32_t g = 0; g < w->model->config.num_groups; g++)
        before[g] = count_blocks(w, r, g);
    for (uint32_t i = 0; i < count; i++, r->num_tokens++, work->num_tokens++) {
        quire_token token = (quire_token)draw(w->model->config.vocabulary);
        r->tokens[r->num_tokens] = token;
        w->step.tokens[work->num_tokens] = token;
        if (draw(3) == 0 || i + 1 == count)
            w->step.logit_tokens[work->num_logits++] = work->num_tokens;
        for (uint32_t g = 0; g < w->model->config.num_groups; g++) {
            uint32_t size = w->config.block_sizes[g];
            if (r->num_tokens % size == 0)
                r->blocks[g][r->num_tokens / size] = take_block(w);
            w->step.slots[g][work->num_tokens] =
                (int64_t)r->blocks[g][r->num_tokens / size] * size + r->num_tokens % size;
        }
    }
    for (uint32_t g = 0; g < w->model->config.num_groups; g++)
        if (count_blocks(w, r, g) > before[g])
            set_entries(w, g, at, before[g], count_blocks(w, r, g) - before[g]);
    w->step.spans[work->num_spans++] = (engine_span){at, begin, count, first};
}

static void fill_step(world *w)
{
    step *s = &w->step;
    s->work = (engine_work){.swap_out_blocks = s->swap_out,
                            .swap_out_slots = s->swap_slots,
                            .zero_blocks = s->zero,
                            .swap_in_blocks = s->swap_in,
                            .swap_in_slots = s->swap_slots,
                            .copies = s->copies,
                            .diffs = s->diffs,
                            .spans = s->spans,
                            .tokens = s->tokens,
                            .logit_tokens = s->logit_tokens};
    for (uint32_t g = 0; g < GROUPS; g++)
        s->work.slot_mappings[g] = s->slots[g];
    for (uint32_t at = 0; at < ROWS; at++) {
        row *r = &w->rows[at];
        uint32_t count = draw(3) == 0 ? 1 + draw(9) : draw(2);
        if (count > POSITIONS - r->num_tokens || draw(40) == 0) {
            free_row(w, r);
            continue;
        }
        if (r->num_tokens > 0 && draw(4) == 0)
            swap_row(w, at);
        else if (count > 0)
            grow_row(w, at, count);
    }
}

/* Forks are steps of their own: what they copy must have been computed before. */
static void fill_fork(world *w)
{
    uint32_t from = draw(ROWS);
    uint32_t to = draw(ROWS);
    step *s = &w->step;
    s->work = (engine_work){.copies = s->copies, .diffs = s->diffs};
    if (from == to || w->rows[from].num_tokens == 0)
        return;
    free_row(w, &w->rows[to]);
    fork_row(w, from, to);
}

/* ---- both backends --------------------------------------------------------- */

static void wait_one(world *w)
{
    const float *logits[2];
    uint64_t ticket = w->num_waited + 1;
    uint32_t count = w->num_logits[w->num_waited % IN_FLIGHT];
    for (uint32_t i = 0; i < 2; i++)
        must(w->ops[i]->wait(w->backends[i], ticket, &logits[i]) == QUIRE_OK, "wait");
    size_t bytes = (size_t)count * w->model->config.vocabulary * sizeof(float);
    must(memcmp(logits[0], logits[1], bytes) == 0, "logits differ");
    w->num_compared += count;
    w->num_waited++;
}

static void submit_step(world *w)
{
    uint64_t tickets[2];
    if (w->num_submitted - w->num_waited == IN_FLIGHT)
        wait_one(w);
    w->num_logits[w->num_submitted % IN_FLIGHT] = w->step.work.num_logits;
    for (uint32_t i = 0; i < 2; i++)
        must(w->ops[i]->submit(w->backends[i], &w->step.work, &tickets[i]) == QUIRE_OK, "submit");
    must(tickets[0] == tickets[1] && tickets[0] == ++w->num_submitted, "tickets");
}

/* Runs the same job on both, behind what is being computed. */
static void run_job(world *w, quire_device_op op, quire_device_copy *copies, uint32_t n)
{
    static quire_device_copy first[BLOCKS];
    for (uint32_t i = 0; i < 2; i++) {
        const quire_device *device = w->ops[i]->device(w->backends[i]);
        quire_device_job job = {.id = 1, .op = op, .num_copies = n, .copies = copies};
        quire_device_job *ended = NULL;
        must(device->ops->mark(device->self, &job.after) == QUIRE_OK, "mark");
        must(device->ops->submit(device->self, &job) == QUIRE_OK, "submit of a job");
        while (device->ops->poll(device->self, &ended, 1) == 0)
            ;
        must(ended == &job && job.status == QUIRE_OK && job.state == 0, "a job's end");
        for (uint32_t k = 0; k < n && op == QUIRE_DEVICE_STORE; k++) {
            must(i == 0 || copies[k].crc == 0 || first[k].crc == copies[k].crc, "CRCs differ");
            num_crcs += i == 1 && copies[k].crc != 0;
            first[k] = copies[k];
        }
    }
}

/* Some of a row's blocks go to slots, and come back as other blocks. */
static void offload_row(world *w, uint32_t at)
{
    row *r = &w->rows[at];
    quire_device_copy copies[POSITIONS];
    uint32_t group = draw(w->model->config.num_groups);
    uint32_t n = count_blocks(w, r, group);
    for (uint32_t i = 0; i < n; i++)
        copies[i] = (quire_device_copy){.block = r->blocks[group][i], .slot = at * POSITIONS + i};
    run_job(w, QUIRE_DEVICE_STORE, copies, n);
    for (uint32_t i = 0; i < n; i++) {
        w->users[r->blocks[group][i]]--;
        r->blocks[group][i] = copies[i].block = take_block(w);
    }
    run_job(w, QUIRE_DEVICE_LOAD, copies, n);
    w->step.work = (engine_work){.diffs = w->step.diffs};
    set_entries(w, group, at, 0, n);
    submit_step(w);
}

static void compare_references(world *w, uint32_t at)
{
    static float logits[2][POSITIONS * 64];
    const row *r = &w->rows[at];
    size_t bytes = sizeof(float) * w->model->config.vocabulary;
    uint32_t first = 0;
    while (first < r->num_tokens) {
        uint32_t n = draw(2) == 0 ? 1 : 1 + draw(r->num_tokens - first);
        uint32_t num_logits = draw(n + 1);
        for (uint32_t i = 0; i < 2; i++) {
            must(w->ops[i]->reference_copy(w->backends[i], 0, 1, first) == QUIRE_OK, "copy");
            for (uint32_t cache = 0; cache < 2; cache++)
                must(w->ops[i]->reference(w->backends[i], cache, first, r->tokens + first, n,
                                          num_logits, logits[i]) == QUIRE_OK,
                     "reference");
        }
        must(memcmp(logits[0], logits[1], num_logits * bytes) == 0, "references differ");
        w->num_compared += num_logits;
        first += n;
    }
}

static void compare_memory(world *w)
{
    quire_device_copy copies[BLOCKS];
    uint64_t bytes = BLOCKS * engine_block_bytes(&w->config);
    for (uint32_t first = 0; first < BLOCKS; first += 200) { /* a job has an upper bound */
        for (uint32_t i = 0; i < 200; i++)
            copies[i] = (quire_device_copy){.block = first + i, .slot = first + i};
        run_job(w, QUIRE_DEVICE_STORE, copies, 200);
    }
    must(memcmp(w->slots[0], w->slots[1], (size_t)bytes) == 0, "KV memory differs");
}

/* ---- rounds ---------------------------------------------------------------- */

static int open_world(world *w)
{
    uint32_t groups = 1 + draw(GROUPS);
    engine_model_config c = {.vocabulary = 5 + draw(40), .width = 4 + draw(40)};
    c.num_groups = groups;
    c.num_layers = groups * (1 + draw(2));
    c.num_kv_heads = 1 + draw(3);
    c.num_heads = c.num_kv_heads * (1 + draw(3));
    c.head_size = 2 * (1 + draw(8));
    c.hidden = 3 + draw(60);
    c.max_positions = POSITIONS;
    c.is_tied = draw(2);
    c.seed = random_state;
    engine_backend_config config = {.num_blocks = BLOCKS, .max_rows = ROWS, .num_references = 2};
    for (uint32_t g = 0; g < groups; g++) {
        c.windows[g] = draw(2) == 0 ? 0 : 1 + draw(30);
        config.block_sizes[g] = 1u << (1 + draw(4));
    }
    config.model = w->model = engine_model_create(&c);
    must(w->model != NULL, "model");
    config.layout = draw(2) == 0 ? ENGINE_LAYER_OUTER : ENGINE_BLOCK_OUTER;
    config.max_row_blocks = POSITIONS;
    config.max_tokens = config.max_logits = TOKENS;
    config.max_works = IN_FLIGHT;
    config.num_swap_blocks = SWAPS;
    config.num_slots = draw(4) == 0 ? 0 : SLOTS; /* 0: there is no offload */
    w->config = config;
    w->ops[0] = &ENGINE_CPU_OPS;
    w->ops[1] = &ENGINE_CUDA_OPS;
    for (uint32_t i = 0; i < 2; i++) {
        size_t bytes = (size_t)(SLOTS * engine_block_bytes(&config));
        w->slots[i] = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
        must(w->slots[i] != NULL, "memory");
        config.slots = config.num_slots == 0 ? NULL : w->slots[i];
        int status = w->ops[i]->create(&config, &w->backends[i]);
        if (status != QUIRE_OK)
            fprintf(stderr, "%s: %s\n", w->ops[i]->name, quire_refusal());
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

static void close_world(world *w)
{
    for (uint32_t i = 0; i < 2; i++) {
        w->ops[i]->destroy(w->backends[i]);
        free(w->slots[i]);
    }
    engine_model_destroy(w->model);
}

static int run_round(uint64_t *num_compared)
{
    static world the_world;
    world *w = &the_world;
    memset(w, 0, sizeof *w);
    int status = open_world(w);
    for (uint32_t i = 0; status == QUIRE_OK && i < STEPS; i++) {
        fill_step(w);
        submit_step(w);
        fill_fork(w);
        submit_step(w);
        uint32_t at = draw(ROWS);
        if (w->config.num_slots > 0 && w->rows[at].num_tokens > 0 && draw(3) == 0)
            offload_row(w, at);
        if (draw(8) == 0)
            compare_references(w, at);
    }
    while (status == QUIRE_OK && w->num_waited < w->num_submitted)
        wait_one(w);
    if (status == QUIRE_OK && w->config.num_slots > 0)
        compare_memory(w);
    *num_compared += w->num_compared;
    close_world(w);
    return status;
}

/* Where the rounding is not written down, the driver's compiler may contract. */
static void check_rounding(void)
{
    static const char *const FORBIDDEN[] = {"fma.",    "mul.f32",    "add.f32",     "sub.f32",
                                            "div.f32", "div.approx", "sqrt.approx", ".ftz"};
    for (size_t i = 0; i < sizeof FORBIDDEN / sizeof *FORBIDDEN; i++)
        must(strstr(engine_ptx, FORBIDDEN[i]) == NULL, FORBIDDEN[i]);
    must(engine_ptx[0] == '\0' || strstr(engine_ptx, "mul.rn.f32") != NULL, "no products");
}

int main(int argc, char **argv)
{
    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 20;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t num_compared = 0;
    check_rounding();
    for (uint32_t i = 0; i < rounds; i++) {
        random_state = seed + i;
        int status = run_round(&num_compared);
        if (status == QUIRE_E_DISABLED)
            return 77;
        must(status == QUIRE_OK, "a backend");
    }
    printf("%u rounds, %llu logits compared\n", rounds, (unsigned long long)num_compared);
    must(num_compared > 0 && (num_crcs > 0 || rounds < 10), "nothing was compared");
}
