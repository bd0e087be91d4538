/* quire/wire.h - KV events as bytes, in the formats of vLLM 0.20.0 and 0.32.0, and the index of a
 * router.
 *
 *      batch     [ts, [event, ...], data_parallel_rank]                              msgpack arrays
 *      stored    ["BlockStored", hashes, parent, token_ids, block_size, lora_id, medium, lora_name,
 *                 extra_keys, group_idx]
 *      removed   ["BlockRemoved", hashes, medium, group_idx]
 *      cleared   ["AllBlocksCleared"]
 *
 * hash      in events a number (the last 8 bytes of a block's hash) or bytes (the whole hash).
 * map form  vLLM 0.24 and later write each event as a map, {"type": "BlockStored",
 *           "block_hashes": ...}. A map does not have the field extra_keys, group_idx or a later
 *           field if the field is nil. Behind group_idx vLLM 0.32.0 has
 *
 *              stored    kv_cache_spec_kind, kv_cache_spec_sliding_window, locality, ownership,
 *                        session_id
 *              removed   locality, ownership
 *
 *           The reader accepts both forms, any order of fields and additional fields; the writer
 *           writes the form of its options.
 * index     the blocks of each worker, collected from the worker's events: a router looks up a
 *           prompt there before it chooses a worker.
 *
 * Part of libquire_events. The reader accepts any bytes: it returns events or QUIRE_E_CORRUPT, and
 * uses at most 48 bytes of memory for each byte. Texts are UTF-8. vLLM's decoder drops a batch with
 * any other text, so the writer rejects it (QUIRE_E_ARGUMENT).
 *
 * Threads: handles share nothing; one thread at a time may use a handle. All _destroy functions
 * accept NULL. If a required pointer is NULL, a call returns QUIRE_E_ARGUMENT.
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

typedef struct quire_wire_hash { /* final */
    uint64_t number;
    quire_bytes bytes; /* data NULL: use the number */
} quire_wire_hash;

typedef enum quire_wire_kind {
    QUIRE_WIRE_STORED = 1,
    QUIRE_WIRE_REMOVED = 2,
    QUIRE_WIRE_CLEARED = 3,
    QUIRE_WIRE_OTHER = 4 /* a kind that this library does not know: skip it */
} quire_wire_kind;

/* One value of a block's extra keys. */
typedef enum quire_wire_key_kind {
    QUIRE_WIRE_TEXT = 1,    /* LoRA name, salt */
    QUIRE_WIRE_FEATURE = 2, /* [text, number]: identifier and offset */
    QUIRE_WIRE_BYTES = 3,   /* digest of embeddings */
    QUIRE_WIRE_NUMBER = 4,
    QUIRE_WIRE_RAW = 5 /* any other value: its msgpack bytes */
} quire_wire_key_kind;

typedef struct quire_wire_key { /* final */
    quire_wire_key_kind kind;
    quire_bytes value;
    int64_t number;
} quire_wire_key;

/* An absent text has data NULL. A has_ flag of 0 is nil on the wire. */
typedef struct quire_wire_event {
    size_t size;
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
    /* One tuple or nil for each hash. The keys of hash i are keys[key_start[i]] to keys[key_start[i
     * + 1] - 1]; an empty range is nil. key_start NULL: the whole field is nil. */
    const uint32_t *key_start; /* num_hashes + 1 elements */
    const quire_wire_key *keys;
    uint32_t has_group;
    uint32_t group;

    /* The fields below are in the map form alone. */
    quire_bytes spec_kind; /* of the group: "full_attention", "sliding_window", "mamba", ... */
    uint32_t has_sliding_window;
    uint32_t sliding_window; /* of the group, in tokens */
    quire_bytes locality;    /* "LOCAL" or "REMOTE", seen from the publisher */
    quire_bytes ownership;   /* name of the tier that has the blocks */
    quire_bytes session_id;  /* session of the request that caused the event */
} quire_wire_event;

#define QUIRE_WIRE_EVENT_INIT QUIRE_SIZED_INIT(quire_wire_event)

/* ---- writing ------------------------------------------------------------ */

typedef struct quire_wire_writer quire_wire_writer;

typedef struct quire_wire_options {
    size_t size;
    uint32_t as_maps;   /* 1: the map form, as vLLM 0.32.0; 0: arrays, as vLLM 0.20.0 */
    uint64_t max_bytes; /* of a batch; 0 = 64 MiB, at least 64 */
} quire_wire_options;

#define QUIRE_WIRE_OPTIONS_INIT QUIRE_SIZED_INIT(quire_wire_options)

/* options NULL: the defaults. QUIRE_E_CONFIG if options are invalid, QUIRE_E_NOMEM. */
QUIRE_API int quire_wire_writer_create(const quire_wire_options *options,
                                       quire_wire_writer **writer);
QUIRE_API void quire_wire_writer_destroy(quire_wire_writer *writer);
/* Begins a batch. A batch that was begun before is dropped. */
QUIRE_API int quire_wire_begin(quire_wire_writer *writer);
/* Adds an event to the batch. QUIRE_FULL: the batch would exceed max_bytes. QUIRE_E_ARGUMENT: the
 * kind cannot be written, or a text is not UTF-8. The batch is then unchanged and can be continued.
 */
QUIRE_API int quire_wire_add(quire_wire_writer *writer, const quire_wire_event *event);
/* Ends the batch. time is in seconds since 1970; rank < 0: nil. The bytes belong to the writer and
 * are valid until the next begin. */
QUIRE_API int quire_wire_end(quire_wire_writer *writer, double time, int64_t rank,
                             quire_bytes *bytes);

/* ---- reading ------------------------------------------------------------ */

typedef struct quire_wire_reader quire_wire_reader;

typedef struct quire_wire_batch { /* final */
    double time;
    uint32_t num_events;
    uint32_t has_rank;
    int64_t rank;
} quire_wire_batch;

QUIRE_API int quire_wire_reader_create(quire_wire_reader **reader);
QUIRE_API void quire_wire_reader_destroy(quire_wire_reader *reader);
/* Reads a whole batch. QUIRE_E_CORRUPT: the bytes are not a batch; the events of the last batch
 * stay valid. QUIRE_E_RANGE: more than 1 GiB. Events point into the reader and are valid until the
 * next batch is read; bytes may be freed immediately. */
QUIRE_API int quire_wire_read(quire_wire_reader *reader, quire_bytes bytes,
                              quire_wire_batch *batch);
/* The i-th event; NULL if the batch has fewer events. */
QUIRE_API const quire_wire_event *quire_wire_get(const quire_wire_reader *reader, uint32_t i);

/* ---- the router's index ------------------------------------------------- */

typedef struct quire_index quire_index;

typedef struct quire_index_config {
    size_t size;
    uint32_t max_workers; /* 0 = 64, at most 65,535 */
    uint64_t max_blocks;  /* of all workers; 0 = 16 Mi; further stores are dropped and counted */
    /* 1: a block that was stored n times is removed by n removals, as vLLM 0.20.0 publishes; 0: by
     * one removal, as Quire publishes by default. */
    uint32_t count_copies;
} quire_index_config;

#define QUIRE_INDEX_CONFIG_INIT QUIRE_SIZED_INIT(quire_index_config)

/* Group of a block whose event had no group: tiers other than the GPU, and vLLM before 0.20. */
#define QUIRE_INDEX_NO_GROUP UINT32_MAX

/* Creates an index. It allocates memory as blocks are stored, 64 bytes for a block and 16 for its
 * entry in the table, and keeps the memory. config NULL: the defaults. Returns
 * QUIRE_E_CONFIG, QUIRE_E_NOMEM or QUIRE_E_RANDOM. */
QUIRE_API int quire_index_create(const quire_index_config *config, quire_index **index);
QUIRE_API void quire_index_destroy(quire_index *index);
/* Applies an event of a worker. QUIRE_E_RANGE: the worker does not exist. If memory runs out, the
 * event is dropped and counted, as past max_blocks; so is a hash of more than 4,096 bytes, and a
 * 65th medium. */
QUIRE_API int quire_index_apply(quire_index *index, uint32_t worker, const quire_wire_event *event);
/* Drops all blocks of a worker: the worker has left, or its events had a gap. Cost: O(blocks of the
 * worker), for any number of other workers. */
QUIRE_API int quire_index_clear(quire_index *index, uint32_t worker);
/* For each of the max_workers workers, sets num_blocks[worker] to the number of hashes, from the
 * first on, that the worker has in the group. medium absent: any medium. Blocks without a group
 * count for every group. */
QUIRE_API int quire_index_match(const quire_index *index, const quire_wire_hash *hashes,
                                uint32_t num_hashes, uint32_t group, quire_bytes medium,
                                uint32_t *num_blocks);

typedef struct quire_index_stats { /* lent */
    uint64_t num_blocks;           /* different (worker, group, medium, hash) */
    uint64_t num_stored;
    uint64_t num_removed;
    uint64_t num_unknown; /* removals of unknown blocks */
    uint64_t num_dropped; /* past max_blocks, or out of memory */
} quire_index_stats;

/* Valid as long as the index; NULL if index is NULL. */
QUIRE_API const quire_index_stats *quire_index_get_stats(const quire_index *index);
/* Calls visit for each block of a worker, in any order. visit must not change the index. */
QUIRE_API void quire_index_visit(const quire_index *index, uint32_t worker,
                                 void (*visit)(void *user, const quire_wire_hash *hash,
                                               uint32_t group, quire_bytes medium, uint32_t copies),
                                 void *user);

#ifdef __cplusplus
}
#endif
#endif
