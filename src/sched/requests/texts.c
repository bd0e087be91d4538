/* sched/requests/texts.c - see texts.h. */
#include "sched/requests/texts.h"

bool qr_texts_take_waiting(qr_texts *texts, qr_text *text, uint32_t num_tokens, uint32_t most)
{
    uint32_t n = qr_text_pages_for(&texts->store, num_tokens);
    uint64_t waiting = (uint64_t)texts->num_waiting_pages + n;
    bool has_room =
        waiting <= most && (uint64_t)texts->num_promised_pages + n <= texts->store.num_free;
    if (!has_room || !qr_text_reserve(&texts->store, text, num_tokens))
        return false;
    texts->num_waiting_pages = (uint32_t)waiting;
    return true;
}

void qr_texts_release_waiting(qr_texts *texts, qr_text *text)
{
    texts->num_waiting_pages -= text->num_pages;
    qr_text_release(&texts->store, text);
}

bool qr_texts_promise(qr_texts *texts, qr_request *r, uint32_t last)
{
    if (r->has_promise)
        return true;
    uint32_t n = qr_text_pages_for(&texts->store, last) - r->text.num_pages;
    if ((uint64_t)texts->num_promised_pages + n > texts->store.num_free)
        return false;
    r->has_promise = true;
    r->num_promised_pages = n;
    texts->num_promised_pages += n;
    texts->num_waiting_pages -= r->text.num_pages;
    return true;
}

void qr_texts_take_back(qr_texts *texts, qr_request *r)
{
    texts->num_promised_pages -= r->num_promised_pages;
    texts->num_waiting_pages += r->text.num_pages;
    r->num_promised_pages = 0;
    r->has_promise = false;
}

void qr_texts_take_promised(qr_texts *texts, qr_request *r, uint32_t end)
{
    uint32_t before = r->text.num_pages;
    bool has_room = qr_text_reserve(&texts->store, &r->text, end);
    qr_assert(has_room && r->text.num_pages - before <= r->num_promised_pages);
    r->num_promised_pages -= r->text.num_pages - before;
    texts->num_promised_pages -= r->text.num_pages - before;
}
