/* model/handle_kind.h - pool, hasher, table, cache and scheduler behind one face, so that each rule
 * of quire/memory.h is tested once and for all of them; and an allocator that counts, refuses and
 * remembers.
 *
 *      ledger    alloc: the n-th call fails, and so does one above max_bytes
 *                free:  must be the same pointer, bytes and alignment as the alloc
 */
#ifndef MODEL_HANDLE_KIND_H
#define MODEL_HANDLE_KIND_H

#include <quire/cache.h>
#include <quire/pool.h>
#include <quire/sched.h>
#include <quire/table.h>
#include <stdbool.h>

#define MAX_CONFIG_BYTES 1024

typedef struct handle_kind {
    const char *name;
    const void *config; /* a small valid one */
    size_t config_bytes;
    size_t hooks_offset; /* in the config; 0: it has none */
    size_t (*bytes)(const void *config);
    int (*create)(const void *config, const quire_allocator *allocator, void **handle);
    int (*create_in)(void *memory, size_t bytes, const void *config, void **handle);
    void (*destroy)(void *handle);
    bool (*works)(void *handle); /* uses it in earnest */
} handle_kind;

extern const handle_kind all_kinds[];
extern const size_t num_kinds;

/* What an output pointer holds before a call; no handle has this address. */
void *untouched(void);

typedef struct ledger {
    uint32_t fail_at; /* the alloc call that fails, from 1 on; 0: none */
    size_t max_bytes; /* 0: no limit */
    uint32_t calls;
    uint32_t live;
    bool wrong_free;
    size_t last_bytes;
    size_t last_alignment;
    void *last_memory;
} ledger;

quire_allocator ledger_allocator(ledger *book);

#endif
