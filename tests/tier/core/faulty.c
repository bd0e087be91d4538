#include "faulty.h"

#include "tier/core/key.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { NONE = 0, TURN_MS = 1, RUBBISH = 0xee };

typedef struct kept {
    quire_tier_key key;
    uint32_t next; /* in its chain or the free list, + 1 */
    uint32_t bytes;
    uint32_t crc;
    unsigned char *data;
} kept;

/* An io on its way. */
typedef struct waiting {
    quire_tier_job *job;
    uint32_t io;
    uint32_t turns;
    bool is_held;
    bool is_ghost; /* has ended, and will end again */
} waiting;

struct faulty {
    faulty_config config;
    _Atomic uint32_t per_mille[FAULTY_NUM_KINDS];
    _Atomic uint64_t num[FAULTY_NUM_KINDS];
    _Atomic uint32_t delay;
    _Atomic bool is_holding;
    _Atomic bool is_blocking;
    _Atomic uint32_t releases;
    _Atomic uint64_t num_begun;
    _Atomic uint64_t num_turns;
    _Atomic uint64_t num_keys;

    pthread_mutex_t lock; /* of what is kept: the scheduler's thread looks too */
    uint32_t num_chains;
    uint32_t *chains;
    kept *all;
    uint32_t free_kept;

    uint64_t random; /* the tier's thread's, as is the rest */
    uint32_t releases_seen;
    waiting *waits;
    uint32_t num_waits;
    uint32_t max_waits;
};

/* ---- demands --------------------------------------------------------------- */

void faulty_set(faulty *f, faulty_kind kind, uint32_t per_mille)
{
    f->per_mille[kind] = per_mille;
}

void faulty_set_all(faulty *f, uint32_t per_mille)
{
    for (faulty_kind kind = FAULTY_FAIL; kind < FAULTY_HOLD; kind++)
        f->per_mille[kind] = per_mille;
}

void faulty_set_delay(faulty *f, uint32_t turns)
{
    f->delay = turns;
}

void faulty_hold(faulty *f, bool is_on)
{
    f->is_holding = is_on;
}

void faulty_release(faulty *f)
{
    f->releases++;
}

void faulty_block(faulty *f, bool is_on)
{
    f->is_blocking = is_on;
}

uint64_t faulty_num(faulty *f, faulty_kind kind)
{
    return f->num[kind];
}

uint64_t faulty_num_begun(faulty *f)
{
    return f->num_begun;
}

uint64_t faulty_num_turns(faulty *f)
{
    return f->num_turns;
}

uint64_t faulty_num_keys(faulty *f)
{
    return f->num_keys;
}

static uint64_t draw(faulty *f)
{
    uint64_t z = f->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static bool goes_wrong(faulty *f, faulty_kind kind)
{
    uint32_t per_mille = f->per_mille[kind];
    bool is_wrong = per_mille > 0 && draw(f) % 1000 < per_mille;
    f->num[kind] += is_wrong ? 1 : 0;
    return is_wrong;
}

/* ---- patterns -------------------------------------------------------------- */

quire_tier_key faulty_key(uint32_t n)
{
    quire_tier_key key;
    unsigned char hash[QUIRE_TIER_HASH_BYTES];
    memset(hash, 0x5a, sizeof hash);
    memcpy(hash, &n, sizeof n);
    quire_tier_key_of((quire_bytes){hash, sizeof hash}, n % 3, 0, &key);
    return key;
}

static unsigned char pattern_byte(uint64_t start, uint32_t at)
{
    uint64_t word = (start + at / 8) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char)(word >> 8 * (at % 8));
}

void faulty_pattern(const quire_tier_key *key, void *memory, uint32_t bytes)
{
    uint64_t start = qr_key_place(key, 1);
    unsigned char *at = memory;
    for (uint32_t i = 0; i < bytes; i++)
        at[i] = pattern_byte(start, i);
}

bool faulty_is_pattern(const quire_tier_key *key, const void *memory, uint32_t bytes)
{
    uint64_t start = qr_key_place(key, 1);
    const unsigned char *at = memory;
    for (uint32_t i = 0; i < bytes; i++)
        if (at[i] != pattern_byte(start, i))
            return false;
    return true;
}

/* ---- what is kept ---------------------------------------------------------- */

static uint32_t *chain_of(faulty *f, const quire_tier_key *key)
{
    return &f->chains[qr_key_place(key, f->config.seed) & (f->num_chains - 1)];
}

/* Where the number of the key stands, or 0 at the end of its chain. */
static uint32_t *find_kept(faulty *f, const quire_tier_key *key)
{
    uint32_t *link = chain_of(f, key);
    while (*link != NONE && !qr_key_is_equal(&f->all[*link - 1].key, key))
        link = &f->all[*link - 1].next;
    return link;
}

static void drop_kept(faulty *f, uint32_t *link)
{
    uint32_t number = *link;
    *link = f->all[number - 1].next;
    f->all[number - 1].next = f->free_kept;
    f->free_kept = number;
    f->num_keys--;
}

/* NULL: no room. */
static kept *keep(faulty *f, const quire_tier_key *key)
{
    uint32_t *link = find_kept(f, key);
    if (*link == NONE) {
        uint32_t number = f->free_kept;
        if (number == NONE)
            return NULL;
        f->free_kept = f->all[number - 1].next;
        f->all[number - 1].key = *key;
        f->all[number - 1].next = NONE;
        *link = number;
        f->num_keys++;
    }
    return &f->all[*link - 1];
}

bool faulty_has(faulty *f, const quire_tier_key *key)
{
    pthread_mutex_lock(&f->lock);
    bool is_there = *find_kept(f, key) != NONE;
    pthread_mutex_unlock(&f->lock);
    return is_there;
}

/* ---- ios ------------------------------------------------------------------- */

static quire_tier_status store_now(faulty *f, quire_tier_io *io)
{
    if (goes_wrong(f, FAULTY_LOSE))
        return QUIRE_TIER_DONE;
    kept *k = goes_wrong(f, FAULTY_NO_ROOM) ? NULL : keep(f, &io->key);
    if (k == NULL)
        return QUIRE_TIER_NO_ROOM;
    k->bytes = io->bytes;
    k->crc = io->crc;
    memcpy(k->data, io->memory, io->bytes);
    if (goes_wrong(f, FAULTY_TORN))
        memset(k->data + io->bytes / 2, RUBBISH, io->bytes - io->bytes / 2);
    return QUIRE_TIER_DONE;
}

static quire_tier_status load_now(faulty *f, quire_tier_io *io)
{
    uint32_t number = *find_kept(f, &io->key);
    if (number == NONE)
        return QUIRE_TIER_MISSING;
    const kept *k = &f->all[number - 1];
    if (k->bytes != io->bytes)
        return QUIRE_TIER_WRONG;
    memset(io->memory, RUBBISH, io->bytes);
    io->crc = k->crc;
    const kept *from = k;
    if (goes_wrong(f, FAULTY_FOREIGN))
        from = &f->all[draw(f) % f->config.max_keys];
    uint32_t bytes = goes_wrong(f, FAULTY_SHORT) ? io->bytes / 2 : io->bytes;
    memcpy(io->memory, from->data, bytes);
    if (goes_wrong(f, FAULTY_FLIP)) {
        uint64_t bit = draw(f) % (8 * (uint64_t)io->bytes);
        ((unsigned char *)io->memory)[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    return QUIRE_TIER_DONE;
}

static quire_tier_status remove_now(faulty *f, const quire_tier_io *io)
{
    uint32_t *link = find_kept(f, &io->key);
    if (*link == NONE)
        return QUIRE_TIER_MISSING;
    drop_kept(f, link);
    return QUIRE_TIER_DONE;
}

static quire_tier_status find_now(faulty *f, quire_tier_io *io)
{
    uint32_t number = *find_kept(f, &io->key);
    if (number == NONE)
        return QUIRE_TIER_MISSING;
    io->bytes = f->all[number - 1].bytes;
    return QUIRE_TIER_DONE;
}

static quire_tier_status do_io(faulty *f, quire_tier_op op, quire_tier_io *io)
{
    if (goes_wrong(f, FAULTY_FAIL)) {
        if (op == QUIRE_TIER_LOAD)
            memset(io->memory, RUBBISH, io->bytes - io->bytes / 3);
        return QUIRE_TIER_FAILED;
    }
    switch (op) {
    case QUIRE_TIER_STORE:
        return store_now(f, io);
    case QUIRE_TIER_LOAD:
        return load_now(f, io);
    case QUIRE_TIER_REMOVE:
        return remove_now(f, io);
    default:
        return find_now(f, io);
    }
}

static void add_wait(faulty *f, waiting wait)
{
    if (f->num_waits == f->max_waits) {
        f->max_waits = f->max_waits == 0 ? 64 : 2 * f->max_waits;
        f->waits = realloc(f->waits, f->max_waits * sizeof *f->waits);
        if (f->waits == NULL)
            abort();
    }
    f->waits[f->num_waits++] = wait;
}

static void end_stray(faulty *f, quire_tier_ends *ends, quire_tier_job *job)
{
    quire_tier_job *never_was = (quire_tier_job *)(uintptr_t)(draw(f) | 1);
    ends->end(ends, never_was, 0, QUIRE_TIER_DONE);
    ends->end(ends, NULL, 0, QUIRE_TIER_DONE);
    ends->end(ends, job, job->num_ios, QUIRE_TIER_DONE);
    ends->end(ends, job, UINT32_MAX, QUIRE_TIER_DONE);
}

static void end_now(faulty *f, quire_tier_ends *ends, quire_tier_job *job, uint32_t io)
{
    pthread_mutex_lock(&f->lock);
    quire_tier_status status = do_io(f, job->op, &job->ios[io]);
    pthread_mutex_unlock(&f->lock);
    if (goes_wrong(f, FAULTY_STRAY))
        end_stray(f, ends, job);
    if (goes_wrong(f, FAULTY_BAD_STATUS))
        status = (quire_tier_status)(draw(f) % 2 == 0 ? 99 : 0);
    ends->end(ends, job, io, status);
    if (goes_wrong(f, FAULTY_TWICE)) {
        ends->end(ends, job, io, QUIRE_TIER_DONE);
        if (f->config.has_ghosts)
            add_wait(f, (waiting){.job = job, .io = io, .turns = 1, .is_ghost = true});
    }
}

/* ---- the tier's own part --------------------------------------------------- */

static int faulty_open(void *self, const void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    return ((faulty *)self)->config.fails_to_open ? QUIRE_E_SYSTEM : QUIRE_OK;
}

static void faulty_close(void *self)
{
    faulty *f = self;
    pthread_mutex_destroy(&f->lock);
    if (f->all != NULL)
        free(f->all[0].data);
    free(f->all);
    free(f->chains);
    free(f->waits);
    free(f);
}

static void faulty_caps(void *self, quire_tier_caps *caps)
{
    const faulty *f = self;
    *caps = (quire_tier_caps){.alignment = 1,
                              .max_bytes = f->config.max_bytes,
                              .is_shared = f->config.is_shared,
                              .looks_ahead = 1,
                              .capacity_bytes = (uint64_t)f->config.max_keys * f->config.max_bytes};
}

/* What is known without asking. */
static void faulty_prepare(void *self, quire_tier_job *job)
{
    faulty *f = self;
    if (f->config.is_shared || job->op == QUIRE_TIER_STORE)
        return;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < job->num_ios; i++)
        if (*find_kept(f, &job->ios[i].key) == NONE)
            job->ios[i].status = QUIRE_TIER_MISSING;
    pthread_mutex_unlock(&f->lock);
}

static void faulty_finish(void *self, quire_tier_job *job)
{
    faulty *f = self;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < job->num_ios; i++) {
        uint32_t *link = find_kept(f, &job->ios[i].key);
        if (job->ios[i].status == QUIRE_TIER_WRONG && *link != NONE)
            drop_kept(f, link);
    }
    pthread_mutex_unlock(&f->lock);
}

static void faulty_lookup(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    faulty *f = self;
    for (uint32_t i = 0; i < n; i++)
        found[i] = f->config.is_shared ? 2 : faulty_has(f, &keys[i]);
}

static int faulty_reset(void *self)
{
    faulty *f = self;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->num_chains; i++)
        while (f->chains[i] != NONE)
            drop_kept(f, &f->chains[i]);
    pthread_mutex_unlock(&f->lock);
    return QUIRE_OK;
}

static quire_usage faulty_usage(void *self)
{
    faulty *f = self;
    uint64_t used = f->num_keys;
    return (quire_usage){
        .total = f->config.max_keys, .cached = used, .empty = f->config.max_keys - used};
}

static void faulty_begin(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    faulty *f = self;
    f->num_begun++;
    while (f->is_blocking)
        usleep(200);
    for (uint32_t i = 0; i < job->num_ios; i++) {
        if (job->ios[i].status != QUIRE_TIER_PENDING)
            continue;
        uint32_t delay = f->delay;
        uint32_t turns = delay == 0 ? 0 : (uint32_t)(draw(f) % (delay + 1));
        bool is_held = goes_wrong(f, FAULTY_HOLD);
        if (turns == 0 && !is_held && !f->is_holding)
            end_now(f, ends, job, i);
        else
            add_wait(f, (waiting){.job = job, .io = i, .turns = turns, .is_held = is_held});
    }
}

static void end_waits(faulty *f, quire_tier_ends *ends)
{
    uint32_t releases = f->releases;
    bool is_released = releases != f->releases_seen;
    f->releases_seen = releases;
    for (uint32_t i = 0; i < f->num_waits;) {
        waiting *wait = &f->waits[i];
        wait->is_held = wait->is_held && !is_released;
        wait->turns -= wait->turns > 0 ? 1 : 0;
        if (wait->turns > 0 || wait->is_held || (f->is_holding && !wait->is_ghost)) {
            i++;
            continue;
        }
        waiting now = *wait;
        *wait = f->waits[--f->num_waits];
        if (now.is_ghost)
            ends->end(ends, now.job, now.io, QUIRE_TIER_DONE);
        else
            end_now(f, ends, now.job, now.io);
    }
}

static void faulty_turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    faulty *f = self;
    f->num_turns++;
    if (wake_fd >= 0) {
        struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
        bool has_waits = f->num_waits > 0;
        (void)poll(&wake, 1, has_waits && timeout_ms != 0 ? TURN_MS : timeout_ms);
    }
    end_waits(f, ends);
}

static void faulty_cancel(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    faulty *f = self;
    if (f->config.ignores_cancel)
        return;
    for (uint32_t i = 0; i < f->num_waits;) {
        if (f->waits[i].job != job || f->waits[i].is_ghost || f->waits[i].is_held ||
            f->is_holding) {
            i++;
            continue;
        }
        uint32_t io = f->waits[i].io;
        f->waits[i] = f->waits[--f->num_waits];
        ends->end(ends, job, io, QUIRE_TIER_CANCELLED);
    }
}

const quire_tier_ops *faulty_ops(void)
{
    static const quire_tier_ops OPS = {.abi = 1,
                                       .size = sizeof(quire_tier_ops),
                                       .name = "faulty",
                                       .open = faulty_open,
                                       .close = faulty_close,
                                       .caps = faulty_caps,
                                       .prepare = faulty_prepare,
                                       .finish = faulty_finish,
                                       .lookup = faulty_lookup,
                                       .reset = faulty_reset,
                                       .usage = faulty_usage,
                                       .begin = faulty_begin,
                                       .turn = faulty_turn,
                                       .cancel = faulty_cancel};
    return &OPS;
}

faulty *faulty_create(const faulty_config *config)
{
    faulty *f = calloc(1, sizeof *f);
    if (f == NULL)
        abort();
    f->config = *config;
    f->random = config->seed;
    f->num_chains = 2;
    while (f->num_chains < config->max_keys)
        f->num_chains *= 2;
    f->chains = calloc(f->num_chains, sizeof *f->chains);
    f->all = calloc(config->max_keys, sizeof *f->all);
    unsigned char *data = calloc(config->max_keys, config->max_bytes);
    if (f->chains == NULL || f->all == NULL || data == NULL)
        abort();
    for (uint32_t i = config->max_keys; i > 0; i--) {
        f->all[i - 1].data = data + (size_t)(i - 1) * config->max_bytes;
        f->all[i - 1].next = f->free_kept;
        f->free_kept = i;
    }
    pthread_mutex_init(&f->lock, NULL);
    return f;
}
