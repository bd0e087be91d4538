#include "memo.h"

#include <stdlib.h>
#include <string.h>

#include "content.h"

enum { FIRST_ROOM = 16 };

bool trace_memo_begin(trace_memo *memo, uint32_t max_entries)
{
    *memo = (trace_memo){.max_entries = max_entries, .num_entries = 1, .room = FIRST_ROOM};
    memo->num_heads = FIRST_ROOM;
    memo->entries = calloc(memo->room, sizeof *memo->entries);
    memo->heads = calloc(memo->num_heads, sizeof *memo->heads);
    return memo->entries != NULL && memo->heads != NULL;
}

void trace_memo_end(trace_memo *memo)
{
    for (uint32_t i = 1; memo->entries != NULL && i < memo->num_entries; i++)
        free(memo->entries[i].said);
    free(memo->entries);
    free(memo->heads);
    *memo = (trace_memo){.entries = NULL};
}

static uint32_t *head_of(const trace_memo *memo, uint64_t key)
{
    return &memo->heads[content_of(0, key, 0) & (memo->num_heads - 1)];
}

static void leave_order(trace_memo *memo, uint32_t i)
{
    trace_known *known = &memo->entries[i];
    memo->entries[known->newer].older = known->older;
    memo->entries[known->older].newer = known->newer;
}

static void become_newest(trace_memo *memo, uint32_t i)
{
    trace_known *none = &memo->entries[0];
    memo->entries[i].newer = 0;
    memo->entries[i].older = none->older;
    memo->entries[none->older].newer = i;
    none->older = i;
}

trace_known *trace_memo_find(trace_memo *memo, uint64_t key)
{
    uint32_t i = *head_of(memo, key);
    while (i != 0 && memo->entries[i].key != key)
        i = memo->entries[i].chain;
    if (i == 0)
        return NULL;
    leave_order(memo, i);
    become_newest(memo, i);
    return &memo->entries[i];
}

trace_known *trace_memo_get(trace_memo *memo, uint64_t key)
{
    trace_known *known = trace_memo_find(memo, key);
    return known != NULL ? known : trace_memo_add(memo, key);
}

bool trace_memo_note(trace_memo *memo, uint64_t name, const trace_request *request)
{
    trace_known *known = name != 0 ? trace_memo_get(memo, name) : NULL;
    if (known == NULL)
        return name == 0;
    known->number = request->number;
    known->time_s = request->time_s;
    return true;
}

bool trace_memo_number(trace_memo *memo, uint64_t *names, uint32_t n, double *time_s)
{
    *time_s = 0;
    for (uint32_t i = 0; i < n; i++) {
        const trace_known *known = trace_memo_find(memo, names[i]);
        if (known == NULL)
            return false;
        names[i] = known->number;
        *time_s = known->time_s > *time_s ? known->time_s : *time_s;
    }
    return true;
}

void trace_memo_forget(trace_memo *memo, trace_known *known)
{
    uint32_t i = (uint32_t)(known - memo->entries);
    uint32_t *link = head_of(memo, known->key);
    while (*link != i)
        link = &memo->entries[*link].chain;
    *link = known->chain;
    leave_order(memo, i);
    memo->num_segments -= known->said_room;
    free(known->said);
    *known = (trace_known){.chain = memo->unused};
    memo->unused = i;
}

static bool grow(trace_memo *memo)
{
    uint32_t room = memo->room * 2;
    trace_known *entries = realloc(memo->entries, room * sizeof *entries);
    if (entries == NULL)
        return false;
    memo->entries = entries;
    memo->room = room;
    uint32_t *heads = calloc(room, sizeof *heads);
    if (heads == NULL)
        return false;
    free(memo->heads);
    memo->heads = heads;
    memo->num_heads = room;
    for (uint32_t i = entries[0].older; i != 0; i = entries[i].older) {
        uint32_t *head = head_of(memo, entries[i].key);
        entries[i].chain = *head;
        *head = i;
    }
    return true;
}

trace_known *trace_memo_add(trace_memo *memo, uint64_t key)
{
    if (memo->unused == 0 && memo->num_entries > memo->max_entries)
        trace_memo_forget(memo, &memo->entries[memo->entries[0].newer]);
    uint32_t i = memo->unused;
    if (i != 0) {
        memo->unused = memo->entries[i].chain;
    } else {
        if (memo->num_entries == memo->room && !grow(memo))
            return NULL;
        i = memo->num_entries++;
    }
    uint32_t *head = head_of(memo, key);
    memo->entries[i] = (trace_known){.key = key, .chain = *head};
    *head = i;
    become_newest(memo, i);
    return &memo->entries[i];
}

bool trace_memo_say(trace_memo *memo, trace_known *known, const trace_segment *segments,
                    uint32_t num_segments)
{
    if (num_segments > TRACE_MEMO_SEGMENTS)
        return false;
    if (num_segments > known->said_room) {
        uint32_t room = FIRST_ROOM;
        while (room < num_segments)
            room *= 2;
        trace_segment *said = realloc(known->said, room * sizeof *said);
        if (said == NULL)
            return false;
        memo->num_segments += room - known->said_room;
        known->said = said;
        known->said_room = room;
    }
    if (num_segments > 0)
        memcpy(known->said, segments, num_segments * sizeof *segments);
    known->num_said = num_segments;
    /* never itself: it is the newest, and alone within the limit */
    while (memo->num_segments > TRACE_MEMO_SEGMENTS)
        trace_memo_forget(memo, &memo->entries[memo->entries[0].newer]);
    return true;
}
