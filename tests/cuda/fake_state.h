/* cuda/fake_state.h - what the stand-in's calls share: memory that is taken, and faults. */
#ifndef QUIRE_TESTS_FAKE_STATE_H
#define QUIRE_TESTS_FAKE_STATE_H

#include "cuda/fake_cuda.h"

/* What this call gives before it has done anything; 0: it goes on. */
int fake_begin(const char *call);
void fake_count_misuse(void);

/* The calling thread's stack of contexts; pop: whether there was one. */
void fake_push_context(void);
bool fake_pop_context(void);

/* Streams, events and the like that are not given back. */
void fake_count_live(int change);

int fake_take(uint64_t *address, size_t bytes, bool is_pinned);
int fake_add_memory(uint64_t address, uint64_t bytes, bool is_pinned, bool is_ours);
int fake_remove_memory(uint64_t address, bool is_pinned, bool is_ours);
bool fake_is_taken(uint64_t address, size_t bytes);
/* Of the memory that begins there; 0: none does. */
uint64_t fake_get_bytes(uint64_t address);
void fake_get_room(size_t *free_bytes, size_t *total);
int fake_get_version(void);

#endif
