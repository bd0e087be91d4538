/* tier/core/open.c - how a tier comes to be, and how it ends. All memory is taken here, in one
 * piece:
 *
 *      | quire_tier | flights | submitted | ended | ready | table | ended_now | part_ended |
 *      | free_slots |
 */
#include "base/arena.h"
#include "base/config.h"
#include "base/hooks.h"
#include "base/refuse.h"
#include "tier/core/tier.h"

enum { DEFAULT_JOBS = 256, MOST_JOBS = 65536, DEFAULT_STRIKES = 3 };
#define DEFAULT_BYTES       (UINT64_C(1) << 30) /* 100 ms of a fast disk */
#define DEFAULT_DEADLINE_NS UINT64_C(5000000000)
#define DEFAULT_BREAKER_NS  UINT64_C(5000000000)
#define DEFAULT_CLOSE_NS    UINT64_C(2000000000)
#define MOST_NS             (UINT64_C(1) << 56) /* two years: sums of a few do not overflow */

/* ---- config ---------------------------------------------------------------- */

static int say_config(const char *what)
{
    return qr_fail(QUIRE_E_CONFIG, "the tier's config: %s", what);
}

/* The caller's may be older, and shorter, than ours. */
static int read_ops(quire_tier_ops *own, const quire_tier_ops *callers)
{
    memset(own, 0, sizeof *own);
    if (callers == NULL || callers->abi != 1 || callers->size < 2 * sizeof(uint32_t))
        return say_config("ops is NULL, or its abi is not 1");
    memcpy(own, callers, callers->size < sizeof *own ? callers->size : sizeof *own);
    return QUIRE_OK;
}

static int check_tier_config(const quire_tier_config *config, const quire_tier_ops *ops)
{
    if (ops->begin == NULL)
        return say_config("ops->begin is NULL");
    if (config->max_jobs > MOST_JOBS)
        return say_config("max_jobs is above 65,536");
    if (config->deadline_ns > MOST_NS || config->breaker_ns > MOST_NS || config->close_ns > MOST_NS)
        return say_config("a time is above two years");
    if (config->run_inline > QUIRE_OFF)
        return say_config("invalid run_inline (expected QUIRE_ON, QUIRE_OFF or 0)");
    return QUIRE_OK;
}

static void set_defaults(quire_tier_config *config)
{
    config->max_jobs = (uint32_t)qr_or_default(config->max_jobs, DEFAULT_JOBS);
    config->max_bytes_in_flight = qr_or_default(config->max_bytes_in_flight, DEFAULT_BYTES);
    config->deadline_ns = qr_or_default(config->deadline_ns, DEFAULT_DEADLINE_NS);
    config->breaker_strikes = (uint32_t)qr_or_default(config->breaker_strikes, DEFAULT_STRIKES);
    config->breaker_ns = qr_or_default(config->breaker_ns, DEFAULT_BREAKER_NS);
    config->close_ns = qr_or_default(config->close_ns, DEFAULT_CLOSE_NS);
}

/* ---- memory ---------------------------------------------------------------- */

/* The struct itself was taken before. */
static void carve_arrays(qr_arena *arena, quire_tier *tier, uint32_t max_jobs)
{
    qr_runner *r = &tier->runner;
    r->max_jobs = max_jobs;
    r->flights = qr_arena_take(arena, max_jobs, sizeof *r->flights);
    qr_spsc_carve(&r->submitted, arena, max_jobs);
    qr_spsc_carve(&r->ended, arena, max_jobs);
    qr_spsc_carve(&tier->ready, arena, max_jobs);
    qr_buckets_carve(&r->table, arena, max_jobs);
    r->ended_now = qr_arena_take(arena, max_jobs, sizeof *r->ended_now);
    r->part_ended = qr_arena_take(arena, max_jobs, sizeof *r->part_ended);
    tier->free_slots = qr_arena_take(arena, max_jobs, sizeof *tier->free_slots);
}

static size_t bytes_of_tier(uint32_t max_jobs)
{
    quire_tier none;
    qr_arena arena = qr_arena_plan();
    (void)qr_arena_take(&arena, 1, sizeof none);
    carve_arrays(&arena, &none, max_jobs);
    return arena.used;
}

static quire_tier *create_tier(uint32_t max_jobs, const quire_allocator *allocator)
{
    qr_owner owner;
    qr_arena arena = qr_owner_carve(&owner, allocator, bytes_of_tier(max_jobs));
    if (arena.base == NULL)
        return NULL;
    quire_tier *tier = qr_arena_take(&arena, 1, sizeof *tier);
    carve_arrays(&arena, tier, max_jobs);
    tier->owner = owner;
    for (uint32_t i = 0; i < max_jobs; i++)
        tier->free_slots[i] = max_jobs - 1 - i;
    tier->num_free = max_jobs;
    tier->earliest_due_ns = UINT64_MAX;
    return tier;
}

/* ---- opening --------------------------------------------------------------- */

static void copy_word(char to[QR_TIER_LABEL_BYTES], const char *from)
{
    size_t len = strnlen(from, QR_TIER_LABEL_BYTES - 1);
    memcpy(to, from, len);
    to[len] = 0;
}

static void set_names(quire_tier *tier, const char *label)
{
    const quire_tier_ops *ops = &tier->runner.ops;
    const char *name = ops->name == NULL ? "tier" : ops->name;
    copy_word(tier->label, label == NULL ? name : label);
    copy_word(tier->medium, ops->medium == NULL ? name : ops->medium);
    for (char *c = tier->medium; ops->medium == NULL && *c != 0; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
}

static int set_tier_up(quire_tier *tier, const quire_tier_config *config)
{
    uint64_t seed;
    qr_runner_init(&tier->runner);
    qr_fork_guard_init(&tier->guard);
    tier->hooks = config->hooks;
    tier->max_bytes = config->max_bytes_in_flight;
    tier->deadline_ns = config->deadline_ns;
    tier->close_ns = config->close_ns;
    tier->is_inline = config->run_inline == QUIRE_ON;
    if (qr_random_bytes(&config->hooks, &seed, sizeof seed) != 0)
        return qr_fail(QUIRE_E_RANDOM, "cannot get random bytes: %s",
                       quire_strerror(QUIRE_E_RANDOM));
    qr_breaker_init(&tier->breaker, config->breaker_strikes, config->breaker_ns, seed);
    tier->runner.hooks = &tier->hooks;
    set_names(tier, config->label);
    return QUIRE_OK;
}

static quire_tier_caps caps_of(const qr_runner *runner)
{
    quire_tier_caps caps = {0};
    if (runner->ops.caps != NULL)
        runner->ops.caps(runner->self, &caps);
    if (caps.alignment == 0)
        caps.alignment = 1;
    if (caps.max_bytes == 0)
        caps.max_bytes = UINT32_MAX;
    return caps;
}

static int open_and_start(quire_tier *tier, const quire_tier_config *config)
{
    qr_runner *r = &tier->runner;
    int status = QUIRE_OK;
    qr_refuse_clear();
    if (r->ops.open != NULL)
        status = r->ops.open(r->self, config->memory, config->memory_bytes);
    if (status != QUIRE_OK)
        return qr_fail_plain(status, tier->label);
    r->caps = caps_of(r);
    if (!tier->is_inline && qr_runner_start(r) != QUIRE_OK)
        return qr_fail(
            QUIRE_E_SYSTEM,
            "tier %s: cannot create a thread or a descriptor; raise the limits of processes "
            "(ulimit -u) and open files (ulimit -n)",
            tier->label);
    return QUIRE_OK;
}

/* On the way here self has become the tier's. */
static int open_tier(const quire_tier_config *config, const quire_tier_ops *ops,
                     const quire_allocator *allocator, quire_tier **out)
{
    quire_tier *tier = create_tier(config->max_jobs, allocator);
    if (tier == NULL)
        return qr_fail(QUIRE_E_NOMEM, "out of memory: %u jobs need %zu bytes", config->max_jobs,
                       bytes_of_tier(config->max_jobs));
    tier->runner.ops = *ops;
    tier->runner.self = config->self;
    int status = set_tier_up(tier, config);
    if (status == QUIRE_OK)
        status = open_and_start(tier, config);
    if (status != QUIRE_OK) {
        (void)qr_runner_stop(&tier->runner, 0);
        qr_owner_release(&tier->owner);
        return status;
    }
    *out = tier;
    return QUIRE_OK;
}

QUIRE_API int quire_tier_open(const quire_tier_config *callers, const quire_allocator *allocator,
                              quire_tier **tier)
{
    qr_refuse_clear();
    quire_tier_config config;
    quire_tier_ops ops;
    int status = qr_config_read(&config, sizeof config, callers);
    if (status != QUIRE_OK)
        return qr_fail(status, "the tier's config: %s", quire_strerror(status));
    status = read_ops(&ops, config.ops);
    if (status != QUIRE_OK)
        return status;
    status = check_tier_config(&config, &ops);
    if (status == QUIRE_OK && (tier == NULL || (allocator != NULL && (allocator->alloc == NULL ||
                                                                      allocator->free == NULL))))
        status = qr_fail(QUIRE_E_ARGUMENT, "tier or a function of the allocator is NULL");
    if (status == QUIRE_OK) {
        set_defaults(&config);
        status = open_tier(&config, &ops, allocator, tier);
    }
    if (status != QUIRE_OK && ops.close != NULL)
        ops.close(config.self);
    return status;
}

int qr_tier_make(const qr_tier_kind *kind, const void *config, uint32_t max_jobs,
                 const quire_hooks *hooks, void **self)
{
    void *read = qr_alloc(1, kind->config_bytes);
    void *own = qr_alloc(1, kind->self_bytes);
    *self = NULL;
    qr_refuse_clear();
    int status = read == NULL || own == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
    if (status == QUIRE_OK)
        status = qr_config_read(read, kind->config_bytes, config);
    if (status == QUIRE_OK)
        status = kind->check(read);
    if (status == QUIRE_OK) {
        *self = own;
        status = kind->init(own, read, max_jobs, hooks);
    }
    if (status != QUIRE_OK && *self != NULL)
        kind->ops->close(own);
    else if (status != QUIRE_OK)
        qr_free(own);
    qr_free(read);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    *self = NULL;
    return qr_fail_plain(status, kind->ops->name);
}

int qr_tier_open_with(const qr_tier_kind *kind, const void *config, const quire_tier_config *common,
                      const quire_allocator *allocator, quire_tier **tier, void **self)
{
    quire_tier_config whole = QUIRE_TIER_CONFIG_INIT;
    if (self != NULL)
        *self = NULL;
    if (tier == NULL)
        return QUIRE_E_ARGUMENT;
    *tier = NULL;
    int status = common == NULL ? QUIRE_OK : qr_config_read(&whole, sizeof whole, common);
    if (status == QUIRE_OK && (whole.ops != NULL || whole.self != NULL))
        return qr_fail(QUIRE_E_ARGUMENT, "common.ops and common.self must be NULL");
    whole.size = sizeof whole;
    whole.ops = kind->ops;
    if (status == QUIRE_OK)
        status = qr_tier_make(kind, config, whole.max_jobs, &whole.hooks, &whole.self);
    if (status == QUIRE_OK)
        status = quire_tier_open(&whole, allocator, tier);
    if (status == QUIRE_OK && self != NULL)
        *self = whole.self;
    return status;
}

/* ---- closing --------------------------------------------------------------- */

QUIRE_API int quire_tier_close(quire_tier *tier)
{
    uint32_t slot;
    if (tier == NULL)
        return QUIRE_OK;
    if (qr_fork_guard_is_child(&tier->guard))
        return QUIRE_E_SYSTEM;
    tier->is_closing = true;
    qr_tier_unwatch(tier);
    if (!qr_runner_stop(&tier->runner, tier->close_ns)) {
        qr_log(&tier->hooks, QUIRE_LOG_ERROR,
               "tier %s does not end its work: it stays open, with its thread and the memory of "
               "its jobs",
               tier->label);
        return QUIRE_BUSY;
    }
    while (qr_tier_next_ended(tier, &slot))
        (void)qr_tier_take_back(tier, slot);
    if (tier->runner.ops.close != NULL)
        tier->runner.ops.close(tier->runner.self);
    qr_owner_release(&tier->owner);
    return QUIRE_OK;
}
