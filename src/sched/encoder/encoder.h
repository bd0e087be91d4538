/* sched/encoder/encoder.h - which outputs of the multi-modal encoder are kept, and who uses them.
 *
 * feature   an image, sound or video of a request: a place in its prompt, and an identifier
 * item      the encoder's output for one identifier; requests with the same identifier share it
 * room      is counted in embeddings, of which cache_size are kept
 *
 *      allocate ──► in use ──► unused ──► gone ──► told by take_freed, forgotten
 *                     ^  users   │   evicted by can_allocate,
 *                     └──────────┘   the longest unused first
 *                   check_and_update
 *
 * The set of an item's users is a count here, and a mark in the feature through which a request
 * became one. A request whose features name one item several times is one user of it.
 *
 * Encoder-decoder models share nothing: a feature takes room, free gives it back, and an item is
 * gone as soon as its step is over, so the take_freed after the next one tells it:
 *
 *      allocate ──► fresh ──► gone ──► told, forgotten
 *
 *      num_freeable = num_free + embeddings of unused items        (not for encoder-decoder models)
 *      live + num_fresh + num_gone + num_spare = 2 x max_items
 *      live, num_fresh, num_gone <= max_items
 *
 * Counts and order of eviction are those of vLLM 0.20.0's EncoderCacheManager and
 * EncoderDecoderCacheManager. The limit on items is Quire's own.
 */
#ifndef QR_SCHED_ENCODER_ENCODER_H
#define QR_SCHED_ENCODER_ENCODER_H

#include "base/buckets.h"
#include "base/list.h"
#include "sched/encoder/flags.h"
#include "sched/encoder/set_order.h"

#include <quire/hash.h>

typedef struct qr_feature {
    quire_bytes identifier;
    uint32_t owner;  /* the index of its request */
    uint32_t offset; /* of its placeholder tokens, in the request */
    uint32_t length;
    uint32_t num_embeds;
    uint32_t holds;      /* 0: no; else the encoder's epoch in which the request became a user of
                                the item through this feature. A reset ends all uses at once. */
    bool has_flags;      /* else an embedding goes to each placeholder */
    uint32_t first_flag; /* where its `length` flags begin in the request's chain */
} qr_feature;

/* The kinds of vLLM, and what a quirk may ask for. */
typedef struct qr_encoder_config {
    uint32_t cache_size; /* embeddings */
    uint32_t max_items;  /* at least 1 */
    uint32_t max_identifier_bytes;
    uint32_t max_features; /* of one request */
    uint32_t max_requests;
    bool is_encoder_decoder;
    /* Encoder-decoder: every free gives the feature's room back, whether it was taken or not; so
     * the cache seems to grow with each step (vLLM). Else only what was taken comes back. */
    bool frees_again;
    /* An unused item counts with the size that the last of its users gave it (vLLM). Else with the
     * size it was allocated with. The same, as long as an identifier always has the same size. */
    bool sizes_by_user;
    /* Each feature through which a request uses an item holds it (vLLM 0.32): the request is a user
     * until the last of them was freed. Else one of them stands for all. */
    bool counts_inputs;
} qr_encoder_config;

typedef struct qr_encoder_item {
    qr_link link; /* in the list of unused items; first, as base/list.h asks */
    uint32_t num_users;
    uint32_t num_embeds;
    uint32_t tag;
    uint32_t len;   /* of the identifier */
    uint32_t state; /* of encoder.c */
    uint32_t place; /* in spare, fresh or gone */
} qr_encoder_item;

typedef struct qr_encoder {
    qr_encoder_config config;
    uint64_t num_free; /* 64 bits, since frees_again and sizes_by_user can exceed cache_size */
    uint64_t num_freeable;
    uint32_t epoch;      /* never 0 */
    uint32_t num_unused; /* items */
    uint32_t num_spare;
    uint32_t num_fresh;
    uint32_t num_gone;
    uint32_t num_slots;
    qr_encoder_item *items; /* num_slots, and the sentinel of the unused ones */
    unsigned char *names;   /* max_identifier_bytes for each slot */
    uint32_t *spare;
    uint32_t *fresh;
    uint32_t *gone;
    quire_bytes *freed;
    qr_buckets index;   /* of slot + 1, since the index cannot hold 0 */
    qr_set_order order; /* room to work out an order in */
    uint32_t *table;    /* its own; it may work with another */
    qr_kept_set *kept;  /* counts_inputs: of each request, the features that hold an item */
    uint32_t *tables;   /* max_slots of each */
} qr_encoder;

void qr_encoder_carve(qr_encoder *encoder, qr_arena *arena, const qr_encoder_config *config);
void qr_encoder_init(qr_encoder *encoder, uint64_t secret0, uint64_t secret1);

/* Forgets all items and all users, and what was not told yet. */
void qr_encoder_reset(qr_encoder *encoder);

/* ---- one feature: features[i] of a request that has n ----------------------- */

/* Whether the item is there; then the request is one of its users. */
bool qr_encoder_check_and_update(qr_encoder *encoder, qr_feature *features, uint32_t n, uint32_t i);

/* Embeddings of the feature's item, or QR_NIL where it is not there. */
uint32_t qr_encoder_size_of(const qr_encoder *encoder, const qr_feature *feature);

/* Whether the feature can be encoded: the budget has enough for it, and after what is scheduled for
 * the request but not allocated yet (num_embeds in num_items) there is room. Evicts unused items to
 * make it. No as well when there are max_items in use, or more were evicted since the last
 * take_freed than can be told (then some may have been evicted all the same). */
bool qr_encoder_can_allocate(qr_encoder *encoder, const qr_feature *feature, uint32_t budget,
                             uint64_t num_embeds, uint32_t num_items);

/* Takes the room; the request is the item's first user. QUIRE_OK whenever can_allocate said yes for
 * an item that is not there. Else, and without a change: QUIRE_FULL without room or place,
 * QUIRE_E_RANGE for an identifier that is too long, QUIRE_E_ARGUMENT for an item that is there. */
int qr_encoder_allocate(qr_encoder *encoder, qr_feature *features, uint32_t i);

/* The request needs this feature no longer. The item stays until its room is wanted. */
void qr_encoder_free_input(qr_encoder *encoder, qr_feature *features, uint32_t n, uint32_t i);

/* The feature was allocated, but will not be encoded after all: without other users the item is not
 * there. */
void qr_encoder_forget(qr_encoder *encoder, qr_feature *features, uint32_t n, uint32_t i);

/* ---- all features of a request ---------------------------------------------- */

/* The numbers of the features whose items are there, in vLLM's order (encoder-decoder: of all);
 * returns how many. Valid until the next call. */
uint32_t qr_encoder_cached_inputs(qr_encoder *encoder, const qr_feature *features, uint32_t n,
                                  const uint32_t **inputs);

/* The request needs none of its features. */
void qr_encoder_free(qr_encoder *encoder, qr_feature *features, uint32_t n);

/* Nor those that lie in its first num_computed_tokens; for encoder-decoder models, once a token is
 * computed, none. */
void qr_encoder_free_computed(qr_encoder *encoder, qr_feature *features, uint32_t n,
                              uint64_t num_computed_tokens);

/* ---- the rest --------------------------------------------------------------- */

/* The identifiers of items that are gone and were not told yet, in order; returns how many. Valid
 * until the next allocate or take_freed. */
uint32_t qr_encoder_take_freed(qr_encoder *encoder, const quire_bytes **identifiers);

static inline bool qr_encoder_holds(const qr_encoder *encoder, const qr_feature *feature)
{
    return feature->holds == encoder->epoch;
}

/* Whether a request with so many computed tokens needs the feature no longer. An encoder-decoder
 * model computes its features before its first token. */
static inline bool qr_feature_is_computed(const qr_encoder *encoder, const qr_feature *feature,
                                          uint64_t num_computed_tokens)
{
    if (encoder->config.is_encoder_decoder && num_computed_tokens > 0)
        return true;
    return (uint64_t)feature->offset + feature->length <= num_computed_tokens;
}

/* Whether both name the same item. */
static inline bool qr_feature_is_same(const qr_feature *a, const qr_feature *b)
{
    return a->identifier.len == b->identifier.len &&
           (a->identifier.len == 0 ||
            memcmp(a->identifier.data, b->identifier.data, a->identifier.len) == 0);
}

/* How many embeddings lie in placeholders [start, end) of the feature; end <= length. The chain is
 * that of its request. */
uint32_t qr_feature_embeds_in_range(const qr_feature *feature, const qr_flag_store *flags,
                                    const qr_flag_chain *chain, uint32_t start, uint32_t end);

bool qr_encoder_is_valid(const qr_encoder *encoder);

#endif
