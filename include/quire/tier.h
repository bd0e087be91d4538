/* quire/tier.h - where KV blocks are stored when the engine's memory is needed for other blocks.
 *
 *      the scheduler's thread                        one thread for each tier
 *      quire_tier_submit ─ prepare ─► ring ─► begin ─► disk, network
 *      quire_tier_poll   ◄─ finish ── ring ◄─ end ──   one completion for each job, a status for
 *                                                     each key
 *
 * tier      stores the bytes of blocks under their keys: a file (quire/tier_file.h), a Redis
 *           cluster (quire/tier_redis.h), an object store (quire/tier_object.h), the host memory of
 *           another engine (quire/tier_peer.h), or the caller's own tier (quire_tier_ops).
 * key       the hash of a block, its group, and the rank of the part. A tier has one namespace, the
 *           fingerprint (quire_fingerprint): blocks of another fingerprint are never found.
 * job       loads, stores, removes or finds some keys. The memory of a job belongs to the tier from
 *           submit to completion, also after a cancel and after its deadline.
 * deadline  after its deadline a job is late: quire_tier_is_late. The caller continues without the
 *           job. The completion still comes, when nothing touches the memory any longer; only then
 *           may the memory be reused.
 * breaker   a tier that fails or is late several times in a row gets no work for a while: CLOSED,
 *           OPEN, PROBING. In the meantime jobs end with QUIRE_TIER_REFUSED.
 *
 * A tier never makes the scheduler wait: submit and poll do not block or allocate, and make no
 * system call while the tier's thread is awake. A load returns either exactly the bytes that were
 * stored under this key in this namespace (key, fingerprint, length and CRC32C are checked) or an
 * error.
 *
 * Threads: one thread calls submit, poll, cancel and lookup. Any thread may call
 * quire_tier_get_stats. In the child of a fork calls return QUIRE_E_SYSTEM. If a required pointer
 * is NULL, calls return QUIRE_E_ARGUMENT.
 */
#ifndef QUIRE_TIER_H
#define QUIRE_TIER_H

#include "config.h"
#include "error.h"
#include "memory.h"
#include "pool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_tier quire_tier;
struct quire_slots;

/* ---- jobs ------------------------------------------------------------------ */

#define QUIRE_TIER_HASH_BYTES 32

typedef struct quire_tier_key {                /* final */
    unsigned char hash[QUIRE_TIER_HASH_BYTES]; /* of the block; see quire_tier_key_of */
    uint32_t group;
    uint32_t rank;
} quire_tier_key;

/* The key of a block hash. A shorter hash is extended with zeros at the end; a longer hash is
 * replaced by its SHA-256. */
QUIRE_API void quire_tier_key_of(quire_bytes hash, uint32_t group, uint32_t rank,
                                 quire_tier_key *key);

typedef enum quire_tier_op {
    QUIRE_TIER_LOAD = 1,
    QUIRE_TIER_STORE = 2,
    QUIRE_TIER_REMOVE = 3,
    QUIRE_TIER_FIND = 4
} quire_tier_op;

typedef enum quire_tier_status {
    QUIRE_TIER_PENDING = 0,
    QUIRE_TIER_DONE = 1,
    QUIRE_TIER_MISSING = 2,   /* LOAD, REMOVE, FIND: not found */
    QUIRE_TIER_NO_ROOM = 3,   /* STORE: the tier is full */
    QUIRE_TIER_WRONG = 4,     /* LOAD: corrupt or not what was stored; it is removed */
    QUIRE_TIER_FAILED = 5,    /* I/O error or network error */
    QUIRE_TIER_CANCELLED = 6, /* before it was begun */
    QUIRE_TIER_REFUSED = 7    /* not tried: the breaker is open, or the tier is closing */
} quire_tier_status;

typedef struct quire_tier_io { /* final */
    quire_tier_key key;
    void *memory; /* LOAD: destination; STORE: source; aligned as caps say */
    /* LOAD: must equal the stored bytes, otherwise WRONG. FIND: set if known. */
    uint32_t bytes;
    uint32_t crc;             /* CRC32C of the bytes. STORE: see has_crcs. LOAD: set */
    quire_tier_status status; /* set by the tier */
    uint32_t generation;      /* for the tier */
    uint64_t place;           /* for the tier: where the block is */
} quire_tier_io;

typedef struct quire_tier_job { /* final */
    uint64_t id;                /* set by the caller */
    quire_tier_op op;
    uint32_t num_ios;
    /* The array and the job must stay valid, at the same address, until the completion. */
    quire_tier_io *ios;
    uint64_t deadline_ns;  /* by hooks.now_ns; 0: the tier's default, from submit on */
    uint64_t due_ns;       /* set by submit: the effective deadline */
    uint64_t submitted_ns; /* set by submit */
    uint64_t ended_ns;     /* set by the tier, to learn its costs */
    uint32_t has_crcs;     /* STORE: 1: the ios have their crc; 0: the tier's thread computes it */
    /* FIND: 1: the keys are a prefix, in order, and only the keys before the first miss matter. The
     * tier is asked for the first key, then for 4, 16, 64, ... more keys. After the first status
     * other than DONE the remaining keys are CANCELLED. */
    uint32_t is_prefix;
    /* For the tier. The caller sets 0 before the first submit; it is 0 after each end. */
    uint32_t state;
    void *next; /* for quire_tier_ops, from begin to the last end: a list */
} quire_tier_job;

/* ---- a tier's own part ----------------------------------------------------- */

typedef struct quire_tier_caps { /* lent */
    uint32_t alignment;          /* of memory and bytes; 1: any */
    uint32_t max_bytes;          /* the most bytes of one key */
    uint32_t is_persistent;
    /* 1: other engines store here too: lookup does not know all keys, FIND asks. */
    uint32_t is_shared;
    /* 1: LOAD compares the CRC before DONE. 0: LOAD sets io->crc to the stored CRC, and end
     * compares: DONE becomes WRONG if they differ. */
    uint32_t checks_crc;
    uint32_t is_simulated;   /* 1: keeps keys only; memory is not touched and may be NULL */
    uint64_t capacity_bytes; /* 0: unknown */
    /* 1: its policy uses expect: the keys that waiting requests will use. */
    uint32_t looks_ahead;
    /* 1: STORE and REMOVE end with REFUSED; an offload does not try them. */
    uint32_t is_read_only;
    /* 1: a LOAD may name keys that lookup does not know (found = 2): the tier finds and loads them
     * as one job, and FIND is not used. If is_prefix of the job is 1, the keys after the first
     * status other than DONE may be CANCELLED. Before prepare, the place of an io is the number of
     * its CPU block. */
    uint32_t loads_unknown;
} quire_tier_caps;

/* Ends the ios of jobs; passed to begin, turn and cancel. If an io has already ended, or its job
 * was not begun, the call is counted (bad_ends) and ignored. A job is valid until the call returns
 * in which its last io ended; after that call the scheduler has the job. */
typedef struct quire_tier_ends { /* lent */
    void (*end)(struct quire_tier_ends *ends, quire_tier_job *job, uint32_t io,
                quire_tier_status status);
} quire_tier_ends;

/* Bytes that the blocks of a tier use, and may use; 0: unknown. */
typedef struct quire_tier_space { /* final */
    uint64_t used_bytes;
    uint64_t capacity_bytes;
} quire_tier_space;

/* Functions of a tier. begin is required. If another function is NULL, there is nothing to do. None
 * of them may call the tier that it belongs to. */
typedef struct quire_tier_ops {
    uint32_t abi;  /* 1 */
    uint32_t size; /* of this struct */
    const char *name;

    /* Called on the thread that opens the tier: files, connections, memory. memory is the
     * memory that jobs will use, if known, so that it can be registered. If it fails, it says why
     * and what to do with quire_refuse. */
    int (*open)(void *self, const void *memory, size_t bytes);
    void (*close)(void *self); /* after the last turn, or after a failed open; frees self too */
    /* Sets the fields of caps that are not 0; all fields are 0 before the call. */
    void (*caps)(void *self, quire_tier_caps *caps);

    /* Called on the scheduler's thread. These functions must not wait or make system calls. */
    /* Called before the job goes to the other thread: sets the place of each io, or its status if
     * the status is already known. This thread owns the metadata (which key is where, what is
     * evicted). */
    void (*prepare)(void *self, quire_tier_job *job);
    /* Called after the end of a job, once for each prepare: stored keys can be found from now on,
     * failed keys are dropped. */
    void (*finish)(void *self, quire_tier_job *job);
    /* found[i]: 1 found, 0 not found, 2 unknown without FIND. NULL: 2 for all keys. */
    void (*lookup)(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found);
    /* Used, for the policy. */
    void (*touch)(void *self, const quire_tier_key *keys, uint32_t n);
    /* Drops all keys; jobs in flight may end in any way. The thread gets a turn soon. Not called
     * for a tier that is persistent and shared. */
    int (*reset)(void *self);
    quire_usage (*usage)(void *self); /* counts keys; any thread */

    /* Called on the tier's thread. The tier may call the clock and log hooks there too. */
    /* Starts a job. Each io that is PENDING must end once, here or in a later turn: with REFUSED or
     * CANCELLED if it was not tried (the breaker does not count these). A FIND of a prefix is begun
     * several times, each time after its ios have ended, with more ios: a job of the library whose
     * ios belong to the caller. */
    void (*begin)(void *self, quire_tier_ends *ends, quire_tier_job *job);
    /* Continues the jobs that were begun. Waits at most timeout_ms (-1: no limit) for work, or
     * until wake_fd is readable (turn does not read it). Returns when something has ended. wake_fd
     * is -1 if there is no thread (run_inline). */
    void (*turn)(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms);
    /* The job is not needed any longer, or is late: ends the ios that can end. At most once for a
     * job. */
    void (*cancel)(void *self, quire_tier_ends *ends, quire_tier_job *job);

    /* Called on the scheduler's thread if caps.looks_ahead is 1. A waiting request will use these
     * keys; order is its position in the queue (a smaller order is sooner). n = 0: the request no
     * longer waits. See quire/slots.h. */
    void (*expect)(void *self, uint64_t request, uint64_t order, const quire_tier_key *keys,
                   uint32_t n);

    /* Called on the scheduler's thread while no job is in flight: changes the namespace to another
     * fingerprint. May make system calls. NULL: quire_tier_reset instead, which fails for a
     * persistent and shared tier. */
    int (*set_identity)(void *self, const unsigned char *fingerprint);
    /* Called on the scheduler's thread: 1 if the change of the last reset or set_identity would
     * survive a crash, 0 if not yet, -1 if it failed. NULL: 1. */
    int (*is_settled)(void *self);
    /* The medium in KV events and metrics, such as "DISK". NULL: the name in capitals. */
    const char *medium;
    /* Any thread; NULL: only caps.capacity_bytes is known. */
    quire_tier_space (*space)(void *self);
    /* Called on the scheduler's thread: the keys in the tier, as far as the tier knows them; always
     * the same slots (quire/slots.h). An offload reports KV events from them. If slots is NULL or
     * returns NULL, the events of the tier are not reported. */
    struct quire_slots *(*slots)(void *self);
} quire_tier_ops;

/* ---- opening --------------------------------------------------------------- */

typedef struct quire_tier_config {
    size_t size;
    const quire_tier_ops *ops;
    void *self;
    const char *label;  /* in logs and metrics; NULL: ops->name */
    const void *memory; /* memory that jobs will use; NULL: any memory */
    size_t memory_bytes;
    uint32_t max_jobs;            /* the most jobs in flight; 0 = 256 */
    uint64_t max_bytes_in_flight; /* 0 = 1 GiB; a larger job runs alone */
    uint64_t deadline_ns;         /* of a job without a deadline; 0 = 5 s */
    uint32_t breaker_strikes;     /* failures in a row that open the breaker; 0 = 3 */
    /* First time that the breaker is OPEN, then doubled up to 12 times this time; 0 = 5 s. */
    uint64_t breaker_ns;
    uint64_t close_ns; /* the longest wait of quire_tier_close; 0 = 2 s */
    /* No thread: submit begins jobs, poll runs turns; for simulations. */
    quire_switch run_inline;
    quire_hooks hooks;
} quire_tier_config;

#define QUIRE_TIER_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_config)

/* Opens the tier and starts its thread. The tier owns self, also if open fails (except if the
 * config cannot be read). If it fails, quire_refusal says why and what to do. Returns
 * QUIRE_E_CONFIG, QUIRE_E_NOMEM, QUIRE_E_SYSTEM, QUIRE_E_RANDOM, or the status of ops->open. A tier
 * belongs to the process that opened it. In the child of a fork every call returns QUIRE_E_SYSTEM
 * (poll: 0 jobs), quire_tier_close included: the child frees nothing, and reaches no thread, file,
 * lock or connection of the parent. */
QUIRE_API int quire_tier_open(const quire_tier_config *config, const quire_allocator *allocator,
                              quire_tier **tier);

/* Ends the jobs in flight (REFUSED if a job has not begun) and closes the tier; jobs that were not
 * polled have their statuses afterwards. Returns QUIRE_BUSY if the tier's thread does not return
 * within close_ns, or a job does not end: the tier and its thread then stay, and the memory of its
 * jobs must not be reused. Such a tier accepts no jobs, can be polled, and can be closed again
 * later. NULL: returns QUIRE_OK. */
QUIRE_API int quire_tier_close(quire_tier *tier);

/* ---- working --------------------------------------------------------------- */

/* Submits a job. If the call does not return QUIRE_OK, the tier did not accept the job. QUIRE_FULL:
 * max_jobs or max_bytes_in_flight is reached. QUIRE_BUSY: the breaker is open, or the tier is
 * closing. QUIRE_E_RANGE: bytes or alignment violate caps. QUIRE_E_ARGUMENT: the job is already in
 * flight (state is not 0). */
QUIRE_API int quire_tier_submit(quire_tier *tier, quire_tier_job *job);

/* Writes the jobs that have ended, each once, and returns their number. Call it once in each step.
 */
QUIRE_API uint32_t quire_tier_poll(quire_tier *tier, quire_tier_job **jobs, uint32_t capacity);

/* Asks the tier to end a job early; the completion comes in any case. QUIRE_MISS: the job is not in
 * flight in this tier. */
QUIRE_API int quire_tier_cancel(quire_tier *tier, quire_tier_job *job);

/* 1 if the deadline of the job has passed, or had passed before the job ended. Loads of a late job
 * count as missing. The next poll cancels a late job. */
QUIRE_API int quire_tier_is_late(const quire_tier *tier, const quire_tier_job *job);

/* Like ops->lookup. While the breaker is open, no key is found. */
QUIRE_API int quire_tier_lookup(quire_tier *tier, const quire_tier_key *keys, uint32_t n,
                                uint8_t *found);
QUIRE_API int quire_tier_touch(quire_tier *tier, const quire_tier_key *keys, uint32_t n);
/* Tells the tier's policy which keys a waiting request will use: see quire_tier_ops.expect. */
QUIRE_API int quire_tier_expect(quire_tier *tier, uint64_t request, uint64_t order,
                                const quire_tier_key *keys, uint32_t n);

/* Drops all stored blocks, for this process and later ones: waits at most close_ns until a crash
 * cannot undo the reset (not with run_inline). Jobs in flight may end in any way. QUIRE_E_IDENTITY:
 * the tier is persistent and shared, so its blocks belong to other engines too; nothing has
 * changed; call quire_tier_set_identity. QUIRE_E_SYSTEM: this process finds no blocks any longer,
 * but the disk could not be updated: a later process may find them. */
QUIRE_API int quire_tier_reset(quire_tier *tier);
/* Changes the identity of the tier (QUIRE_FINGERPRINT_BYTES of quire_fingerprint, for example of
 * new weights). From now on the tier stores and finds the blocks of this identity, and does not
 * find the blocks of the old identity. Other engines that share the tier keep their blocks, and a
 * tier that is opened with the old identity finds them. A private file is emptied; it belongs to
 * the new identity, and opening it with the old identity fails or empties it (if_other).
 * QUIRE_BUSY: jobs are in flight, and nothing has changed; poll, then retry. Other errors as for
 * quire_tier_reset; QUIRE_E_SYSTEM also if the new directory cannot be created: nothing has
 * changed. */
QUIRE_API int quire_tier_set_identity(quire_tier *tier, const unsigned char *fingerprint);
/* Valid as long as the tier; NULL if tier is NULL. */
QUIRE_API const quire_tier_caps *quire_tier_get_caps(const quire_tier *tier);
QUIRE_API const char *quire_tier_label(const quire_tier *tier);
/* The medium: "DISK" for a file or a directory, "REDIS", ...; see quire_tier_ops.medium. */
QUIRE_API const char *quire_tier_medium(const quire_tier *tier);

typedef enum quire_tier_health {
    QUIRE_TIER_CLOSED = 0, /* the breaker is closed: the tier works */
    QUIRE_TIER_OPEN = 1,   /* no work */
    QUIRE_TIER_PROBING = 2 /* one job, as a test */
} quire_tier_health;

typedef struct quire_tier_stats {
    size_t size;
    quire_tier_health health;
    quire_usage usage; /* counts keys */
    uint64_t jobs;
    uint64_t jobs_in_flight;
    uint64_t bytes_in_flight;
    uint64_t bytes_late; /* memory that late jobs still use */
    uint64_t keys[5][8]; /* [op][status] */
    uint64_t bytes_loaded;
    uint64_t bytes_stored;
    uint64_t late; /* jobs */
    uint64_t breaker_opened;
    /* Errors of quire_tier_ops: an io that ended twice, a job that does not exist. */
    uint64_t bad_ends;
    quire_tier_space space;
} quire_tier_stats;

#define QUIRE_TIER_STATS_INIT QUIRE_SIZED_INIT(quire_tier_stats)

QUIRE_API int quire_tier_get_stats(const quire_tier *tier,
                                   quire_tier_stats *stats); /* any thread */

/* ---- what content means ---------------------------------------------------- */

/* CRC32C (Castagnoli) of bytes, with the processor's instructions. crc is 0, or the CRC of the
 * bytes before. */
QUIRE_API uint32_t quire_crc32c(uint32_t crc, const void *data, size_t bytes);

/* Everything that decides the meaning of the bytes of a block. Two engines share blocks only if all
 * fields are equal. An absent field differs from an empty field. */
typedef struct quire_identity {
    size_t size;
    quire_bytes model;          /* for example "meta-llama/Llama-3.1-8B" */
    quire_bytes weights_digest; /* of the weights, or the revision */
    quire_bytes tokenizer;
    quire_bytes kv_dtype;  /* for example "bfloat16", "fp8_e4m3" */
    quire_bytes kv_scales; /* digest of the scales */
    quire_bytes layout;    /* "NHD", "HND", ... and the order of layers in a block */
    quire_bytes attention; /* rope and sliding windows, in the engine's own notation */
    quire_bytes lora;      /* name and digest of an adapter that is merged into the weights */
    quire_bytes hash_algorithm;
    quire_bytes hash_seed;
    quire_bytes tenant; /* salt of one tenant; the salt of a request is in its block hashes */
    uint32_t num_layers;
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint32_t block_tokens;
    uint32_t num_groups;
    uint32_t tp_size;
    uint32_t pp_size;
    uint32_t dcp_size;
    uint32_t pcp_size;
    uint64_t block_bytes; /* of one rank */
} quire_identity;

#define QUIRE_IDENTITY_INIT QUIRE_SIZED_INIT(quire_identity)

#define QUIRE_FINGERPRINT_BYTES 32

/* SHA-256 over every field with its tag and length. QUIRE_E_CONFIG if the size field is wrong,
 * QUIRE_E_ARGUMENT if a pointer is NULL. */
QUIRE_API int quire_fingerprint(const quire_identity *identity, unsigned char *fingerprint);

#ifdef __cplusplus
}
#endif
#endif
