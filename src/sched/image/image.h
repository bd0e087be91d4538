/* sched/image/image.h - one walk over the state, for counting, writing and reading.
 *
 *      count                       write                        read
 *      out NULL: used grows        fields go to out             fields come from in, each checked
 *
 * As with base/arena.h, a structure has one function that names its fields in order, and it runs in
 * all three ways: size, writer and reader cannot disagree, and a new field is one more line. Where
 * something is linked or hashed, the image has its members in order and reading replays them
 * through the functions that everybody uses (qr_map_insert, qr_waiting_add, qr_encoder_allocate):
 * what the image cannot say, it cannot get wrong, and nothing that depends on a secret is in it.
 *
 *      image.c            the frame, fingerprint, queues, batches
 *      image_requests.c   requests: text, names, features, inputs of sessions
 *      image_encoder.c    the encoder cache
 *      image_cache.c      pool and cache: records, keys, free queue, rows, events
 *      image_flight.*     what the rules of vLLM 0.32 keep: steps in flight, fences, pace
 *
 * Each array and number has its check. A range is checked where the number is read; a relation is
 * checked by the walker (sched_check.c, cache_check.c) after the last number was read:
 *
 *      array or number              while it is read                the walker
 *      step, first_valid_step       <= INT64_MAX, <= step + 1
 *      generations, stats           any value will do; see reqs
 *      ref_cnt                      <= INT32_MAX, >= users found    users and references agree
 *      keys                         block has none yet, length      index and rings
 *      row generations              a row has one request           rows and free rows are all
 *      encoder items                allocate takes them             counts, room, unused list
 *      request flags, status        0 or 1; a status                queue, blocks, session, plain
 *      num_tokens, num_computed     <= max_model_len, prompt > 0    tokens_are_right, pages
 *      placeholders, drafts         <= QR_MAX_TOKENS, num_spec      none without async scheduling
 *      load_step, void steps        <= step, <= step + 1            the step is in flight and loads
 *      load                         a state                         the request waits for it
 *      text, hashes                 pages that are free             one hash for each full block
 *      times                        finite
 *      ids                          1 to 256 bytes, each once
 *      stop tokens, names           fit the blob                    any token will do
 *      features, flags              place, length, embeddings       chains and free chunks are all
 *      inputs of sessions           as text, stops and features     only of sessions that go on
 *      rows of blocks               < num_blocks, <= max_row        references, keys of the group
 *      partial blocks, checkpoints  in the row, <= max_row          the checkpoint's tokens
 *      free slots, running          a slot, once, in use or not     status, counts
 *      turns (prefix.h)             <= those admitted               the bound on overtaking
 *      swap slots                   < num_slots                     chains and free slots are all
 *      pins                         blocks and reqs that were there users, holds
 *      waiting, skipped             a request in no other queue     order, status
 *      batches: steps, reqs         <= step, were there             steps grow, slots
 *      batches: tokens, drafts      <= max_scheduled, num_spec
 *      in flight, stale             <= INT32_MAX                    stale <= in flight
 *      fences                       <= scheduled, a row or copies   order, rows, users, num_told
 *      deferred, doomed             0 or 1; were there              counts; the request waits
 *      sets of features             a table that can come about     the features that hold an item
 *      next_decode                  <= step + decode_interval
 *      extra keys                   the block has a key, not this   records and lists are all
 *      finished, outgrown           were there; room for all to end
 *      fresh, copies, events        < num_blocks, not the null one  copies do not meet
 *      free queue                   no user, no hold, once          links, counts
 *
 * The first thing that is wrong makes the image bad. From then on numbers are read as 0, so that
 * loops end, and everything that was made is thrown away in the end.
 */
#ifndef QR_SCHED_IMAGE_IMAGE_H
#define QR_SCHED_IMAGE_IMAGE_H

#include "sched/sched.h"

typedef struct qr_image {
    unsigned char *out;
    const unsigned char *in;
    size_t size; /* of in */
    size_t used;
    uint32_t version;
    bool is_reading;
    bool is_bad;
    void (*on_field)(size_t at, size_t n); /* NULL, or told where each field is written */
} qr_image;

/* To be raised whenever the body changes. Images of the versions that are named are still read:
 *
 *      13    before vLLM 0.32: no paths of adapters; the profile is not VLLM_0_32 */
enum { QR_IMAGE_VERSION = 19, QR_IMAGE_OLD_VERSION = 13 };

size_t qr_sched_image_bytes(const quire_sched *sched);
int qr_sched_save(const quire_sched *s, void *memory, size_t bytes, size_t *written);
/* Counts, writes or reads the body, from image->used on. */
void qr_image_walk(qr_image *image, quire_sched *s);
/* Magic, length, checksum; QUIRE_OK, QUIRE_E_CORRUPT or QUIRE_E_CONFIG. */
int qr_image_check_frame(const void *image, size_t bytes);
/* Into a scheduler that was just made, of an image whose frame is right. After an error it is in no
 * state to be used. */
int qr_sched_load(quire_sched *s, const void *memory, size_t bytes);

/* ---- fields ---------------------------------------------------------------- */

static inline void qr_image_require(qr_image *image, bool condition)
{
    image->is_bad = image->is_bad || !condition;
}

/* n bytes of the image in place, or NULL when there are not so many. */
static inline const unsigned char *qr_image_view(qr_image *image, size_t n)
{
    qr_image_require(image, n <= image->size - image->used);
    if (image->is_bad)
        return NULL;
    const unsigned char *at = image->in + image->used;
    image->used += n;
    return at;
}

static inline void qr_image_put(qr_image *image, const void *data, size_t n)
{
    if (image->out != NULL && n > 0)
        memcpy(image->out + image->used, data, n);
    if (image->on_field != NULL && n > 0)
        image->on_field(image->used, n);
    image->used += n;
}

static inline void qr_image_bytes(qr_image *image, void *data, size_t n)
{
    if (!image->is_reading) {
        qr_image_put(image, data, n);
        return;
    }
    const unsigned char *from = qr_image_view(image, n);
    if (from != NULL && n > 0)
        memcpy(data, from, n);
}

/* A number from 0 to most. */
static inline void qr_image_u64(qr_image *image, uint64_t *value, uint64_t most)
{
    qr_image_bytes(image, value, sizeof *value);
    if (!image->is_reading)
        return;
    qr_image_require(image, *value <= most);
    if (image->is_bad)
        *value = 0;
}

static inline void qr_image_u32(qr_image *image, uint32_t *value, uint32_t most)
{
    qr_image_bytes(image, value, sizeof *value);
    if (!image->is_reading)
        return;
    qr_image_require(image, *value <= most);
    if (image->is_bad)
        *value = 0;
}

static inline void qr_image_u16(qr_image *image, uint16_t *value, uint16_t most)
{
    uint32_t number = image->is_reading ? 0 : *value;
    qr_image_u32(image, &number, most);
    if (image->is_reading)
        *value = (uint16_t)number;
}

static inline void qr_image_u8(qr_image *image, uint8_t *value, uint8_t most)
{
    uint8_t number = image->is_reading ? 0 : *value;
    qr_image_bytes(image, &number, sizeof number);
    if (!image->is_reading)
        return;
    qr_image_require(image, number <= most);
    *value = image->is_bad ? 0 : number;
}

static inline void qr_image_bool(qr_image *image, bool *value)
{
    uint8_t number = image->is_reading ? 0 : *value;
    qr_image_u8(image, &number, 1);
    if (image->is_reading)
        *value = number != 0;
}

/* n numbers, each from 0 to most. */
static inline void qr_image_u32s(qr_image *image, uint32_t *values, size_t n, uint32_t most)
{
    qr_image_bytes(image, values, n * sizeof *values);
    for (size_t i = 0; image->is_reading && !image->is_bad && i < n; i++)
        qr_image_require(image, values[i] <= most);
}

/* ---- image_requests.c: one request, with everything that has no fixed size ---- */

/* numbers | id | tokens, hashes | stop tokens | features | names | inputs that wait | its row */
void qr_image_request(qr_image *image, quire_sched *sched, uint32_t index);

/* ---- image.c ------------------------------------------------------------------ */

/* Requests that may be gone. */
void qr_image_reqs(qr_image *image, const quire_sched *s, quire_req *reqs, uint32_t n);

/* ---- image_cache.c: the cache and its pool ----------------------------------- */

/*      references   ref_cnt of every block
 *      keys         ring by ring in the order cached; inserting them again makes the same rings
 *      rows         with the request that each belongs to
 *      free queue   from head to tail; hints of the queue and of the pool begin anew
 *
 * The free queue comes last, when everybody who uses a block has been read. */

/* Before the requests: references, keys, rows without users. */
void qr_image_cache_begin(qr_image *image, quire_cache *cache);
/* The row of a request; *seq is 0 where it has none. num_prompt: tokens of its prompt, which an old
 * image does not say here. */
void qr_image_seq(qr_image *image, quire_cache *cache, uint32_t num_prompt, quire_seq *seq);
/* After them: what else uses blocks, the free queue, events. */
void qr_image_cache_end(qr_image *image, quire_cache *cache);
void qr_image_prefix_stats(qr_image *image, quire_prefix_stats *stats);

/* ---- image_encoder.c: the encoder cache, its items in four rows --------------- */

/*      gone     to be told, in that order
 *      used     in any order; their users come with the requests
 *      unused   the longest unused first
 *      fresh    of encoder-decoder models: in order */

/* Before the requests: the items, nobody's yet. */
void qr_image_encoder_begin(qr_image *image, qr_encoder *encoder);
/* Whether a request is a user of features[i]'s item. */
void qr_image_hold(qr_image *image, qr_encoder *encoder, qr_feature *features, uint32_t i);
/* The set of features through which a request holds items, as it lies; after qr_image_hold. */
void qr_image_kept(qr_image *image, qr_encoder *encoder, const qr_feature *features, uint32_t n);
/* After them: the room that is left. */
void qr_image_encoder_end(qr_image *image, qr_encoder *encoder);

#endif
