/* events/wire_kit.h - events from their text (record_wire.py has the words), and comparing them. */
#ifndef EVENTS_WIRE_KIT_H
#define EVENTS_WIRE_KIT_H

#include "base/unit.h"

#include <quire/wire.h>

enum { KIT_MAX_HASHES = 64, KIT_MAX_KEYS = 512, KIT_MAX_TOKENS = 1 << 17, KIT_POOL = 1 << 16 };

/* One event with the memory that it points to. */
typedef struct kit_event {
    quire_wire_event event;
    quire_wire_hash hashes[KIT_MAX_HASHES];
    uint32_t key_start[KIT_MAX_HASHES + 1];
    quire_wire_key keys[KIT_MAX_KEYS];
    int64_t *tokens;
    unsigned char *pool; /* texts and bytes */
    size_t pool_len;
} kit_event;

/* Fails the test for a word that is no event. The word is cut up. */
void kit_parse(kit_event *made, char *word);
void kit_free(kit_event *made);

void kit_expect_same(const quire_wire_event *a, const quire_wire_event *b);
void kit_expect_bytes(quire_bytes got, const char *expected_hex);

/* A whole batch of events that were read, written again. */
quire_bytes kit_rewrite(quire_wire_writer *writer, const quire_wire_reader *reader,
                        const quire_wire_batch *batch);

#endif
