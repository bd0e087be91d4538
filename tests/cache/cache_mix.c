#include "cache/cache_mix.h"

#include "cache/cache_kit.h"

/* F full, G another full, W window, V another window, C chunked, M Mamba. Lower case: blocks twice
 * as large. With '-': caching off; with '+': EAGLE. */
static const char *const MIXES[] = {
    "F",  "W",   "C",   "M",  "FW", "FWV",  "FM", "FC",  "WV",   "FFW", "FGW",  "FMW", "Fw",
    "fW", "fWM", "FCW", "F+", "W+", "FFWW", "Wv", "Cc-", "FWM-", "F-",  "FGW-", "fGW",
};

uint32_t cache_num_mixes(void)
{
    return (uint32_t)COUNT(MIXES);
}

static quire_group_config make_group(char letter, uint32_t block_size, const uint32_t *windows)
{
    switch (letter) {
    case 'W':
        return kit_window(block_size, windows[0]);
    case 'V':
        return kit_window(block_size, windows[1]);
    case 'C':
        /* Chunks of whole blocks, as models have them, or such that begin inside one. */
        return kit_chunked(block_size, windows[1] % 2 == 0 ? windows[0] * block_size : windows[0]);
    case 'M':
        return kit_mamba(block_size, QUIRE_MAMBA_MODE_NONE, 0);
    default:
        return kit_full(block_size);
    }
}

static void add_group(cache_mix *mix, char letter, uint32_t block_size, const uint32_t *windows)
{
    bool is_large = letter >= 'a' && letter <= 'z';
    char kind = is_large ? (char)(letter - 'a' + 'A') : letter;
    uint32_t size = is_large ? 2 * block_size : block_size;
    quire_group_config *group = &mix->groups[mix->num_groups++];
    *group = make_group(kind, size, windows);
    if (kind == 'G')
        group->spec.head_size *= 2; /* another kind of full layer */
}

void cache_mix_make(uint32_t n, uint64_t *random, cache_mix *mix)
{
    memset(mix, 0, sizeof *mix);
    mix->name = MIXES[n];
    uint32_t block_size = 1 + unit_random_below(random, 4);
    uint32_t windows[2] = {1 + unit_random_below(random, 8), 1 + unit_random_below(random, 8)};
    if (windows[0] == windows[1])
        windows[1]++;
    mix->config = kit_config(mix->groups, 0, 0);
    for (const char *c = mix->name; *c != '\0'; c++) {
        if (*c == '-')
            mix->config.enable_caching = QUIRE_OFF;
        else if (*c == '+')
            mix->config.use_eagle = QUIRE_ON;
        else
            add_group(mix, *c, block_size, windows);
    }
    mix->config.num_groups = mix->num_groups;
    mix->config.num_blocks = 2 + unit_random_below(random, NAIVE_MAX_BLOCKS - 1);
    mix->config.max_model_len = 6 + unit_random_below(random, NAIVE_TOKENS - 6);
    mix->config.max_requests = 1 + unit_random_below(random, NAIVE_SEQS + 1);
    mix->config.log_stats = QUIRE_ON;
    if (unit_random_below(random, 4) == 0)
        mix->config.watermark = unit_random_below(random, 2) == 0 ? 0.125 : 0.3;
    if (unit_random_below(random, 2) == 0)
        mix->config.max_num_batched_tokens = 1 + unit_random_below(random, 16);
    if (mix->num_groups > 1 && unit_random_below(random, 4) == 0)
        mix->config.hash_block_size = block_size % 2 == 0 ? block_size / 2 : block_size;
}

void cache_mix_grow(uint32_t hash_block_size, pair_request *q, uint32_t num_tokens)
{
    q->r.num_tokens = num_tokens;
    q->r.num_hashes = num_tokens / hash_block_size;
}

void cache_mix_prompt(const cache_mix *mix, uint64_t *random, uint32_t hash_block_size,
                      pair_request *q)
{
    uint32_t most = mix->config.max_model_len;
    unsigned char family = (unsigned char)unit_random_below(random, 3);
    unsigned char split = (unsigned char)unit_random_below(random, most / hash_block_size + 1);
    unsigned char tail = (unsigned char)unit_random_below(random, 3);
    memset(q->hashes, 0, sizeof q->hashes);
    for (uint32_t i = 0; i < most / hash_block_size; i++) {
        unsigned char *hash = q->hashes + (size_t)i * NAIVE_DIGEST;
        hash[0] = (unsigned char)(i + 1);
        hash[1] = family;
        hash[2] = i < split ? 255 : split;
        hash[3] = i < split ? 255 : tail;
    }
    uint32_t longest = unit_random_below(random, 2) == 0 ? most : most / 2;
    cache_mix_grow(hash_block_size, q, 1 + unit_random_below(random, longest));
    q->r.num_computed_tokens = 0;
    q->r.skip_reading_prefix = unit_random_below(random, 12) == 0;
    q->r.was_preempted = 0;
}
