/* quire/record.h - a recorder: the requests of an engine and the decisions of its scheduler, in
 * files.
 *
 *      engine's thread                           recorder's thread
 *      add, schedule, update, end ──► buffer ──► salted hashes, JSON lines, zstd ──► NAME.0000 ...
 *                                     (full: the line is lost, and counted)
 *
 * docs/recording.md describes the files. They have no texts and no token ids: a recorder draws a
 * secret of 256 bits, keeps it in memory, and writes only salted hashes of what it is given. So
 * equal values can be found within a recording, and not elsewhere.
 *
 * The order of the calls is the order of the lines: call the functions in the order in which the
 * engine calls its scheduler. A call copies what it is given; it allocates nothing, waits for
 * nothing and makes no system call. What is written is at most flush_ms old: if the process is
 * killed, the rest of the recording can be read.
 *
 * An error of the disk never ends an engine: lines are counted as lost, the first error is logged,
 * and the recorder tries again with the next lines.
 *
 * Part of libquire_record. Threads: one thread at a time may record; any thread may read the stats.
 * A recorder has one thread, with signals blocked, which calls hooks.log. A recorder belongs to the
 * process that created it: in the child of a fork, calls record nothing and return QUIRE_E_SYSTEM,
 * and destroy frees the memory only.
 */
#ifndef QUIRE_RECORD_H
#define QUIRE_RECORD_H

#include "config.h"
#include "error.h"
#include "hash.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_recorder quire_recorder;

typedef struct quire_recorder_config {
    size_t size;
    /* Required: NAME or NAME.jsonl.zst; the parts are NAME.0000.jsonl.zst and so on. A folder:
     * NAME is "recording" in it. If parts with this name exist, NAME-2, NAME-3 ... is used. */
    const char *path;
    const char *engine;         /* NULL = "quire" */
    const char *engine_version; /* NULL = this library's version */
    const char *scheduler;      /* class of the scheduler; NULL = "quire_sched" */
    const char *model;          /* NULL = "" */
    const char *config;    /* the header's config, a JSON object without newlines; NULL = "{}" */
    const char *inexact;   /* why the decisions cannot be repeated; NULL: they can */
    uint64_t buffer_bytes; /* 64 KiB to 1 GiB; 0 = 16 MiB */
    uint64_t part_bytes;   /* of a compressed part, 4 KiB at least; 0 = 256 MiB */
    uint32_t flush_ms;     /* 10 to 60,000; 0 = 1,000 */
    uint32_t level;        /* of zstd, 1 to 19; 0 = 3 */
    quire_hooks hooks;
} quire_recorder_config;

#define QUIRE_RECORDER_CONFIG_INIT QUIRE_SIZED_INIT(quire_recorder_config)

/* Creates the first part, and starts the thread. If the call fails, quire_refusal says why.
 *
 *      QUIRE_E_ARGUMENT  a required pointer is NULL, or path is empty
 *      QUIRE_E_CONFIG    a wrong size, a field out of its range; config is not a JSON object
 *      QUIRE_E_SYSTEM    the first part cannot be created; no thread
 *      QUIRE_E_RANDOM    no random bytes
 *      QUIRE_E_NOMEM     out of memory */
QUIRE_API int quire_recorder_create(const quire_recorder_config *config, quire_recorder **recorder);
/* Writes what is in the buffer, and closes the recording. NULL: does nothing. */
QUIRE_API void quire_recorder_destroy(quire_recorder *recorder);

/* ---- lines ------------------------------------------------------------------
 *
 * All of these return
 *
 *      QUIRE_OK          the line is in the buffer
 *      QUIRE_FULL        the buffer is full, or the line is larger than half of it: it is lost
 *      QUIRE_E_ARGUMENT  a required pointer is NULL, or a value is not allowed
 *      QUIRE_E_SYSTEM    in the child of a fork */

/* A request and a number: its hit, its drafts, one of its encoder inputs. */
typedef struct quire_recorded_pair { /* final */
    uint32_t req;
    uint32_t number;
} quire_recorded_pair;

/* An image, sound or video of a prompt. */
typedef struct quire_recorded_input { /* final */
    uint32_t offset;
    uint32_t length;
    uint32_t num_embeds;
    quire_bytes identifier;
} quire_recorded_input;

typedef struct quire_recorded_request {
    size_t size;
    double arrival_time; /* seconds since 1970, finite */
    uint32_t num_prompt_tokens;
    uint32_t max_tokens;
    uint32_t min_tokens;
    uint32_t has_eos;         /* 1: the end-of-sequence token ends the request */
    uint32_t num_stop_tokens; /* other tokens that end it */
    int32_t priority;
    uint32_t client_index;
    const void *hashes; /* of the full blocks of the prompt, one after the other */
    uint32_t num_hashes;
    uint32_t hash_bytes; /* of one hash, at most 64 */
    quire_bytes adapter; /* empty: none */
    quire_bytes cache_salt;
    quire_bytes session;
    const quire_recorded_input *inputs;
    uint32_t num_inputs;
    uint32_t use_grammar;
    uint32_t is_pooling;
    uint32_t is_resumable;
    uint32_t skip_reading_prefix;
} quire_recorded_request;

#define QUIRE_RECORDED_REQUEST_INIT QUIRE_SIZED_INIT(quire_recorded_request)

/* A request was added. *req is its number in the recording, also if the line is lost. */
QUIRE_API int quire_recorder_add(quire_recorder *recorder, const quire_recorded_request *request,
                                 uint32_t *req);

typedef struct quire_recorded_step {
    size_t size;
    uint32_t num_reqs;
    const uint32_t *reqs;                /* in the order in which they were scheduled */
    const uint32_t *num_tokens;          /* of each */
    const quire_recorded_pair *new_reqs; /* their hits */
    uint32_t num_new;
    const quire_recorded_pair *resumed; /* their hits */
    uint32_t num_resumed;
    const uint32_t *preempted;
    uint32_t num_preempted;
    const quire_recorded_pair *drafts;
    uint32_t num_drafts;
    const quire_recorded_pair *encoder;
    uint32_t num_encoder;
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_free_blocks;
    uint32_t throttle_prefills;
} quire_recorded_step;

#define QUIRE_RECORDED_STEP_INIT QUIRE_SIZED_INIT(quire_recorded_step)

/* A step was scheduled: call it right after. *step is its number, also if the line is lost. */
QUIRE_API int quire_recorder_schedule(quire_recorder *recorder, const quire_recorded_step *recorded,
                                      uint64_t *step);
/* The output of a step was computed: call it right before the scheduler reads the output.
 * num_sampled has the number of tokens for each request of the step; NULL: 1 for each. */
QUIRE_API int quire_recorder_update(quire_recorder *recorder, uint64_t step,
                                    const uint32_t *num_sampled, uint32_t num_reqs);
/* Numbers of drafts that the draft model has proposed. */
QUIRE_API int quire_recorder_drafts(quire_recorder *recorder, const quire_recorded_pair *drafts,
                                    uint32_t num_drafts);

typedef enum quire_recorded_reason {
    QUIRE_RECORDED_STOP = 1,
    QUIRE_RECORDED_LENGTH = 2,
    QUIRE_RECORDED_ABORT = 3,
    QUIRE_RECORDED_ERROR = 4,
    QUIRE_RECORDED_REPETITION = 5,
    QUIRE_RECORDED_IGNORED = 6
} quire_recorded_reason;

/* A request has ended, after the line of the call that has ended it. hashes: of the full blocks
 * behind the full blocks of its prompt. */
QUIRE_API int quire_recorder_end(quire_recorder *recorder, uint32_t req,
                                 quire_recorded_reason reason, uint32_t num_output_tokens,
                                 const void *hashes, uint32_t num_hashes, uint32_t hash_bytes);
/* Requests were ended from outside, in this order. */
QUIRE_API int quire_recorder_finish(quire_recorder *recorder, const uint32_t *reqs,
                                    uint32_t num_reqs, quire_recorded_reason reason);

enum {
    QUIRE_RECORDED_RESET_RUNNING = 1,
    QUIRE_RECORDED_RESET_CONNECTOR = 2,
    QUIRE_RECORDED_RESET_ENCODER = 4, /* alone: the encoder cache, and not the prefix cache */
    QUIRE_RECORDED_RESET_DONE = 8     /* the call has succeeded */
};

/* A cache was reset; what is a sum of flags. */
QUIRE_API int quire_recorder_reset(quire_recorder *recorder, uint32_t what);
/* The pause state was set, a quire_pause of quire/sched.h. */
QUIRE_API int quire_recorder_set_pause(quire_recorder *recorder, uint32_t pause);

/* ---- stats ----------------------------------------------------------------- */

typedef struct quire_recorder_stats {
    size_t size;
    uint64_t num_lines; /* written, without headers and lost lines */
    uint64_t num_lost;  /* the buffer was full, or the disk failed */
    uint64_t num_bytes; /* in files */
    uint64_t num_parts;
    uint64_t num_errors; /* of the disk */
} quire_recorder_stats;

#define QUIRE_RECORDER_STATS_INIT QUIRE_SIZED_INIT(quire_recorder_stats)

QUIRE_API int quire_recorder_get_stats(const quire_recorder *recorder, quire_recorder_stats *stats);
/* The path of the first part; valid until destroy. "" if recorder is NULL. */
QUIRE_API const char *quire_recorder_get_path(const quire_recorder *recorder);

#ifdef __cplusplus
}
#endif
#endif
