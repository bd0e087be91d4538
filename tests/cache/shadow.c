#include "cache/shadow.h"

static uint32_t *page_of(const shadow *s, quire_block block)
{
    assert_true(block > 0 && block < s->num_blocks);
    return s->pages + (size_t)block * SHADOW_BLOCK_SIZE;
}

void shadow_open(shadow *s, const quire_cache_config *wanted, uint64_t seed)
{
    quire_cache_config config = *wanted;
    memset(s, 0, sizeof *s);
    config.max_model_len = SHADOW_LEN;
    config.digest_bytes = KIT_DIGEST;
    s->num_groups = config.num_groups;
    assert_true(s->num_groups <= SHADOW_GROUPS);
    memcpy(s->groups, config.groups, config.num_groups * sizeof s->groups[0]);
    s->block_size = s->groups[0].spec.block_size;
    assert_true(s->block_size >= 2 && s->block_size <= SHADOW_BLOCK_SIZE);
    s->num_blocks = config.num_blocks;
    s->next_token = 1u << 20;
    s->random = seed;
    s->pages = calloc(s->num_blocks, SHADOW_BLOCK_SIZE * sizeof *s->pages);
    s->num_slots = config.num_host_blocks;
    s->slots = calloc(s->num_slots + 1, SHADOW_BLOCK_SIZE * sizeof *s->slots);
    assert_true(s->pages != NULL && s->slots != NULL);
    assert_int_equal(quire_cache_create(&config, NULL, &s->cache), QUIRE_OK);
    s->pool = quire_cache_get_pool(s->cache);
}

void shadow_close(shadow *s)
{
    const quire_block_copy *copies = NULL;
    uint32_t num_copies = 0;
    for (uint32_t i = 0; i < SHADOW_SEQS; i++)
        if (s->seqs[i].r.seq != 0)
            shadow_free(s, &s->seqs[i]);
    assert_int_equal(quire_cache_take_copies(s->cache, &copies, &num_copies), QUIRE_OK);
    assert_int_equal(quire_cache_check(s->cache), QUIRE_OK);
    assert_int_equal(quire_cache_get_counts(s->cache).num_seqs, 0);
    assert_int_equal(quire_cache_get_usage(s->cache).active, 0);
    for (quire_block b = 1; b < s->num_blocks; b++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(s->pool, b, &info), QUIRE_OK);
        assert_int_equal(info.ref_cnt, 0);
    }
    quire_cache_destroy(s->cache);
    free(s->pages);
    free(s->slots);
}

/* ---- sequences ---------------------------------------------------------- */

shadow_seq *shadow_new(shadow *s)
{
    for (uint32_t i = 0; i < SHADOW_SEQS; i++) {
        if (s->seqs[i].r.seq != 0)
            continue;
        memset(&s->seqs[i].r, 0, sizeof s->seqs[i].r);
        s->seqs[i].num_planned = 0;
        s->seqs[i].is_delayed = false;
        s->seqs[i].r.hashes = s->seqs[i].hashes;
        return &s->seqs[i];
    }
    return NULL;
}

static void hash_tokens(const shadow *s, shadow_seq *q, uint32_t first_token)
{
    uint32_t num_hashes = q->r.num_tokens / s->block_size;
    for (uint32_t i = first_token / s->block_size; i < num_hashes; i++) {
        uint64_t h[2] = {UINT64_C(0xcbf29ce484222325), 1};
        if (i > 0)
            memcpy(h, q->hashes + (size_t)(i - 1) * KIT_DIGEST, sizeof h);
        for (uint32_t t = i * s->block_size; t < (i + 1) * s->block_size; t++) {
            h[0] = (h[0] ^ q->tokens[t]) * UINT64_C(0x100000001b3);
            h[1] = h[1] * UINT64_C(6364136223846793005) + q->tokens[t];
        }
        memcpy(q->hashes + (size_t)i * KIT_DIGEST, h, sizeof h);
    }
    q->r.num_hashes = num_hashes;
}

void shadow_prompt(shadow *s, shadow_seq *q, uint32_t family, uint32_t num_tokens)
{
    assert_true(num_tokens < SHADOW_LEN && family < 512);
    for (uint32_t t = 0; t < num_tokens; t++)
        q->tokens[t] = 1 + family * 2048 + t;
    q->r.num_tokens = num_tokens;
    hash_tokens(s, q, 0);
}

/* The first token that the group still looks at once n tokens are computed. */
static uint32_t first_seen(const shadow *s, uint32_t group, uint32_t n)
{
    const quire_layer_spec *spec = &s->groups[group].spec;
    if (spec->kind == QUIRE_LAYER_SLIDING_WINDOW)
        return n + 1 > spec->sliding_window ? n + 1 - spec->sliding_window : 0;
    return 0;
}

static void verify_seq(shadow *s, const shadow_seq *q)
{
    quire_block_span spans[SHADOW_GROUPS];
    uint32_t computed = q->r.num_computed_tokens;
    assert_int_equal(quire_cache_get_blocks(s->cache, q->r.seq, spans), QUIRE_OK);
    for (uint32_t g = 0; g < s->num_groups; g++) {
        assert_true((uint64_t)spans[g].count * s->block_size >= computed);
        for (uint32_t t = first_seen(s, g, computed); t < computed; t++) {
            quire_block block = spans[g].ids[t / s->block_size];
            if (page_of(s, block)[t % s->block_size] != q->tokens[t])
                printf("token %u of seq %llu: group %u, block %u\n", (unsigned)t,
                       (unsigned long long)q->r.seq, (unsigned)g, (unsigned)block);
            assert_int_equal(page_of(s, block)[t % s->block_size], q->tokens[t]);
            s->num_reads++;
        }
    }
}

bool shadow_has_blocks(const shadow *s, const shadow_seq *q)
{
    return quire_cache_get_location(s->cache, q->r.seq) == QUIRE_LOCATION_DEVICE;
}

void shadow_verify(shadow *s)
{
    for (uint32_t i = 0; i < SHADOW_SEQS; i++)
        if (shadow_has_blocks(s, &s->seqs[i]))
            verify_seq(s, &s->seqs[i]);
}

/* ---- what an engine does ------------------------------------------------ */

int shadow_prefill(shadow *s, shadow_seq *q)
{
    quire_block_span hit[SHADOW_GROUPS];
    uint32_t num_hit = 0;
    assert_int_equal(quire_cache_get_computed_blocks(s->cache, &q->r, hit, &num_hit), QUIRE_OK);
    for (uint32_t g = 0; g < s->num_groups; g++)
        assert_int_equal(hit[g].count, num_hit / s->block_size);
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = q->r.num_tokens - num_hit,
                                    .num_new_computed_tokens = num_hit,
                                    .new_computed_blocks = hit};
    if (s->has_delays)
        params.delay_cache_blocks = unit_random_below(&s->random, 2);
    int status = quire_cache_allocate_slots(s->cache, &q->r, &params, NULL);
    if (status != QUIRE_OK)
        return status;
    q->r.num_computed_tokens = num_hit;
    q->num_planned = params.num_new_tokens;
    q->is_delayed = params.delay_cache_blocks != 0;
    return QUIRE_OK;
}

int shadow_extend(shadow *s, shadow_seq *q, uint32_t num_new)
{
    uint32_t first = q->r.num_computed_tokens;
    uint32_t tokens_before = q->r.num_tokens;
    assert_true(q->num_planned == 0 && first + num_new <= SHADOW_LEN);
    for (uint32_t t = first; t < first + num_new; t++)
        q->tokens[t] = s->next_token++;
    q->r.num_tokens = first + num_new;
    hash_tokens(s, q, first);
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = num_new};
    int status = quire_cache_allocate_slots(s->cache, &q->r, &params, NULL);
    if (status == QUIRE_OK) {
        q->num_planned = num_new;
        return QUIRE_OK;
    }
    q->r.num_tokens = tokens_before;
    q->r.num_hashes = tokens_before / s->block_size;
    return status;
}

int shadow_fork(shadow *s, const shadow_seq *parent, shadow_seq *child)
{
    int status = quire_cache_fork(s->cache, &parent->r, &child->r);
    if (status != QUIRE_OK)
        return status;
    uint32_t computed = parent->r.num_computed_tokens; /* what is planned is the parent's alone */
    memcpy(child->tokens, parent->tokens, computed * sizeof child->tokens[0]);
    memcpy(child->hashes, parent->hashes, sizeof child->hashes);
    child->r.num_tokens = computed;
    child->r.num_hashes = computed / s->block_size;
    child->r.num_computed_tokens = computed;
    child->num_planned = 0;
    child->is_delayed = parent->is_delayed;
    return QUIRE_OK;
}

bool shadow_is_idle(const shadow *s)
{
    for (uint32_t i = 0; i < SHADOW_SEQS; i++)
        if (s->seqs[i].r.seq != 0 && s->seqs[i].num_planned > 0)
            return false;
    return true;
}

int shadow_rewrite(shadow *s, shadow_seq *q, uint32_t first, uint32_t num_tokens)
{
    quire_block_span spans[SHADOW_GROUPS];
    assert_true(shadow_is_idle(s) && first + num_tokens <= q->r.num_computed_tokens);
    int status = quire_cache_copy_on_write(s->cache, q->r.seq, first, num_tokens);
    if (status != QUIRE_OK)
        return status;
    shadow_copy(s);
    assert_int_equal(quire_cache_get_blocks(s->cache, q->r.seq, spans), QUIRE_OK);
    for (uint32_t t = first; t < first + num_tokens; t++) {
        q->tokens[t] = s->next_token++;
        for (uint32_t g = 0; g < s->num_groups; g++) {
            quire_block block = spans[g].ids[t / s->block_size];
            if (block != QUIRE_NULL_BLOCK)
                page_of(s, block)[t % s->block_size] = q->tokens[t];
        }
    }
    hash_tokens(s, q, first);
    return QUIRE_OK;
}

void shadow_free(shadow *s, shadow_seq *q)
{
    assert_int_equal(quire_cache_free(s->cache, &q->r), QUIRE_OK);
    assert_true(q->r.seq == 0);
    q->num_planned = 0;
}

static void copy_moves(shadow *s, const quire_block_move *moves, uint32_t num_moves, bool is_out)
{
    for (uint32_t i = 0; i < num_moves; i++) {
        assert_true(moves[i].slot < s->num_slots && moves[i].group < s->num_groups);
        uint32_t *page = page_of(s, moves[i].block);
        uint32_t *slot = s->slots + (size_t)moves[i].slot * SHADOW_BLOCK_SIZE;
        memcpy(is_out ? slot : page, is_out ? page : slot, SHADOW_BLOCK_SIZE * sizeof *page);
    }
    s->num_moves += num_moves;
}

int shadow_move_out(shadow *s, shadow_seq *q)
{
    const quire_block_move *moves = NULL;
    uint32_t num_moves = 0;
    assert_int_equal(q->num_planned, 0);
    int status = quire_cache_move_out(s->cache, &q->r, &moves, &num_moves);
    copy_moves(s, moves, num_moves, true);
    return status;
}

int shadow_move_in(shadow *s, shadow_seq *q)
{
    const quire_block_move *moves = NULL;
    uint32_t num_moves = 0;
    int foretold = quire_cache_can_move_in(s->cache, &q->r);
    int status = quire_cache_move_in(s->cache, &q->r, &moves, &num_moves);
    assert_int_equal(status, foretold);
    copy_moves(s, moves, num_moves, false);
    if (status == QUIRE_OK)
        q->is_delayed = false; /* the blocks have their keys */
    return status;
}

/* ---- a step ------------------------------------------------------------- */

/* No block is both source and target, and both are in use while the copy is pending. */
static void check_copies(const shadow *s, const quire_block_copy *copies, uint32_t num_copies)
{
    for (uint32_t i = 0; i < num_copies; i++) {
        assert_true(copies[i].group < s->num_groups);
        for (uint32_t j = 0; j < num_copies; j++) {
            assert_int_not_equal(copies[i].from, copies[j].to);
            assert_true(i == j || copies[i].to != copies[j].to);
        }
    }
}

void shadow_copy(shadow *s)
{
    enum { MOST = 256 };
    const quire_block_copy *copies = NULL;
    uint32_t num_copies = 0;
    uint32_t order[MOST];
    assert_int_equal(quire_cache_take_copies(s->cache, &copies, &num_copies), QUIRE_OK);
    assert_true(num_copies <= MOST);
    check_copies(s, copies, num_copies);
    for (uint32_t i = 0; i < num_copies; i++)
        order[i] = i;
    for (uint32_t i = num_copies; i > 1; i--) {
        uint32_t j = unit_random_below(&s->random, i);
        uint32_t swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
    for (uint32_t i = 0; i < num_copies; i++)
        memcpy(page_of(s, copies[order[i]].to), page_of(s, copies[order[i]].from),
               SHADOW_BLOCK_SIZE * sizeof *s->pages);
    s->num_copies += num_copies;
}

static void write_planned(shadow *s, shadow_seq *q)
{
    quire_block_span spans[SHADOW_GROUPS];
    uint32_t first = q->r.num_computed_tokens;
    assert_int_equal(quire_cache_get_blocks(s->cache, q->r.seq, spans), QUIRE_OK);
    for (uint32_t t = first; t < first + q->num_planned; t++)
        for (uint32_t g = 0; g < s->num_groups; g++)
            page_of(s, spans[g].ids[t / s->block_size])[t % s->block_size] = q->tokens[t];
    q->r.num_computed_tokens += q->num_planned;
    q->num_planned = 0;
}

static void give_keys(shadow *s, shadow_seq *q)
{
    if (!q->is_delayed || unit_random_below(&s->random, 3) > 0)
        return;
    assert_int_equal(quire_cache_cache_blocks(s->cache, &q->r, q->r.num_computed_tokens), QUIRE_OK);
    q->is_delayed = false;
}

void shadow_step(shadow *s)
{
    shadow_copy(s);
    for (uint32_t i = 0; i < SHADOW_SEQS; i++)
        if (s->seqs[i].r.seq != 0 && s->seqs[i].num_planned > 0)
            write_planned(s, &s->seqs[i]);
    for (uint32_t i = 0; i < SHADOW_SEQS; i++)
        if (shadow_has_blocks(s, &s->seqs[i]))
            give_keys(s, &s->seqs[i]);
}
