#include "group/mask.h"

#include "base/assert.h"

typedef struct qr_mask {
    uint32_t *out; /* from block `first` on */
    const uint32_t *blocks;
    uint32_t first;
    uint32_t end;
    uint32_t need;  /* blocks that a hit needs */
    uint32_t shift; /* of them, behind the boundary */
} qr_mask;

/* Keeps blocks [from, to). */
static void unmask(const qr_mask *m, uint32_t from, uint32_t to)
{
    for (uint32_t i = from > m->first ? from : m->first; i < m->end && i < to; i++)
        m->out[i] = m->blocks[i];
}

/* The blocks that a hit needs which ends at the last boundary in num_tokens tokens. */
static qr_saved_range boundary_blocks(const qr_group *group, uint32_t num_tokens, uint32_t need,
                                      uint32_t shift)
{
    qr_assert(group->alignment > 0);
    uint32_t end = num_tokens / group->alignment * group->alignment / group->block_size + shift;
    return (qr_saved_range){end > need ? end - need : 0, end};
}

static void unmask_boundary(const qr_mask *m, const qr_group *group, uint32_t num_tokens)
{
    qr_saved_range blocks = boundary_blocks(group, num_tokens, m->need, m->shift);
    unmask(m, blocks.first, blocks.end);
}

/* Blocks that a hit needs, `shift` of them behind its end. A window of one token needs none, but a
 * lookup asks for the last block. In vLLM no block of such a window gets a key. */
static uint32_t blocks_of_hit(const qr_group *group, uint32_t shift)
{
    uint32_t need = qr_ceil_div(group->spec.sliding_window - 1, group->block_size) + shift;
    return need == 0 && group->rules.retains_ends ? 1 : need;
}

/* The boundaries that every request can come back to: the end of the prompt, of which a lookup
 * leaves one token. With EAGLE it drops a block, and a longer prompt may use the last whole one. */
static void unmask_prompt(const qr_mask *m, const qr_group *group, uint32_t num_prompt)
{
    uint32_t size = group->multiple;
    uint32_t ends[2] = {num_prompt - 1, num_prompt - 1};
    if (group->cache_eagles) {
        ends[0] = (num_prompt - 1) / size * size;
        ends[1] = num_prompt / size * size;
        for (uint32_t i = 0; i < 2; i++)
            ends[i] = ends[i] > size ? ends[i] - size : 0;
    }
    unmask_boundary(m, group, ends[0]);
    unmask_boundary(m, group, ends[1]);
}

/* One tail for each interval; false: that is all blocks. */
static bool unmask_intervals(const qr_mask *m, const qr_group *group, uint32_t interval)
{
    uint32_t blocks = interval / group->block_size;
    if (m->need >= blocks)
        return false;
    for (uint32_t i = m->first; i < m->end; i++)
        if (i >= m->shift && (i - m->shift) % blocks >= blocks - m->need)
            m->out[i] = m->blocks[i];
    return true;
}

const uint32_t *qr_group_mask(qr_group *group, uint32_t row, uint32_t first, uint32_t end)
{
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    bool is_mamba = group->spec.kind == QUIRE_LAYER_MAMBA;
    bool is_all = group->retention == QUIRE_RETAIN_ALL;
    if (is_mamba && is_all)
        return blocks;
    qr_mask m = {.out = group->masked, .blocks = blocks, .first = first, .end = end, .need = 1};
    if (!is_mamba) {
        m.shift = group->drops_eagle;
        m.need = blocks_of_hit(group, m.shift);
    }
    memset(m.out + first, 0, (size_t)(end - first) * sizeof *m.out); /* QUIRE_NULL_BLOCK */
    uint32_t interval = is_all ? group->alignment : group->retention;
    if (interval > 0 && !unmask_intervals(&m, group, interval))
        return blocks;
    if (!is_all) {
        unmask_prompt(&m, group, group->prompts[row].num_tokens);
        if (group->prompts[row].shared_boundary > 0)
            unmask_boundary(&m, group, group->prompts[row].shared_boundary);
    }
    return m.out;
}

qr_saved_range qr_group_end_blocks(const qr_group *group, uint32_t row, uint32_t num_tokens)
{
    const qr_saved_range none = {0, 0};
    uint32_t shift = group->drops_eagle;
    uint32_t last = num_tokens > 0 ? num_tokens - 1 : 0; /* the last token is computed again */
    if (group->cache_eagles) {
        last = last / group->multiple * group->multiple;
        last = last > group->multiple ? last - group->multiple : 0;
    }
    if (!group->has_mask || last == 0 || last < group->alignment)
        return none;
    qr_saved_range range = boundary_blocks(group, last, blocks_of_hit(group, shift), shift);
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    if (range.end > group->rows[row].num_cached)
        return none;
    for (uint32_t i = range.first; i < range.end; i++)
        if (blocks[i] == QUIRE_NULL_BLOCK)
            return none;
    return range;
}
