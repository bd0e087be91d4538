/* cli/verify/recorded_engine.h - a quire_sched from the header of a recording. */
#ifndef QUIRE_CLI_VERIFY_RECORDED_ENGINE_H
#define QUIRE_CLI_VERIFY_RECORDED_ENGINE_H

#include <quire.h>

#include <stddef.h>

typedef struct recorded_engine {
    quire_hasher *hasher;
    quire_sched *sched;
    uint32_t hash_block_size;
    uint32_t max_num_seqs;
    uint32_t num_spec_tokens;
} recorded_engine;

/* From the header's config, a JSON object. -1 and a sentence. */
int recorded_engine_open(recorded_engine *engine, const char *config, size_t bytes);
void recorded_engine_close(recorded_engine *engine);

#endif
