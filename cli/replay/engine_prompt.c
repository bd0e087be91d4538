#include "engine_prompt.h"

#include "trace/content.h"

#include <stdlib.h>

bool engine_prompt_open(engine_prompt *p, uint32_t max_tokens)
{
    *p = (engine_prompt){.tokens = malloc(max_tokens * sizeof *p->tokens)};
    return p->tokens != NULL;
}

void engine_prompt_close(engine_prompt *p)
{
    free(p->tokens);
    free(p->hashes);
    free(p->chain);
    *p = (engine_prompt){0};
}

void engine_prompt_fill(engine_prompt *prompt, const arrival *it)
{
    const trace_request *q = &it->request;
    uint32_t at = 0;
    if (prompt->filled == it->number + 1)
        return;
    prompt->filled = it->number + 1;
    for (uint32_t i = 0; i < q->num_segments; i++) {
        content_tokens(q->prompt[i].content, 0, q->prompt[i].num_tokens, prompt->tokens + at);
        at += q->prompt[i].num_tokens;
    }
}

/* Engines of one thread may have different limits of their requests' lengths. */
static bool has_room(engine_prompt *prompt, quire_hasher *hasher, size_t hash_bytes)
{
    if (prompt->hash_bytes < hash_bytes) {
        free(prompt->hashes);
        prompt->hashes = malloc(hash_bytes);
        prompt->hash_bytes = prompt->hashes != NULL ? hash_bytes : 0;
    }
    if (prompt->chain == NULL)
        prompt->chain = malloc(quire_chain_bytes(hasher));
    return prompt->hash_bytes >= hash_bytes && prompt->chain != NULL;
}

bool engine_prompt_hash(engine_prompt *prompt, quire_hasher *hasher, quire_hash_algo algo,
                        uint32_t block_size, const arrival *it)
{
    uint32_t num_tokens = it->request.num_prompt_tokens;
    size_t count = num_tokens / block_size;
    if (prompt->named == it->number + 1)
        return true;
    prompt->named = 0;
    if (!has_room(prompt, hasher, count * quire_hash_digest_bytes(algo) + 1))
        return false;
    engine_prompt_fill(prompt, it);
    if (quire_chain_init(hasher, prompt->chain, quire_chain_bytes(hasher), &prompt->chain) !=
            QUIRE_OK ||
        quire_chain_append(hasher, prompt->chain, prompt->tokens, num_tokens, NULL, prompt->hashes,
                           count, &count) != QUIRE_OK)
        return false;
    prompt->named = it->number + 1;
    prompt->num_hashes = (uint32_t)count;
    return true;
}

const quire_token *engine_prompt_tail(engine_prompt *prompt, const arrival *it, uint32_t first)
{
    const trace_request *q = &it->request;
    uint32_t at = q->num_prompt_tokens;
    if (prompt->filled == it->number + 1)
        return prompt->tokens + first;
    prompt->filled = 0;
    for (uint32_t i = q->num_segments; i-- > 0 && at > first;) {
        const trace_segment *s = &q->prompt[i];
        uint32_t from = at - s->num_tokens > first ? at - s->num_tokens : first;
        uint32_t skipped = from - (at - s->num_tokens);
        content_tokens(s->content, skipped, at - from, prompt->tokens + from);
        at -= s->num_tokens;
    }
    return prompt->tokens + first;
}
