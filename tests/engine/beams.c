#include "engine/beams.h"

#include <stdlib.h>
#include <string.h>

static float largest_of(const float *logits, uint32_t n)
{
    float most = logits[0];
    for (uint32_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    return most;
}

uint32_t engine_beams_choose(const float *const *logits, const float *scores, uint32_t num_beams,
                             uint32_t width, uint32_t vocabulary, engine_candidate *best)
{
    uint32_t count = 0;
    for (uint32_t parent = 0; parent < num_beams; parent++) {
        float most = largest_of(logits[parent], vocabulary);
        for (uint32_t token = 0; token < vocabulary; token++) {
            float score = scores[parent] + (logits[parent][token] - most);
            uint32_t at = count < width ? count++ : width;
            for (; at > 0 && best[at - 1].score < score; at--)
                if (at < width)
                    best[at] = best[at - 1];
            if (at < width)
                best[at] = (engine_candidate){parent, (quire_token)token, score};
        }
    }
    return count;
}

/* Caches 1 to width are the beams of this step, or the next width are: they take turns. */
static int advance(const engine *e, const engine_candidate *best, uint32_t width, uint32_t from,
                   uint32_t to, uint32_t position, float *const *logits)
{
    for (uint32_t i = 0; i < width; i++) {
        if (e->ops->reference_copy(e->backend, from + best[i].parent, to + i, position) !=
                QUIRE_OK ||
            e->ops->reference(e->backend, to + i, position, &best[i].token, 1, 1, logits[i]) !=
                QUIRE_OK)
            return 1;
    }
    return 0;
}

int engine_beams_expect(const engine *e, const quire_token *prompt, uint32_t num_prompt,
                        engine_beam_reference *reference)
{
    uint32_t vocabulary = e->model->config.vocabulary;
    float scores[ENGINE_FORK_WIDTH] = {0};
    float *now[ENGINE_FORK_WIDTH];
    uint32_t from = 1;
    uint32_t num_beams = 1;
    reference->logits = calloc((size_t)reference->num_steps * ENGINE_FORK_WIDTH,
                               vocabulary * sizeof *reference->logits);
    if (reference->logits == NULL || e->ops->reference(e->backend, from, 0, prompt, num_prompt, 1,
                                                       reference->logits) != QUIRE_OK)
        return 1;
    now[0] = reference->logits;
    for (uint32_t step = 1; step < reference->num_steps; step++) {
        engine_candidate best[ENGINE_FORK_WIDTH];
        (void)engine_beams_choose((const float *const *)now, scores, num_beams, reference->width,
                                  vocabulary, best);
        num_beams = reference->width;
        for (uint32_t i = 0; i < num_beams; i++) {
            scores[i] = best[i].score;
            now[i] = reference->logits + ((size_t)step * ENGINE_FORK_WIDTH + i) * vocabulary;
        }
        uint32_t to = from == 1 ? 1 + ENGINE_FORK_WIDTH : 1;
        if (advance(e, best, num_beams, from, to, num_prompt + step - 1, now) != 0)
            return 1;
        from = to;
    }
    return 0;
}
