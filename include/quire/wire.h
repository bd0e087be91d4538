/* quire/wire.h - KV events as bytes: what vLLM 0.20.0 publishes, written and read.
 *
 *      batch     [ts, [event, ...], data_parallel_rank]                              msgpack arrays
 *      stored    ["BlockStored", hashes, parent, token_ids, block_size, lora_id, medium, lora_name,
 *                 extra_keys, group_idx]
 *      removed   ["BlockRemoved", hashes, medium, group_idx]
 *      cleared   ["AllBlocksCleared"]
 *
 * hash      in events a number (the last 8 bytes of a block's hash) or bytes (all of it).
 * map form  newer vLLM writes each event as a map, {"type": "BlockStored", "block_hashes": ...},
 *           and leaves out extra_keys and group_idx where they are nil. Reading takes both forms,
 *           whatever order and further fields there are; writing as options say.
 * index     the blocks that each worker has, put together from its events: what a router asks
 *           before it sends a prompt somewhere.
 *
 * Part of libquire_events. Reading trusts nothing: any bytes give events or QUIRE_E_CORRUPT, and
 * take at most 48 bytes of memory for each of them. Texts are UTF-8, here as on the wire; vLLM's
 * decoder drops a batch with any other, so writing refuses it (QUIRE_E_ARGUMENT).
 *
 * Threads: nothing is shared; one thread for a handle at a time. NULL is fine to destroy.
 */
#ifndef QUIRE_WIRE_H
#define QUIRE_WIRE_H

#include "config.h"
#include "error.h"
#include "hash.h"
#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_wire_hash {
    uint64_t number;
    quire_bytes bytes; /* data NULL: the number counts */
} quire_wire_hash;

typedef enum quire_wire_kind {
    QUIRE_WIRE_STORED = 1,
    QUIRE_WIRE_REMOVED = 2,
    QUIRE_WIRE_CLEARED = 3,
    QUIRE_WIRE_OTHER = 4 /* a kind that this library does not know: read, and to be passed over */
} quire_wire_kind;

/* One value of a block's tuple of extra keys. */
typedef enum quire_wire_key_kind {
    QUIRE_WIRE_TEXT = 1,    /* LoRA name, salt */
    QUIRE_WIRE_FEATURE = 2, /* [text, number]: identifier and offset */
    QUIRE_WIRE_BYTES = 3,   /* digest of embeddings */
    QUIRE_WIRE_NUMBER = 4,
    QUIRE_WIRE_RAW = 5 /* anything else: value is its msgpack */
} quire_wire_key_kind;

typedef struct quire_wire_key {
    quire_wire_key_kind kind;
    quire_bytes value;
    int64_t number;
} quire_wire_key;

/* A missing text has data NULL; a has_ flag of 0 is nil on the wire. */
typedef struct quire_wire_event {
    quire_wire_kind kind;
    const quire_wire_hash *hashes; /* STORED, REMOVED */
    uint32_t num_hashes;
    uint32_t has_parent;
    quire_wire_hash parent;
    const int64_t *tokens;
    uint32_t num_tokens;
    uint32_t block_size;
    uint32_t has_lora_id;
    int64_t lora_id;
    quire_bytes lora_name;
    quire_bytes medium; /* "GPU", "CPU", ... */
    /* A tuple or nil for each hash: keys of hash i are keys[key_start[i]] to [key_start[i + 1]),
     * and an empty run is nil. key_start NULL: nil as a whole. */
    const uint32_t *key_start; /* num_hashes + 1 */
    const quire_wire_key *keys;
    uint32_t has_group;
    uint32_t group;
} quire_wire_event;

/* ---- writing ------------------------------------------------------------ */

typedef struct quire_wire_writer quire_wire_writer;

typedef struct quire_wire_options {
    size_t size;
    uint32_t as_maps;   /* 1: the map form */
    uint64_t max_bytes; /* of a batch; 0 = 64 MiB, at least 64 */
} quire_wire_options;

#define QUIRE_WIRE_OPTIONS_INIT QUIRE_SIZED_INIT(quire_wire_options)

/* options NULL: the defaults. */
QUIRE_API int quire_wire_writer_create(const quire_wire_options *options,
                                       quire_wire_writer **writer);
QUIRE_API void quire_wire_writer_destroy(quire_wire_writer *writer);
/* Begins a batch; one that was begun before is given up. */
QUIRE_API int quire_wire_begin(quire_wire_writer *writer);
/* QUIRE_FULL: the batch would have more than max_bytes. QUIRE_E_ARGUMENT: the kind is none that can
 * be written, or a text is not UTF-8. The batch is then as before, and goes on. */
QUIRE_API int quire_wire_add(quire_wire_writer *writer, const quire_wire_event *event);
/* Ends it; time in seconds since 1970; rank < 0: nil. The bytes are the writer's, until the next
 * begin. */
QUIRE_API int quire_wire_end(quire_wire_writer *writer, double time, int64_t rank,
                             quire_bytes *bytes);

/* ---- reading ------------------------------------------------------------ */

typedef struct quire_wire_reader quire_wire_reader;

typedef struct quire_wire_batch {
    double time;
    uint32_t num_events;
    uint32_t has_rank;
    int64_t rank;
} quire_wire_batch;

QUIRE_API int quire_wire_reader_create(quire_wire_reader **reader);
QUIRE_API void quire_wire_reader_destroy(quire_wire_reader *reader);
/* Reads a whole batch: QUIRE_E_CORRUPT for what is none, and nothing of it is given out; the events
 * of the batch before stay. Events point into the reader, until the next batch is read; bytes may
 * be freed at once. More than 1 GiB is QUIRE_E_RANGE. */
QUIRE_API int quire_wire_read(quire_wire_reader *reader, quire_bytes bytes,
                              quire_wire_batch *batch);
/* NULL when there are no more than i. */
QUIRE_API const quire_wire_event *quire_wire_get(const quire_wire_reader *reader, uint32_t i);

/* ---- the router's index ------------------------------------------------- */

typedef struct quire_index quire_index;

typedef struct quire_index_config {
    size_t size;
    uint32_t max_workers;  /* 0 = 64, at most 65,535 */
    uint64_t max_blocks;   /* of all workers; 0 = 16 Mi; beyond it stores are dropped, counted */
    uint32_t count_copies; /* 1: a block stored n times is there until removed n times, which fits
                                what vLLM 0.20.0 publishes; 0: until removed once, which fits
                                Quire's default */
} quire_index_config;

#define QUIRE_INDEX_CONFIG_INIT QUIRE_SIZED_INIT(quire_index_config)

/* Group of a block whose event had none: tiers beyond the GPU, and vLLM before 0.20. */
#define QUIRE_INDEX_NO_GROUP UINT32_MAX

/* Takes memory as blocks come, 64 bytes for one and 16 for its place in the table, and keeps it.
 * config NULL: the defaults. */
QUIRE_API int quire_index_create(const quire_index_config *config, quire_index **index);
QUIRE_API void quire_index_destroy(quire_index *index);
/* QUIRE_E_RANGE: no such worker. Memory that runs out is a drop, counted, as max_blocks is; so is a
 * hash of more than 4,096 bytes, and a medium that is the 65th. */
QUIRE_API int quire_index_apply(quire_index *index, uint32_t worker, const quire_wire_event *event);
/* All that is known of a worker is forgotten: it has gone, or its events had a gap. Costs as much
 * as the worker has blocks, however many others there are. */
QUIRE_API int quire_index_clear(quire_index *index, uint32_t worker);
/* How many of the hashes, from the first on, each worker has in a group: num_blocks[worker], for
 * all max_workers. medium absent: any. Blocks without a group count for every group. */
QUIRE_API int quire_index_match(const quire_index *index, const quire_wire_hash *hashes,
                                uint32_t num_hashes, uint32_t group, quire_bytes medium,
                                uint32_t *num_blocks);

typedef struct quire_index_stats {
    uint64_t num_blocks; /* different (worker, group, medium, hash) */
    uint64_t num_stored;
    uint64_t num_removed;
    uint64_t num_unknown; /* removed, and not there */
    uint64_t num_dropped; /* by max_blocks, or for want of memory */
} quire_index_stats;

QUIRE_API quire_index_stats quire_index_get_stats(const quire_index *index);
/* Calls visit for each block of a worker, in no order; it must not change the index. */
QUIRE_API void quire_index_visit(const quire_index *index, uint32_t worker,
                                 void (*visit)(void *user, const quire_wire_hash *hash,
                                               uint32_t group, quire_bytes medium, uint32_t copies),
                                 void *user);

#ifdef __cplusplus
}
#endif
#endif
