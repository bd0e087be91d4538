/* events/publish/texts.h - what blocks of known keys say: their tokens and the key before.
 *
 *      GPU    stored: keys, parent, tokens ──► kept here while any tier has the key
 *      CPU, DISK, ...   stored: keys alone ──► told with what is kept
 *
 * Routers that hash tokens themselves (Dynamo's) take no block without its tokens. The tiers below
 * the engine's memory know keys alone: a block may be stored there long after its request has gone.
 *
 * Blocks of adapters, and those with extra keys (images, salts), are not kept: they are told
 * without tokens.
 *
 *      entries in use = keys that some block of some tier holds; holders = such blocks
 */
#ifndef QR_EVENTS_PUBLISH_TEXTS_H
#define QR_EVENTS_PUBLISH_TEXTS_H

#include <quire/monitor.h>

typedef struct qr_texts qr_texts;

/* hash_bytes: of the longest key. NULL: no memory. */
qr_texts *qr_texts_create(uint32_t hash_bytes);
void qr_texts_destroy(qr_texts *texts);

/* One block more, or less, holds the key of a place of an event. Where there is no memory, all is
 * forgotten, and nothing is kept any more. */
void qr_texts_hold(qr_texts *texts, const quire_feed_event *event, uint32_t i);
void qr_texts_drop(qr_texts *texts, const quire_feed_event *event, uint32_t i);
/* A STORED event of the GPU says what the block at a place has. */
void qr_texts_learn(qr_texts *texts, const quire_feed_event *event, uint32_t i);
/* The block at a place of an event as an event of its own, with tokens and parent where they are
 * known; its pointers are valid until the next change. */
quire_feed_event qr_texts_complete(const qr_texts *texts, const quire_feed_event *event,
                                   uint32_t i);
void qr_texts_forget(qr_texts *texts);

#endif
