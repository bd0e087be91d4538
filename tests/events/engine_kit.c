#include "engine_kit.h"

#include "block/pool.h"

#include <time.h>

/* ---- the engine ------------------------------------------------------------ */

static quire_group_config layer_of(quire_layer_kind kind)
{
    quire_group_config group = {.spec = {.kind = kind,
                                         .block_size = ENGINE_BLOCK,
                                         .num_kv_heads = 1,
                                         .head_size = 8,
                                         .dtype = QUIRE_DTYPE_FLOAT16}};
    if (kind == QUIRE_LAYER_SLIDING_WINDOW)
        group.spec.sliding_window = 2 * ENGINE_BLOCK;
    return group;
}

void engine_open(engine *e, const engine_options *options)
{
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    *e = (engine){.options = *options, .random = options->seed};
    hasher.block_size = ENGINE_BLOCK;
    hasher.profile = config.profile = options->profile;
    hasher.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hasher, NULL, &e->hasher), QUIRE_OK);
    e->groups[0] = layer_of(QUIRE_LAYER_FULL);
    e->groups[0].spec.block_size *= options->has_wide ? 2 : 1;
    e->groups[1] = layer_of(QUIRE_LAYER_SLIDING_WINDOW);
    if (options->has_states)
        e->groups[1] = (quire_group_config){
            .spec = {.kind = QUIRE_LAYER_MAMBA,
                     .block_size = 2 * ENGINE_BLOCK,
                     .mamba_mode = QUIRE_MAMBA_MODE_ALIGN,
                     .states = {{.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16}}}};
    e->monitor_config = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    e->monitor_config.event_bytes = options->event_bytes == 0 ? 1 << 20 : options->event_bytes;
    e->monitor_config.token_ids = options->has_tokens ? QUIRE_ON : QUIRE_OFF;
    cache.num_blocks = options->num_blocks == 0 ? 120 : options->num_blocks;
    cache.groups = e->groups;
    cache.num_groups = options->has_window || options->has_states ? 2 : 1;
    cache.hash_block_size = options->has_states ? ENGINE_BLOCK : 0;
    cache.max_model_len = ENGINE_LEN;
    config.hasher = e->hasher;
    config.max_num_seqs = ENGINE_SEQS;
    config.max_requests = 4 * ENGINE_SEQS;
    config.max_num_batched_tokens = 256;
    config.max_text_tokens = 1 << 14;
    config.max_loras = 2;
    config.monitor = &e->monitor_config;
    assert_int_equal(quire_sched_create(&config, NULL, &e->sched), QUIRE_OK);
    e->monitor = quire_sched_get_monitor(e->sched);
    assert_non_null(e->monitor);
}

void engine_close(engine *e)
{
    quire_sched_destroy(e->sched);
    quire_hasher_destroy(e->hasher);
}

/* Prompts begin in one of four ways, so that blocks are found, and computed by several at once. */
static void add_request(engine *e)
{
    char id[32];
    quire_token prompt[ENGINE_LEN];
    uint32_t len = 4 + unit_random_below(&e->random, ENGINE_LEN / 2);
    uint32_t shared = unit_random_below(&e->random, len);
    quire_token way = (quire_token)unit_random_below(&e->random, 4);
    for (uint32_t i = 0; i < len; i++)
        prompt[i] = i < shared ? 1000 * way + (quire_token)i
                               : (quire_token)unit_random_below(&e->random, 1 << 20);
    int id_len = snprintf(id, sizeof id, "r%llu", (unsigned long long)e->num_added++);
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {id, (size_t)id_len},
                                   .prompt = prompt,
                                   .num_prompt_tokens = len,
                                   .max_tokens = 1 + unit_random_below(&e->random, 24)};
    if (way == 3) {
        params.lora_name = (quire_bytes){"adapter", strlen("adapter")};
        params.lora_id = 7;
    }
    quire_req req;
    int status = quire_sched_add(e->sched, &params, &req);
    assert_true(status == QUIRE_OK || status == QUIRE_FULL);
}

void engine_idle(engine *e)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[ENGINE_SEQS];
    assert_int_equal(quire_sched_schedule(e->sched, &step), QUIRE_OK);
    for (uint32_t i = 0; i < ENGINE_SEQS; i++)
        sampled[i] = (quire_token)unit_random_below(&e->random, 2);
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_update(e->sched, step->step, &output, &outputs), QUIRE_OK);
}

void engine_step(engine *e)
{
    if (quire_sched_get_num_unfinished(e->sched) < 2 * ENGINE_SEQS)
        for (uint32_t n = unit_random_below(&e->random, 3); n > 0; n--)
            add_request(e);
    engine_idle(e);
    if (e->options.has_resets && unit_random_below(&e->random, 200) == 0)
        (void)quire_sched_reset_prefix_cache(e->sched, 1, 0);
}

void engine_run(engine *e, uint32_t num_steps)
{
    for (uint32_t i = 0; i < num_steps; i++)
        engine_step(e);
}

/* ---- the pool's index, and a router's --------------------------------------- */

typedef struct key_list {
    uint64_t (*keys)[2]; /* group, hash */
    uint32_t count;
    uint32_t capacity;
    bool has_strange; /* of another kind or medium */
} key_list;

static void add_key(key_list *list, uint64_t group, uint64_t hash)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        list->keys = realloc(list->keys, list->capacity * sizeof *list->keys);
        assert_non_null(list->keys);
    }
    list->keys[list->count][0] = group;
    list->keys[list->count++][1] = hash;
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return x[1] == y[1] ? 0 : x[1] < y[1] ? -1 : 1;
}

static void sort_keys(key_list *list)
{
    if (list->count > 0)
        qsort(list->keys, list->count, sizeof *list->keys, compare_keys);
}

static void make_different(key_list *list)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (i == 0 || compare_keys(list->keys[i], list->keys[kept - 1]) != 0)
            memmove(list->keys[kept++], list->keys[i], sizeof *list->keys);
    list->count = kept;
}

static void list_pool(const engine *e, key_list *list)
{
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(e->sched));
    uint64_t total = quire_pool_get_usage(pool).total;
    for (quire_block block = 1; block < total; block++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(pool, block, &info), QUIRE_OK);
        if (info.hash.data != NULL)
            add_key(list, info.group_id, quire_hash_external(info.hash));
        uint32_t extra = pool->extras.heads == NULL ? 0 : pool->extras.heads[block].first;
        for (; extra != 0; extra = qr_extras_next(&pool->extras, extra)) {
            qr_key key = qr_map_key_of(&pool->map, extra);
            add_key(list, key.group_id, quire_hash_external((quire_bytes){key.hash, key.len}));
        }
    }
    sort_keys(list);
    make_different(list);
}

static void visit_key(void *user, const quire_wire_hash *hash, uint32_t group, quire_bytes medium,
                      uint32_t copies)
{
    key_list *list = user;
    (void)copies;
    uint64_t number = hash->bytes.data == NULL ? hash->number : quire_hash_external(hash->bytes);
    if (medium.len != 3 || memcmp(medium.data, "GPU", 3) != 0)
        list->has_strange = true;
    add_key(list, group, number);
}

bool engine_equals(const engine *e, const quire_index *index)
{
    key_list ours = {0};
    key_list theirs = {0};
    list_pool(e, &ours);
    quire_index_visit(index, 0, visit_key, &theirs);
    sort_keys(&theirs);
    bool is_equal =
        !theirs.has_strange && ours.count == theirs.count &&
        (ours.count == 0 || memcmp(ours.keys, theirs.keys, ours.count * sizeof *ours.keys) == 0);
    free(ours.keys);
    free(theirs.keys);
    return is_equal;
}

void listener_show(const listener *l, const engine *e)
{
    key_list ours = {0};
    key_list theirs = {0};
    list_pool(e, &ours);
    quire_index_visit(l->index, 0, visit_key, &theirs);
    sort_keys(&theirs);
    printf("pool has %u keys, the index %u; live %llu replay %llu snapshot %llu gap %llu restart "
           "%llu corrupt %llu\n",
           ours.count, theirs.count, (unsigned long long)l->num_deliveries[QUIRE_DELIVERY_LIVE],
           (unsigned long long)l->num_deliveries[QUIRE_DELIVERY_REPLAY],
           (unsigned long long)l->num_deliveries[QUIRE_DELIVERY_SNAPSHOT],
           (unsigned long long)l->num_deliveries[QUIRE_DELIVERY_GAP],
           (unsigned long long)l->num_deliveries[QUIRE_DELIVERY_RESTART],
           (unsigned long long)l->num_corrupt);
    free(ours.keys);
    free(theirs.keys);
}

/* ---- a listener ------------------------------------------------------------- */

void listener_open(listener *l, const quire_subscriber_config *config, uint32_t count_copies)
{
    quire_index_config index = QUIRE_INDEX_CONFIG_INIT;
    *l = (listener){0};
    index.max_workers = 1;
    index.max_blocks = 1 << 20;
    index.count_copies = count_copies;
    assert_int_equal(quire_index_create(&index, &l->index), QUIRE_OK);
    if (quire_subscriber_create(config, &l->subscriber) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
}

void listener_close(listener *l)
{
    quire_subscriber_destroy(l->subscriber);
    quire_index_destroy(l->index);
}

/* Live and replayed batches follow each other without a hole, whatever came between. */
static void check_number(listener *l, const quire_delivery *d)
{
    bool is_first =
        l->num_deliveries[QUIRE_DELIVERY_LIVE] + l->num_deliveries[QUIRE_DELIVERY_REPLAY] +
            l->num_deliveries[QUIRE_DELIVERY_SNAPSHOT] + l->num_deliveries[QUIRE_DELIVERY_GAP] ==
        0;
    switch (d->kind) {
    case QUIRE_DELIVERY_LIVE:
    case QUIRE_DELIVERY_REPLAY:
        if (l->has_passed_over || l->has_restarted)
            assert_true(d->number >= l->next);
        else if (!is_first)
            assert_int_equal(d->number, l->next);
        l->next = d->number + 1;
        break;
    case QUIRE_DELIVERY_SNAPSHOT:
    case QUIRE_DELIVERY_WHOLE:
        l->next = d->number + 1;
        break;
    default: /* behind a restart all is asked for: what comes may begin at 0 */
        l->next = d->kind == QUIRE_DELIVERY_RESTART ? 0 : d->number;
        break;
    }
    l->has_restarted = d->kind == QUIRE_DELIVERY_RESTART;
}

bool listener_take(listener *l, int timeout_ms)
{
    quire_delivery d = QUIRE_DELIVERY_INIT;
    int status = quire_subscriber_next(l->subscriber, timeout_ms, &d);
    if (status == QUIRE_RETRY)
        return false;
    if (status == QUIRE_E_CORRUPT) {
        l->num_corrupt++;
        l->has_passed_over = true;
        return true;
    }
    assert_int_equal(status, QUIRE_OK);
    check_number(l, &d);
    l->has_passed_over = false;
    l->num_deliveries[d.kind]++;
    if (d.kind == QUIRE_DELIVERY_GAP || d.kind == QUIRE_DELIVERY_RESTART)
        assert_int_equal(quire_index_clear(l->index, 0), QUIRE_OK);
    for (uint32_t i = 0; i < d.batch.num_events; i++)
        assert_int_equal(quire_index_apply(l->index, 0, quire_wire_get(d.events, i)), QUIRE_OK);
    return true;
}

bool listener_follows(listener *l, engine *e)
{
    uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
    while (engine_now_ms() < until_ms) {
        while (listener_take(l, 10))
            ;
        if (engine_equals(e, l->index))
            return true;
        for (int i = 0; i < 4; i++)
            engine_idle(e);
    }
    listener_show(l, e);
    return false;
}

uint64_t engine_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t engine_rss_kib(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmRSS: %llu", &kib) == 1)
            break;
    (void)fclose(file);
    return kib;
}
