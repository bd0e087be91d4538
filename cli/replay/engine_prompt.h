/* cli/replay/engine_prompt.h - the prompt that is being added to an engine: its tokens, and the
 * hashes of its blocks. Engines of one thread share one, also if their longest prompts differ. A
 * prompt that could not be added is still there when it is tried again.
 */
#ifndef QUIRE_CLI_REPLAY_ENGINE_PROMPT_H
#define QUIRE_CLI_REPLAY_ENGINE_PROMPT_H

#include "trace/arrival_queue.h"

#include <quire/hash.h>

typedef struct engine_prompt {
    quire_token *tokens;
    uint64_t filled; /* whose tokens those are: number + 1 */
    uint64_t named;  /* whose hashes those are: number + 1 */
    unsigned char *hashes;
    size_t hash_bytes; /* room for them */
    uint32_t num_hashes;
    quire_chain *chain;
} engine_prompt;

/* Memory for prompts of up to max_tokens. False: none. */
bool engine_prompt_open(engine_prompt *p, uint32_t max_tokens);
void engine_prompt_close(engine_prompt *p);

/* All tokens of a prompt, into tokens. */
void engine_prompt_fill(engine_prompt *prompt, const arrival *it);
/* The hashes of its whole blocks, into hashes and num_hashes. False: no memory. */
bool engine_prompt_hash(engine_prompt *prompt, quire_hasher *hasher, quire_hash_algo algo,
                        uint32_t block_size, const arrival *it);
/* Its tokens from `first` on; those before need not be there. */
const quire_token *engine_prompt_tail(engine_prompt *prompt, const arrival *it, uint32_t first);

#endif
