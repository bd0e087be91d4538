#include "hits.h"

#include "fleet_state.h"

/* Blocks that are looked for at a time: more wait for memory together, fewer are in vain. */
enum { AT_A_TIME = 16, BITS_OF_A_BLOCK = 4 };

bool hits_open(hits_known *known, uint32_t num_blocks)
{
    uint64_t bits = 64;
    while (bits < (uint64_t)num_blocks * BITS_OF_A_BLOCK)
        bits *= 2;
    *known = (hits_known){.ever = calloc(bits / 64, sizeof *known->ever), .mask = bits - 1};
    return known->ever != NULL;
}

void hits_close(hits_known *known)
{
    free(known->ever);
}

static bool was_ever_there(const hits_known *known, uint64_t name)
{
    return (known->ever[(name & known->mask) / 64] >> (name % 64) & 1) != 0;
}

/* Blocks of the last hit that the prompt begins with, and that are still there. */
static uint32_t same_as_last(const hits_known *known, const hits_prompt *prompt)
{
    const hits_last *last = &known->last;
    bool is_same = last->num_blocks > 0 && last->num_blocks <= prompt->num_blocks &&
                   last->num_removed == known->num_removed &&
                   last->name == prompt->names[last->num_blocks - 1];
    return is_same ? last->num_blocks : 0;
}

static uint32_t look(hits_known *known, const quire_pool *pool, const hits_prompt *prompt)
{
    const uint32_t group = 0;
    quire_block found[AT_A_TIME];
    uint32_t num_hit = same_as_last(known, prompt);
    uint32_t n = num_hit > 0 ? AT_A_TIME : 1; /* most workers have not even the first */
    while (num_hit < prompt->num_blocks && was_ever_there(known, prompt->names[num_hit])) {
        uint32_t num_new = 0;
        n = prompt->num_blocks - num_hit < n ? prompt->num_blocks - num_hit : n;
        int err = quire_pool_get_cached_prefix(pool, prompt->hashes + num_hit * prompt->block_bytes,
                                               prompt->block_bytes, n, &group, 1, found, &num_new);
        num_hit += err == QUIRE_OK ? num_new : 0;
        if (err != QUIRE_OK || num_new < n)
            break;
        n = AT_A_TIME;
    }
    if (num_hit > 0)
        known->last = (hits_last){.name = prompt->names[num_hit - 1],
                                  .num_removed = known->num_removed,
                                  .num_blocks = num_hit};
    return num_hit;
}

static uint64_t num_changes(const hits_known *known)
{
    return known->num_stored + known->num_removed;
}

void hits_keep(hits_known *known, const quire_pool *pool, const hits_prompt *prompt)
{
    known->found[prompt->number % HITS_FOUND] =
        (hits_found){.of = prompt->number + 1,
                     .num_changes = num_changes(known),
                     .num_blocks = look(known, pool, prompt)};
}

uint32_t hits_find(hits_known *known, const quire_pool *pool, const hits_prompt *prompt)
{
    const hits_found *found = &known->found[prompt->number % HITS_FOUND];
    bool is_known = found->of == prompt->number + 1 && found->num_changes == num_changes(known);
    return is_known ? found->num_blocks : look(known, pool, prompt);
}

/* ---- of all workers -------------------------------------------------------- */

static hits_prompt prompt_of(const fleet *f, const fleet_asking *asking, uint64_t number)
{
    uint32_t hashes_of_block = f->engine.block_size / f->engine.hash_block_size;
    return (hits_prompt){.hashes = asking->hashes,
                         .block_bytes = (size_t)f->digest_bytes * hashes_of_block,
                         .names = asking->blocks,
                         .num_blocks = asking->num_blocks,
                         .number = number};
}

void fleet_exact_hits(void *context, const router_request *request, router_hit *hits)
{
    const fleet *f = context;
    hits_prompt prompt = prompt_of(f, &f->asking, request->number);
    for (uint32_t i = 0; i < f->settings->num_workers; i++) {
        hits[i].gpu = hits_find(&f->known[i], f->workers[i].pool, &prompt);
        hits[i].leading = hits[i].gpu;
    }
}

void fleet_find_coming(fleet *f)
{
    const arrival *it;
    f->num_coming = 0;
    f->coming_places = 0;
    if (f->known == NULL || f->settings->num_threads == 1)
        return;
    for (uint32_t i = 0; f->num_coming < HITS_FOUND; i++) {
        it = arrivals_coming(f->arrivals, i);
        if (it == NULL || it->time_s > f->until_s)
            break;
        if (!fleet_is_hashed(f, it))
            continue;
        f->coming[f->num_coming++] = it;
        f->coming_places |= UINT64_C(1) << it->number % f->hashed.count;
    }
}

void fleet_keep_hits(fleet *f, uint32_t index)
{
    for (uint32_t i = 0; i < f->num_coming; i++) {
        fleet_asking asking = fleet_asking_of(f, f->coming[i]);
        hits_prompt prompt = prompt_of(f, &asking, f->coming[i]->number);
        hits_keep(&f->known[index], f->workers[index].pool, &prompt);
    }
}

void fleet_keep_idle_hits(fleet *f)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < f->settings->num_workers; i++)
        if (next < f->num_going && f->going[next] == i)
            next++;
        else
            fleet_keep_hits(f, i);
}
