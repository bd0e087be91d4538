/* quire/tier.h - where KV blocks go when the engine's memory is needed for others.
 *
 *      the scheduler's thread                        one thread for each tier
 *      quire_tier_submit ─ prepare ─► ring ─► begin ─► disk, network
 *      quire_tier_poll   ◄─ finish ── ring ◄─ end ──   one completion for a job, a status for each
 *                                                     key
 *
 * tier      keeps the bytes of blocks under their keys: a file (quire/tier_file.h), a Redis cluster
 *           (quire/tier_redis.h), the host memory of another engine (quire/tier_peer.h), or the
 *           caller's own (quire_tier_ops).
 * key       the hash of a block, its group, the rank whose part it is. A tier has one namespace,
 *           the fingerprint (quire_fingerprint): what was stored under another is never found.
 * job       loads, stores, removes or looks for some keys. Its memory belongs to the tier from
 *           submit to completion, whatever happens: also after a cancel, also past its deadline.
 * deadline  past it a job is late: quire_tier_is_late. Its user goes on without it; its completion
 *           still comes, when nothing touches the memory any more, and only then is the memory free
 *           for others.
 * breaker   a tier that fails, or is late, a few times in a row gets no work for a while: CLOSED,
 *           OPEN, PROBING. Jobs meanwhile end with QUIRE_TIER_REFUSED.
 *
 * No tier makes the scheduler wait: submit and poll do not block, allocate or, while the tier's
 * thread is awake, call the system. What a load gives back is either the very bytes that were
 * stored under that key in this namespace (key, fingerprint, length and CRC32C are checked) or an
 * error.
 *
 * Threads: submit, poll, cancel and lookup belong to one thread; stats may be asked by any.
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

typedef struct quire_tier_key {
    unsigned char hash[QUIRE_TIER_HASH_BYTES]; /* of the block; see quire_tier_key_of */
    uint32_t group;
    uint32_t rank;
} quire_tier_key;

/* The key of a block hash: shorter hashes with zeros behind, longer ones as their SHA-256. */
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
    QUIRE_TIER_MISSING = 2,   /* LOAD, REMOVE, FIND: not there */
    QUIRE_TIER_NO_ROOM = 3,   /* STORE */
    QUIRE_TIER_WRONG = 4,     /* LOAD: what is there is not what was stored; it is removed */
    QUIRE_TIER_FAILED = 5,    /* input, output, network */
    QUIRE_TIER_CANCELLED = 6, /* before it was begun */
    QUIRE_TIER_REFUSED = 7    /* by the breaker, or since the tier is being closed: not tried */
} quire_tier_status;

typedef struct quire_tier_io {
    quire_tier_key key;
    void *memory;             /* LOAD: to here; STORE: from here; aligned as caps say */
    uint32_t bytes;           /* LOAD: as many as were stored, else WRONG. FIND: set where known */
    uint32_t crc;             /* CRC32C of the bytes: STORE: see has_crcs; LOAD: set */
    quire_tier_status status; /* set by the tier */
    uint32_t generation;      /* the tier's own, */
    uint64_t place;           /* and where it is */
} quire_tier_io;

typedef struct quire_tier_job {
    uint64_t id; /* the caller's */
    quire_tier_op op;
    uint32_t num_ios;
    quire_tier_io *ios;    /* stay where they are, with the job itself, until the completion */
    uint64_t deadline_ns;  /* by hooks.now_ns; 0: the tier's default from submit on */
    uint64_t due_ns;       /* set by submit: which of the two it is */
    uint64_t submitted_ns; /* set by submit */
    uint64_t ended_ns;     /* set by the tier: for learning what it costs */
    uint32_t has_crcs;     /* STORE: the ios' crc is given; 0: computed on the tier's thread */
    /* FIND: 1: the keys are those of a prefix, in order, and only the keys before the first that is
     * not found are of interest. The tier is asked about the first key, then about 4, 16, 64, ...
     * more; after the first answer other than DONE the keys that were not asked are CANCELLED. */
    uint32_t is_prefix;
    uint32_t state; /* the tier's own: 0 before the first submit, and 0 after each end */
    void *next;     /* of quire_tier_ops from begin to the last end, for a list */
} quire_tier_job;

/* ---- a tier's own part ----------------------------------------------------- */

typedef struct quire_tier_caps {
    uint32_t alignment; /* of memory and bytes; 1: none */
    uint32_t max_bytes; /* of one key */
    uint32_t is_persistent;
    uint32_t is_shared; /* others may store there too: lookup does not know all, FIND asks */
    /* LOAD compares the CRC before DONE. 0: it sets io->crc to what was stored, and end compares:
     * DONE becomes WRONG where they differ. */
    uint32_t checks_crc;
    uint32_t is_simulated;   /* keeps keys alone: memory is not touched, and may be NULL */
    uint64_t capacity_bytes; /* 0: not known */
    uint32_t looks_ahead;    /* its policy wants to know what waiting requests will use: expect */
    uint32_t is_read_only;   /* STORE and REMOVE end with REFUSED; an offload does not try them */
} quire_tier_caps;

/* How jobs' ios end; given to begin, turn and cancel. An io that has ended already, or is not of a
 * job that was begun, is counted (bad_ends) and otherwise ignored. A job may be looked at until the
 * call returns in which its last io ended, and no longer: the scheduler gets it then. */
typedef struct quire_tier_ends {
    void (*end)(struct quire_tier_ends *ends, quire_tier_job *job, uint32_t io,
                quire_tier_status status);
} quire_tier_ends;

/* What a tier's blocks take, and may take; 0: not known. */
typedef struct quire_tier_space {
    uint64_t used_bytes;
    uint64_t capacity_bytes;
} quire_tier_space;

/* Only begin must be there; NULL elsewhere: nothing to do. */
typedef struct quire_tier_ops {
    uint32_t abi;  /* 1 */
    uint32_t size; /* of this struct */
    const char *name;

    /* On the thread that opens: files, connections, memory. message says what is wrong and what to
     * do. The memory that jobs will use, where it is known, so that it can be registered. */
    int (*open)(void *self, const void *memory, size_t bytes, char *message, size_t message_bytes);
    void (*close)(void *self); /* after the last turn, or an open that failed; frees self too */
    quire_tier_caps (*caps)(void *self);

    /* On the scheduler's thread. None of these waits or calls the system. */
    /* Before the job goes to the other thread: place of each io, or its status where it is known
     * already. Metadata (which key is where, what is evicted) belongs to this thread. */
    void (*prepare)(void *self, quire_tier_job *job);
    /* After its end, once for each prepare: what was stored can be found from now on, what failed
     * is forgotten. */
    void (*finish)(void *self, quire_tier_job *job);
    /* found[i]: 1 there, 0 not, 2 not known without FIND. NULL: 2 for all. */
    void (*lookup)(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found);
    void (*touch)(void *self, const quire_tier_key *keys, uint32_t n); /* used, for its policy */
    /* Nothing is found any more; jobs in flight end as they may. The thread gets a turn soon. Not
     * called for a tier that is persistent and shared. */
    int (*reset)(void *self);
    quire_usage (*usage)(void *self); /* in keys; any thread */

    /* On the tier's thread. Clock and log hooks may be called there too. */
    /* Starts a job. Each io that is PENDING ends once, here or in a later turn: REFUSED and
     * CANCELLED where it was not tried, which the breaker does not count. A FIND of a prefix comes
     * here several times, each time after its ios have ended, with more ios: a job of the runner's
     * own whose ios are the caller's. */
    void (*begin)(void *self, quire_tier_ends *ends, quire_tier_job *job);
    /* Goes on with what was begun; waits at most timeout_ms (-1: for ever) for something to do or
     * until wake_fd can be read (it is not read here). Returns when something ended. wake_fd is -1
     * where there is no thread (run_inline). */
    void (*turn)(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms);
    /* The job need not be finished, or is late: its ios that can, end. At most once for a job. */
    void (*cancel)(void *self, quire_tier_ends *ends, quire_tier_job *job);

    /* On the scheduler's thread, where caps say that it looks ahead. A request that waits will use
     * these keys, at this place in the queue (smaller: sooner); n = 0: it waits no longer. See
     * quire/slots.h. */
    void (*expect)(void *self, uint64_t request, uint64_t order, const quire_tier_key *keys,
                   uint32_t n);

    /* On the scheduler's thread, while no job is in flight: the namespace becomes that of another
     * fingerprint. May call the system. NULL: reset, and none for a tier that is shared. */
    int (*set_identity)(void *self, const unsigned char *fingerprint);
    /* On the scheduler's thread: whether what the last reset or set_identity changed would survive
     * a crash: 1 yes, 0 not yet, -1 it failed. NULL: 1. */
    int (*is_settled)(void *self);
    /* What blocks lie in, as KV events and metrics name it: "DISK". NULL: the name in capitals. */
    const char *medium;
    quire_tier_space (*space)(void *self); /* any thread. NULL: only caps.capacity_bytes is known */
    /* On the scheduler's thread: the keys that are there, as far as the tier knows, and always the
     * same slots (quire/slots.h). An offload tells KV events of them. NULL, or NULL returned: the
     * tier's events are not told. */
    struct quire_slots *(*slots)(void *self);
} quire_tier_ops;

/* ---- opening --------------------------------------------------------------- */

typedef struct quire_tier_config {
    size_t size;
    const quire_tier_ops *ops;
    void *self;
    const char *label;  /* in logs and metrics; NULL: the ops' name */
    const void *memory; /* that jobs will use; NULL: any */
    size_t memory_bytes;
    uint32_t max_jobs;            /* in flight; 0 = 256 */
    uint64_t max_bytes_in_flight; /* 0 = 1 GiB; a job above it goes alone */
    uint64_t deadline_ns;         /* of a job that says none; 0 = 5 s */
    uint32_t breaker_strikes;     /* 0 = 3 */
    uint64_t breaker_ns;     /* OPEN for so long first, then doubled up to 12 times that; 0 = 5 s */
    uint64_t close_ns;       /* how long quire_tier_close waits; 0 = 2 s */
    quire_switch run_inline; /* no thread: begun in submit, turned in poll; for simulations */
    quire_hooks hooks;
} quire_tier_config;

#define QUIRE_TIER_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_config)

/* Opens the tier and starts its thread; self belongs to the tier, also when this fails (but for a
 * config that cannot be read). message, where given, says why it failed and what to do. A tier
 * belongs to the process that opened it. In the child of a fork every call returns QUIRE_E_SYSTEM
 * (poll: 0 jobs), quire_tier_close included: the child frees nothing, and reaches neither thread,
 * file, lock nor connection of the parent. */
QUIRE_API int quire_tier_open(const quire_tier_config *config, const quire_allocator *allocator,
                              quire_tier **tier, char *message, size_t message_bytes);

/* Ends what is in flight (REFUSED where it has not begun) and closes; jobs that were not polled
 * have their statuses then. QUIRE_BUSY when the tier's thread does not come back in close_ns, or a
 * job does not end: then the tier stays, with its thread, and the memory of its jobs must not be
 * given to others. It takes no jobs any more, can be polled, and may be closed again later. NULL is
 * fine. */
QUIRE_API int quire_tier_close(quire_tier *tier);

/* ---- working --------------------------------------------------------------- */

/* QUIRE_FULL: max_jobs or max_bytes_in_flight; QUIRE_BUSY: the breaker is open, or the tier is
 * being closed; then the job was not taken. QUIRE_E_RANGE for bytes or alignment that caps do not
 * allow, QUIRE_E_ARGUMENT for a job that is in flight already (state is not 0). */
QUIRE_API int quire_tier_submit(quire_tier *tier, quire_tier_job *job);

/* The jobs that ended, each once; returns how many. Call it once in a step. */
QUIRE_API uint32_t quire_tier_poll(quire_tier *tier, quire_tier_job **jobs, uint32_t capacity);

/* Advisory; the completion comes in any case. QUIRE_MISS: it is not in flight here. */
QUIRE_API int quire_tier_cancel(quire_tier *tier, quire_tier_job *job);

/* Whether its time is over, or was before it ended. What it loads counts as missing then. A late
 * job is cancelled by the next poll. */
QUIRE_API int quire_tier_is_late(const quire_tier *tier, const quire_tier_job *job);

/* As ops->lookup; while the breaker is open nothing is found. */
QUIRE_API int quire_tier_lookup(quire_tier *tier, const quire_tier_key *keys, uint32_t n,
                                uint8_t *found);
QUIRE_API int quire_tier_touch(quire_tier *tier, const quire_tier_key *keys, uint32_t n);
/* Which keys a waiting request will use, for the tier's policy: see quire_tier_ops.expect. */
QUIRE_API int quire_tier_expect(quire_tier *tier, uint64_t request, uint64_t order,
                                const quire_tier_key *keys, uint32_t n);

/* Nothing that was stored before is found any more, in this process and in later ones: waits, at
 * most close_ns, until a crash would not change that (not with run_inline). Jobs in flight end as
 * they may. QUIRE_E_IDENTITY for a tier that is persistent and shared: its blocks are other
 * engines' too, and nothing has changed; call quire_tier_set_identity. QUIRE_E_SYSTEM: this process
 * finds nothing any more, but the disk could not be told: a later one may. */
QUIRE_API int quire_tier_reset(quire_tier *tier);
/* The tier keeps, from now on, the blocks of this identity (QUIRE_FINGERPRINT_BYTES of
 * quire_fingerprint: of the new weights). Blocks of the identity before are not found here any
 * more. Engines that share the tier and did not change keep theirs, and a tier that is opened with
 * the identity before finds what is theirs. A private file is emptied; it belongs to the new
 * identity, and is refused, or emptied (if_other), when it is opened with the one before.
 * QUIRE_BUSY while jobs are in flight: nothing has changed; poll, and call again. Other errors as
 * for quire_tier_reset; QUIRE_E_SYSTEM also if the new directory cannot be made: then nothing has
 * changed. */
QUIRE_API int quire_tier_set_identity(quire_tier *tier, const unsigned char *fingerprint);
QUIRE_API quire_tier_caps quire_tier_get_caps(const quire_tier *tier);
QUIRE_API const char *quire_tier_label(const quire_tier *tier);
/* "DISK" for a file or a directory, "REDIS", ...; see quire_tier_ops.medium. */
QUIRE_API const char *quire_tier_medium(const quire_tier *tier);

typedef enum quire_tier_health {
    QUIRE_TIER_CLOSED = 0, /* the breaker is: all is well */
    QUIRE_TIER_OPEN = 1,   /* no work */
    QUIRE_TIER_PROBING = 2 /* one job, to see */
} quire_tier_health;

typedef struct quire_tier_stats {
    quire_tier_health health;
    quire_usage usage; /* in keys */
    uint64_t jobs;
    uint64_t jobs_in_flight;
    uint64_t bytes_in_flight;
    uint64_t bytes_late; /* in memory that late jobs still hold */
    uint64_t keys[5][8]; /* [op][status] */
    uint64_t bytes_loaded;
    uint64_t bytes_stored;
    uint64_t late; /* jobs */
    uint64_t breaker_opened;
    uint64_t bad_ends; /* by the tier's own part: an io twice, a job that is not there */
    quire_tier_space space;
} quire_tier_stats;

QUIRE_API int quire_tier_get_stats(const quire_tier *tier,
                                   quire_tier_stats *stats); /* any thread */

/* ---- what content means ---------------------------------------------------- */

/* CRC32C (Castagnoli) of bytes, with the processor's instructions. crc: 0, or what came before. */
QUIRE_API uint32_t quire_crc32c(uint32_t crc, const void *data, size_t bytes);

/* Everything that decides what the bytes of a block mean. Two engines share blocks only where all
 * of it is equal. Empty fields count too: absent differs from empty. */
typedef struct quire_identity {
    size_t size;
    quire_bytes model;          /* "meta-llama/Llama-3.1-8B" */
    quire_bytes weights_digest; /* of the weights, or the revision */
    quire_bytes tokenizer;
    quire_bytes kv_dtype;       /* "bfloat16", "fp8_e4m3" */
    quire_bytes kv_scales;      /* digest of its scales */
    quire_bytes layout;         /* "NHD", "HND", ... and the order of layers in a block */
    quire_bytes attention;      /* rope and sliding windows, as the engine writes them */
    quire_bytes lora;           /* name and digest of an adapter merged into the weights */
    quire_bytes hash_algorithm; /* and */
    quire_bytes hash_seed;
    quire_bytes tenant; /* salt of one tenant; a request's own is in its block hashes */
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

/* SHA-256 over every field with its tag and length. */
QUIRE_API int quire_fingerprint(const quire_identity *identity, unsigned char *fingerprint);

#ifdef __cplusplus
}
#endif
#endif
