#include "tier/slots/expect.h"

#include "base/assert.h"

void qr_expect_carve(qr_expect *expect, uint32_t num_slots, uint32_t num_nodes,
                     uint32_t max_expected, qr_arena *arena)
{
    expect->max_expected = max_expected;
    expect->records = qr_arena_take(arena, max_expected, sizeof *expect->records);
    expect->requests = qr_arena_take(arena, max_expected, sizeof *expect->requests);
    expect->nodes = qr_arena_take(arena, num_nodes, sizeof *expect->nodes);
    expect->heap = qr_arena_take(arena, num_slots, sizeof *expect->heap);
    qr_buckets_carve(&expect->index, arena, max_expected);
}

void qr_expect_init(qr_expect *expect, uint32_t num_nodes, const uint64_t secret[2])
{
    for (uint32_t i = 0; i < expect->max_expected; i++) {
        uint32_t next = i + 1 < expect->max_expected ? i + 1 : QR_NIL;
        expect->records[i] = (qr_expect_record){.node = QR_NIL, .before = next};
        expect->requests[i] = (qr_expect_request){.last = QR_NIL, .next_free = next};
    }
    for (uint32_t i = 0; i < num_nodes; i++)
        expect->nodes[i] = (qr_expect_node){QR_CHAIN_EMPTY, QR_NIL};
    expect->num_records = 0;
    expect->free_records = 0;
    expect->free_requests = 0;
    expect->heap_size = 0;
    qr_buckets_init(&expect->index, expect->max_expected, secret);
}

/* ---- requests -------------------------------------------------------------- */

static uint32_t request_tag(const qr_expect *expect, uint64_t request)
{
    return qr_buckets_tag(&expect->index, request, 0);
}

uint32_t qr_expect_find(const qr_expect *expect, uint64_t request)
{
    qr_buckets_search search =
        qr_buckets_search_begin(&expect->index, request_tag(expect, request));
    uint32_t entry;
    do
        entry = qr_slots_search_next(&search);
    while (entry != QR_NIL && expect->requests[entry].id != request);
    return entry;
}

uint32_t qr_expect_open(qr_expect *expect, uint64_t request, uint64_t order)
{
    uint32_t entry = expect->free_requests;
    qr_assert(entry != QR_NIL);
    expect->free_requests = expect->requests[entry].next_free;
    expect->requests[entry] = (qr_expect_request){.id = request, .order = order, .last = QR_NIL};
    qr_slots_index_insert(&expect->index, request_tag(expect, request), entry);
    return entry;
}

void qr_expect_close(qr_expect *expect, uint32_t entry)
{
    qr_expect_request *request = &expect->requests[entry];
    qr_assert(request->last == QR_NIL);
    qr_slots_index_remove(&expect->index, request_tag(expect, request->id), entry);
    request->next_free = expect->free_requests;
    expect->free_requests = entry;
}

/* ---- records --------------------------------------------------------------- */

/* Whether a is needed before b. */
static bool is_sooner(const qr_expect *expect, uint32_t a, uint32_t b)
{
    const qr_expect_record *x = &expect->records[a];
    const qr_expect_record *y = &expect->records[b];
    uint64_t order = expect->requests[x->request].order;
    uint64_t other = expect->requests[y->request].order;
    return order != other ? order < other : x->position < y->position;
}

/* New ones mostly wait behind all others: so look for the place from the end. */
void qr_expect_add(qr_expect *expect, uint32_t entry, uint32_t node, uint32_t position)
{
    uint32_t id = expect->free_records;
    qr_assert(id != QR_NIL);
    qr_expect_record *record = &expect->records[id];
    qr_chain *of_key = &expect->nodes[node].records;
    expect->free_records = record->before;
    expect->num_records++;
    *record = (qr_expect_record){.node = node,
                                 .request = entry,
                                 .position = position,
                                 .before = expect->requests[entry].last};
    expect->requests[entry].last = id;
    uint32_t later = QR_NIL;
    for (uint32_t at = of_key->last; at != QR_NIL && is_sooner(expect, id, at);
         at = expect->records[at].link.prev)
        later = at;
    qr_chain_insert(of_key, &expect->records->link, sizeof *record, later, id);
}

uint32_t qr_expect_drop_last(qr_expect *expect, uint32_t entry)
{
    uint32_t id = expect->requests[entry].last;
    qr_expect_record *record = &expect->records[id];
    uint32_t node = record->node;
    expect->requests[entry].last = record->before;
    qr_chain_remove(&expect->nodes[node].records, &expect->records->link, sizeof *record, id);
    *record = (qr_expect_record){.node = QR_NIL, .before = expect->free_records};
    expect->free_records = id;
    expect->num_records--;
    return node;
}

/* ---- the heap -------------------------------------------------------------- */

/* Whether a must be above b. Of equal ones, which have one key or come from requests with one
 * order, any. */
static bool is_above(const qr_expect *expect, uint32_t a, uint32_t b)
{
    return is_sooner(expect, expect->nodes[b].records.first, expect->nodes[a].records.first);
}

static void put_at(qr_expect *expect, uint32_t at, uint32_t node)
{
    expect->heap[at] = node;
    expect->nodes[node].heap_at = at;
}

static void sift_up(qr_expect *expect, uint32_t at)
{
    uint32_t node = expect->heap[at];
    while (at > 0 && is_above(expect, node, expect->heap[(at - 1) / 2])) {
        put_at(expect, at, expect->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put_at(expect, at, node);
}

static void sift_down(qr_expect *expect, uint32_t at)
{
    uint32_t node = expect->heap[at];
    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;
        if (child >= expect->heap_size)
            break;
        if (child + 1 < expect->heap_size &&
            is_above(expect, expect->heap[child + 1], expect->heap[child]))
            child++;
        if (!is_above(expect, expect->heap[child], node))
            break;
        put_at(expect, at, expect->heap[child]);
        at = (uint32_t)child;
    }
    put_at(expect, at, node);
}

uint32_t qr_expect_top(const qr_expect *expect)
{
    return expect->heap[0];
}

void qr_expect_heap_add(qr_expect *expect, uint32_t node)
{
    put_at(expect, expect->heap_size++, node);
    sift_up(expect, expect->heap_size - 1);
}

void qr_expect_heap_move(qr_expect *expect, uint32_t node)
{
    sift_up(expect, expect->nodes[node].heap_at);
    sift_down(expect, expect->nodes[node].heap_at);
}

void qr_expect_heap_remove(qr_expect *expect, uint32_t node)
{
    uint32_t at = expect->nodes[node].heap_at;
    uint32_t last = expect->heap[--expect->heap_size];
    expect->nodes[node].heap_at = QR_NIL;
    if (last == node)
        return;
    put_at(expect, at, last);
    qr_expect_heap_move(expect, last);
}

/* ---- walking --------------------------------------------------------------- */

static bool heap_is_valid(const qr_expect *expect, uint32_t num_nodes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_nodes; i++)
        count += expect->nodes[i].heap_at != QR_NIL;
    for (uint32_t i = 0; i < expect->heap_size; i++) {
        uint32_t node = expect->heap[i];
        if (node >= num_nodes || expect->nodes[node].heap_at != i)
            return false;
        if (i > 0 && is_above(expect, node, expect->heap[(i - 1) / 2]))
            return false;
    }
    return count == expect->heap_size;
}

static bool records_are_valid(const qr_expect *expect, uint32_t num_nodes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_nodes; i++) {
        uint32_t sooner = QR_NIL;
        const qr_chain *chain = &expect->nodes[i].records;
        for (uint32_t id = chain->first; id != QR_NIL; id = expect->records[id].link.next) {
            const qr_expect_record *record = &expect->records[id];
            if (++count > expect->num_records || record->node != i || record->link.prev != sooner)
                return false;
            if (sooner != QR_NIL && is_sooner(expect, id, sooner))
                return false;
            sooner = id;
        }
        if (chain->last != sooner)
            return false;
    }
    return count == expect->num_records;
}

static bool requests_are_valid(const qr_expect *expect)
{
    uint32_t count = 0;
    uint32_t num_requests = 0;
    uint64_t distances = 0;
    uint64_t sum_passed;
    if (!qr_buckets_is_valid(&expect->index, &sum_passed))
        return false;
    for (uint32_t i = 0; i < expect->max_expected; i++) {
        const qr_expect_request *request = &expect->requests[i];
        if (request->last == QR_NIL)
            continue;
        num_requests++;
        if (qr_expect_find(expect, request->id) != i)
            return false;
        distances += qr_slots_index_distance(&expect->index, request_tag(expect, request->id), i);
        for (uint32_t id = request->last; id != QR_NIL; id = expect->records[id].before)
            if (++count > expect->num_records || expect->records[id].request != i)
                return false;
    }
    return count == expect->num_records && num_requests == expect->index.used &&
           distances == sum_passed;
}

bool qr_expect_is_valid(const qr_expect *expect, uint32_t num_nodes)
{
    return expect->num_records <= expect->max_expected && records_are_valid(expect, num_nodes) &&
           requests_are_valid(expect) && heap_is_valid(expect, num_nodes);
}
