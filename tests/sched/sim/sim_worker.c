/* sched/sim/sim_worker.c - what the workers do with a step: loads, then all writes, then all reads.
 *
 *      scheduled   | known tokens, m  | drafts, d |       from num_computed on
 *      written     | tags             | tags of accepted drafts, junk for rejected ones
 *      sampled                        a accepted drafts, and one more
 *
 * In async scheduling num_computed counts drafts of steps in flight that the workers know to be
 * rejected: they begin that much earlier.
 */
#include "sched/sim/sim.h"

/* What a step asks of one request, in the worker's own numbers. */
typedef struct sim_task {
    sim_request *r;
    sim_entry *entry;
    uint32_t first; /* position of the first token that is computed */
    uint32_t end;   /* past the last known one */
    uint32_t num_drafts;
    uint32_t num_valid; /* positions that hold what they should afterwards */
    bool samples;
} sim_task;

void sim_tag(sim_request *r, uint32_t first)
{
    uint64_t before =
        first == 0 ? sim_mix64(r->salt, r->lora + UINT64_C(1000)) : r->tags[first - 1];
    for (uint32_t p = first; p < r->num_tokens; p++) {
        before = sim_mix64(before, (uint64_t)(uint32_t)r->tokens[p]);
        if (r->is_embeds && p < r->num_rows)
            before = sim_mix64(before, r->embeds[p] + UINT64_C(7000));
        for (uint32_t i = 0; i < r->num_images; i++) {
            const sim_image *image = &r->images[i];
            if (p >= image->offset && p < image->offset + image->length)
                before = sim_mix64(before, image->name * UINT64_C(1000) + p - image->offset);
        }
        r->tags[p] = before;
    }
}

quire_token sim_next_token(const sim_request *r, uint32_t num_tokens)
{
    uint64_t chance = sim_mix64(r->tags[num_tokens - 1], 5 + r->branch * 64);
    return chance % 41 == 0 ? SIM_EOS : (quire_token)(1 + chance / 64 % 5);
}

/* Where the tag of a position is. A Mamba block has one place, for the newest of its states. */
static uint64_t *page_at(const sim *s, const sim_row *row, uint32_t g, uint32_t position)
{
    uint32_t size = s->mix.sizes[g];
    uint32_t i = position / size;
    if (i >= row->count || row->ids[i] == QUIRE_NULL_BLOCK)
        return NULL;
    bool is_mamba = s->groups[g].spec.kind == QUIRE_LAYER_MAMBA;
    return s->pages + (size_t)row->ids[i] * s->mix.page + (is_mamba ? 0 : position % size);
}

static bool has_tokens(const sim *s, uint32_t g)
{
    quire_layer_kind kind = s->groups[g].spec.kind;
    return kind != QUIRE_LAYER_MAMBA && kind != QUIRE_LAYER_CROSS;
}

/* ---- host memory ----------------------------------------------------------- */

/* What is read from a slot is gone: nobody may count on it again. */
static void run_swaps(sim *s, const quire_step *step)
{
    uint32_t size = s->mix.page;
    for (uint32_t i = 0; i < step->num_swap_out && !s->has_failed; i++) {
        uint32_t slot = step->swap_out_slots[i];
        quire_block block = step->swap_out_blocks[i];
        SIM_CHECK(s, slot < s->mix.num_swap && block != QUIRE_NULL_BLOCK, "no such slot", slot,
                  block);
        for (uint32_t k = 0; k < i; k++)
            SIM_CHECK(s, step->swap_out_slots[k] != slot, "a slot that is written twice", slot, i);
        if (!s->has_failed)
            memcpy(s->host + (size_t)slot * size, s->pages + (size_t)block * size,
                   size * sizeof *s->host);
    }
    for (uint32_t i = 0; i < step->blocks_to_zero.count; i++)
        memset(s->pages + (size_t)step->blocks_to_zero.ids[i] * size, 0, size * sizeof *s->pages);
    for (uint32_t i = 0; i < step->num_swap_in && !s->has_failed; i++) {
        uint32_t slot = step->swap_in_slots[i];
        quire_block block = step->swap_in_blocks[i];
        SIM_CHECK(s, slot < s->mix.num_swap && block != QUIRE_NULL_BLOCK, "no such slot", slot,
                  block);
        for (uint32_t k = 0; k < size && !s->has_failed; k++) {
            uint64_t *from = &s->host[(size_t)slot * size + k];
            s->pages[(size_t)block * size + k] = *from;
            *from = s->junk++;
        }
    }
    s->tally.swapped_out += step->num_swap_out;
    s->tally.swapped_in += step->num_swap_in;
}

/* ---- copies on write --------------------------------------------------------- */

/* The pages, before any row changes: no block is both source and target. */
static void run_copies(sim *s, const quire_step *step)
{
    size_t bytes = s->mix.page * sizeof *s->pages;
    for (uint32_t i = 0; i < step->num_copies && !s->has_failed; i++) {
        const quire_step_copy *copy = &step->copies[i];
        SIM_CHECK(s, copy->from != QUIRE_NULL_BLOCK && copy->to != QUIRE_NULL_BLOCK,
                  "a copy of the null block", copy->from, copy->to);
        for (uint32_t k = 0; k < step->num_copies; k++)
            SIM_CHECK(
                s, copy->from != step->copies[k].to && (i == k || copy->to != step->copies[k].to),
                "copies that meet", copy->from, copy->to);
        memcpy(s->pages + (size_t)copy->to * s->mix.page,
               s->pages + (size_t)copy->from * s->mix.page, bytes);
    }
    s->tally.copies += step->num_copies;
}

static bool is_held(const sim *s, quire_block block)
{
    for (uint32_t i = 0; i < s->num_held; i++)
        if (s->held[i] == block)
            return true;
    return false;
}

/* After the rows of the step were taken over. */
static void move_rows(sim *s, const quire_step *step)
{
    for (uint32_t i = 0; i < step->num_copies && !s->has_failed; i++) {
        const quire_step_copy *copy = &step->copies[i];
        if (copy->place == UINT32_MAX && is_held(s, copy->to))
            continue; /* its request was preempted, and the connector has it */
        SIM_CHECK(s, copy->place < step->num_reqs, "a copy for nobody", copy->to, copy->place);
        sim_request *r = s->has_failed ? NULL : sim_find(s, step->reqs[copy->place]);
        if (r == NULL)
            return;
        sim_row *row = &r->rows[copy->group];
        SIM_CHECK(s, copy->index < row->count, "a copy behind the row", copy->index, row->count);
        bool is_new = step->kinds[copy->place] != QUIRE_STEP_RUNNING;
        SIM_CHECK(s, !is_new || row->ids[copy->index] == copy->to, "a new row without its copy",
                  r->number, copy->index);
        row->ids[copy->index] = copy->to;
    }
}

/* ---- loads ----------------------------------------------------------------- */

void sim_load(sim *s, sim_request *r, sim_batch *batch)
{
    sim_transfer *load = &r->load;
    uint32_t size = s->mix.sizes[0];
    uint32_t failed = UINT32_MAX;
    if (s->mix.loads_fail && sim_chance(s, 30) && batch->num_lost < 4)
        failed = sim_between(s, load->first, load->end - 1) / size;
    for (uint32_t g = 0; g < s->mix.num_groups; g++)
        for (uint32_t p = load->first; p < load->end; p++) {
            uint64_t *page = page_at(s, &load->rows[g], g, p);
            if (page != NULL && s->groups[g].spec.kind != QUIRE_LAYER_CROSS)
                *page = p / size == failed ? s->junk++ : r->tags[p];
        }
    quire_block lost = failed == UINT32_MAX ? QUIRE_NULL_BLOCK : load->rows[0].ids[failed];
    if (lost != QUIRE_NULL_BLOCK) {
        batch->lost[batch->num_lost++] = lost;
        s->tally.lost++;
    }
    load->is_on = false;
}

/* ---- what is to be done ---------------------------------------------------- */

static void take_rows(sim *s, const quire_step *step, uint32_t i, sim_request *r)
{
    for (uint32_t g = 0; g < s->mix.num_groups; g++) {
        const quire_block_span *span = &step->blocks[i * s->mix.num_groups + g];
        sim_row *row = &r->rows[g];
        if (step->kinds[i] != QUIRE_STEP_RUNNING)
            row->count = 0;
        if (row->count + span->count > SIM_ROW) {
            sim_fail(s, "a row that grows without end", r->number, row->count + span->count);
            return;
        }
        if (span->count > 0)
            memcpy(row->ids + row->count, span->ids, span->count * sizeof *span->ids);
        row->count += span->count;
    }
}

static uint32_t rejected_in_flight(const sim *s, const sim_request *r)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < s->num_batches; b++) {
        const sim_batch *batch = &s->batches[(s->first_batch + b) % SIM_BATCHES];
        for (uint32_t i = 0; i < batch->num_entries; i++)
            if (batch->entries[i].req == r->req && !batch->entries[i].is_void)
                n += batch->entries[i].num_rejected;
    }
    return n;
}

static sim_task make_task(sim *s, const quire_step *step, uint32_t i, sim_request *r,
                          sim_entry *entry)
{
    uint32_t computed = step->num_computed_tokens[i];
    uint32_t n = step->num_tokens[i];
    sim_task t = {.r = r,
                  .entry = entry,
                  .first = computed,
                  .num_drafts = step->draft_start[i + 1] - step->draft_start[i]};
    if (s->mix.is_async && computed > r->num_told) {
        uint32_t rejected = rejected_in_flight(s, r);
        t.first = computed - r->num_told > rejected ? computed - rejected : r->num_told;
    }
    uint32_t known = n - t.num_drafts;
    t.samples = computed + n >= r->num_prompt + step->num_output_tokens[i];
    t.end = t.samples ? r->num_tokens : t.first + known;
    SIM_CHECK(s, t.num_drafts < n, "nothing but drafts", r->number, n);
    SIM_CHECK(s, t.end <= r->num_tokens && t.first < t.end, "tokens that are not there", r->number,
              t.end);
    SIM_CHECK(s, !t.samples || t.first + known >= t.end, "sampled before all is computed",
              r->number, t.first + known);
    *entry = (sim_entry){.r = r, .req = r->req, .num_drafts = t.num_drafts};
    return t;
}

/* Junk, all of it: tokens that nobody should get, and pages of nothing. */
static void run_tainted(sim *s, const quire_step *step, uint32_t i, sim_request *r,
                        sim_entry *entry)
{
    uint32_t end = step->num_computed_tokens[i] + step->num_tokens[i];
    *entry = (sim_entry){.r = r, .req = r->req, .is_void = true, .sampled = {3}};
    entry->num_drafts = step->draft_start[i + 1] - step->draft_start[i];
    bool is_whole = end >= r->num_prompt + step->num_output_tokens[i];
    entry->is_pooled = is_whole && r->is_pooling;
    entry->num_sampled = is_whole && !r->is_pooling;
    for (uint32_t p = step->num_computed_tokens[i]; p < end; p++) {
        uint64_t *page = page_at(s, &r->rows[0], 0, p);
        if (page != NULL)
            *page = s->junk++;
    }
}

/* ---- computing ------------------------------------------------------------- */

static void sample(sim *s, const quire_step *step, uint32_t i, sim_task *t)
{
    sim_request *r = t->r;
    const quire_token *drafts = step->drafts + step->draft_start[i];
    uint32_t accepted = 0;
    t->num_valid = t->end;
    t->entry->is_pooled = t->samples && r->is_pooling;
    if (!t->samples || r->is_pooling)
        return;
    for (;;) {
        quire_token token = sim_next_token(r, r->num_tokens);
        bool fits = r->num_tokens < s->mix.len;
        SIM_CHECK(s, fits, "more tokens than the model takes", r->number, r->num_tokens);
        if (!fits)
            break;
        t->entry->sampled[t->entry->num_sampled++] = token;
        r->tokens[r->num_tokens++] = token;
        sim_tag(r, r->num_tokens - 1);
        bool accepts = accepted < t->num_drafts &&
                       (s->mix.is_async ? sim_chance(s, 60) : drafts[accepted] == token);
        if (!accepts)
            break;
        accepted++;
    }
    t->num_valid = t->end + accepted;
    t->entry->num_rejected = t->num_drafts - accepted;
    s->tally.rejected += t->entry->num_rejected;
}

static void write_tags(sim *s, const sim_task *t)
{
    const sim_request *r = t->r;
    uint64_t writer = r->number << 32 | (s->tally.steps & UINT32_MAX);
    for (uint32_t g = 0; g < s->mix.num_groups; g++)
        for (uint32_t p = t->first; p < t->end + t->num_drafts && has_tokens(s, g); p++) {
            uint64_t *page = page_at(s, &r->rows[g], g, p);
            if (page == NULL) {
                sim_fail(s, "a token without a block", r->number, p);
                return;
            }
            uint64_t tag = p < t->num_valid ? r->tags[p] : s->junk++;
            uint64_t *last = &s->writers[page - s->pages];
            bool is_twice = (uint32_t)*last == (uint32_t)writer && *last != writer;
            SIM_CHECK(s, !is_twice || *page == tag, "two requests write to one place", r->number,
                      *last >> 32);
            *page = tag;
            *last = writer;
        }
}

static uint32_t first_read(const quire_layer_spec *spec, uint32_t position)
{
    if (spec->kind == QUIRE_LAYER_SLIDING_WINDOW || spec->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA)
        return position + 1 > spec->sliding_window ? position + 1 - spec->sliding_window : 0;
    if (spec->kind == QUIRE_LAYER_CHUNKED_LOCAL)
        return position / spec->attention_chunk_size * spec->attention_chunk_size;
    return 0;
}

static void read_tags(sim *s, const sim_task *t)
{
    const sim_request *r = t->r;
    for (uint32_t g = 0; g < s->mix.num_groups; g++)
        for (uint32_t p = first_read(&s->groups[g].spec, t->first);
             p < t->num_valid && has_tokens(s, g); p++) {
            const uint64_t *page = page_at(s, &r->rows[g], g, p);
            if (page == NULL || *page != r->tags[p]) {
                sim_fail(s, "reads what is not its own prefix", r->number, p);
                return;
            }
        }
}

/* ---- states and the encoder's input ------------------------------------------- */

/* Before the step the state is that of the last token that was computed. With drafts there are
 * several states, and which one counts is the model's matter. */
static void read_states(sim *s, const sim_task *t)
{
    for (uint32_t g = 0; g < s->mix.num_groups && t->first > 0 && s->mix.num_spec == 0; g++) {
        if (s->groups[g].spec.kind != QUIRE_LAYER_MAMBA)
            continue;
        const uint64_t *page = page_at(s, &t->r->rows[g], g, t->first - 1);
        bool is_own = page != NULL && *page == t->r->tags[t->first - 1];
        SIM_CHECK(s, is_own, "a state that is not of its own prefix", t->r->number, t->first - 1);
        s->tally.states++;
    }
}

/* One state at the end of the step; in mode ALL also one at the end of each block. */
static void write_states(sim *s, const sim_task *t)
{
    for (uint32_t g = 0; g < s->mix.num_groups; g++) {
        const quire_layer_spec *spec = &s->groups[g].spec;
        for (uint32_t p = t->first; p < t->num_valid && spec->kind == QUIRE_LAYER_MAMBA; p++) {
            bool is_end = p + 1 == t->num_valid;
            bool is_kept =
                spec->mamba_mode == QUIRE_MAMBA_MODE_ALL && (p + 1) % spec->block_size == 0;
            if (!is_end && !is_kept)
                continue;
            uint64_t *page = page_at(s, &t->r->rows[g], g, p);
            bool may_lack = !is_end || s->mix.num_spec > 0;
            SIM_CHECK(s, page != NULL || may_lack, "a state without a block", t->r->number, p);
            if (page != NULL)
                *page = t->r->tags[p];
        }
    }
}

/* Cross attention looks at the whole input of the encoder, which the first step brings. */
static void use_cross_blocks(sim *s, const sim_task *t, bool writes)
{
    for (uint32_t g = 0; g < s->mix.num_groups; g++) {
        uint32_t at = 0;
        if (s->groups[g].spec.kind != QUIRE_LAYER_CROSS)
            continue;
        for (uint32_t i = 0; i < t->r->num_images; i++)
            for (uint32_t k = 0; k < sim_num_embeds(s, &t->r->images[i]); k++, at++) {
                uint64_t *page = page_at(s, &t->r->rows[g], g, at);
                uint64_t tag = sim_mix64(t->r->images[i].name + UINT64_C(5000), k);
                SIM_CHECK(s, page != NULL, "encoder input without a block", t->r->number, at);
                if (page != NULL && writes)
                    *page = tag;
                SIM_CHECK(s, page == NULL || *page == tag, "not its own encoder input",
                          t->r->number, at);
            }
    }
}

void sim_run_step(sim *s, const quire_step *step)
{
    static sim_task tasks[SIM_SEQS];
    uint32_t num_tasks = 0;
    sim_batch *batch = &s->batches[(s->first_batch + s->num_batches) % SIM_BATCHES];
    *batch = (sim_batch){.step = step->step, .num_entries = step->num_reqs};
    run_swaps(s, step);
    run_copies(s, step);
    for (uint32_t i = 0; i < step->num_reqs && !s->has_failed; i++) {
        sim_request *r = sim_find(s, step->reqs[i]);
        if (r == NULL)
            return;
        take_rows(s, step, i, r);
    }
    move_rows(s, step);
    for (uint32_t i = 0; i < step->num_reqs && !s->has_failed; i++) {
        sim_request *r = sim_find(s, step->reqs[i]);
        if (r == NULL)
            return;
        s->tally.hits += step->kinds[i] != QUIRE_STEP_RUNNING && step->num_computed_tokens[i] > 0;
        if (step->kinds[i] != QUIRE_STEP_RUNNING)
            r->is_tainted = false;
        uint32_t num_lost = batch->num_lost;
        if (r->load.is_on)
            sim_load(s, r, batch);
        if (batch->num_lost > num_lost)
            r->is_tainted = true;
    }
    for (uint32_t i = 0; i < step->num_reqs && !s->has_failed; i++) {
        sim_request *r = sim_find(s, step->reqs[i]);
        if (r->is_tainted) {
            run_tainted(s, step, i, r, &batch->entries[i]);
            continue;
        }
        sim_task *t = &tasks[num_tasks++];
        *t = make_task(s, step, i, r, &batch->entries[i]);
        if (s->has_failed)
            return;
        read_states(s, t);
    }
    for (uint32_t i = 0, k = 0; i < step->num_reqs && !s->has_failed; i++) {
        if (k == num_tasks || batch->entries[i].r != tasks[k].r)
            continue;
        sim_task *t = &tasks[k++];
        sample(s, step, i, t);
        write_tags(s, t);
        write_states(s, t);
        use_cross_blocks(s, t, t->first == 0);
    }
    for (uint32_t i = 0; i < num_tasks && !s->has_failed; i++) {
        read_tags(s, &tasks[i]);
        use_cross_blocks(s, &tasks[i], false);
    }
    s->tally.large += step->num_reqs > 16;
    s->num_batches++;
}
