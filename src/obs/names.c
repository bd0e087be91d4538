#include "obs/names.h"

#include "obs/feed.h"

#include <string.h>

void qr_names_carve(qr_names *names, qr_arena *arena, uint32_t num_steps, uint32_t most)
{
    names->most = most;
    names->step_words = QR_NAMES_HEAD + 2 * most * QR_NAME_WORDS;
    if (most == 0)
        return;
    names->words = qr_arena_take(arena, num_steps, names->step_words * sizeof *names->words);
    names->reqs = qr_arena_take(arena, most, sizeof *names->reqs);
    names->nearest = qr_arena_take(arena, most + 1, sizeof *names->nearest);
}

void qr_names_init(qr_names *names, uint64_t num_steps)
{
    for (uint64_t i = 0; names->most > 0 && i < num_steps * names->step_words; i++)
        atomic_init(&names->words[i], 0);
}

void qr_names_set(qr_names *names, uint64_t place, uint32_t i, quire_bytes id)
{
    quire_name name = {.bytes = (uint32_t)id.len};
    memcpy(name.text, id.data, id.len < sizeof name.text ? id.len : sizeof name.text);
    _Atomic uint64_t *first = names->words + place * names->step_words + QR_NAMES_HEAD;
    qr_words_put(first + (size_t)i * QR_NAME_WORDS, &name, QR_NAME_WORDS);
}

void qr_names_set_head(qr_names *names, uint64_t place, const quire_step_names *head)
{
    qr_words_put(names->words + place * names->step_words, head, QR_NAMES_HEAD);
}

void qr_names_get(const qr_names *names, uint64_t place, quire_step_names *head, quire_name *list)
{
    const _Atomic uint64_t *from = names->words + place * names->step_words;
    qr_words_take(from, head, QR_NAMES_HEAD);
    uint64_t n = (uint64_t)head->num_running + head->num_waiting;
    uint32_t most = 2 * names->most; /* what is being overwritten may say anything */
    qr_words_take(from + QR_NAMES_HEAD, list, (uint32_t)(n < most ? n : most) * QR_NAME_WORDS);
}
