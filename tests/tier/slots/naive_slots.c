/* See naive_slots.h. */
#include "naive_slots.h"

#include <string.h>

/* ---- lists ----------------------------------------------------------------- */

static int place_in(const naive_list *list, uint32_t key)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->keys[i] == key)
            return (int)i;
    return -1;
}

static void list_drop(naive_list *list, uint32_t key)
{
    int at = place_in(list, key);
    if (at < 0)
        return;
    list->count--;
    for (uint32_t i = (uint32_t)at; i < list->count; i++)
        list->keys[i] = list->keys[i + 1];
}

static void list_append(naive_list *list, uint32_t key)
{
    list->keys[list->count++] = key;
}

/* Which list a key is in; NAIVE_LISTS: none. */
static uint32_t list_of(const naive_slots *s, uint32_t key)
{
    uint32_t which = 0;
    while (which < NAIVE_LISTS && place_in(&s->lists[which], key) < 0)
        which++;
    return which;
}

static void move_to(naive_slots *s, uint32_t key, uint32_t which)
{
    for (uint32_t i = 0; i < NAIVE_LISTS; i++)
        list_drop(&s->lists[i], key);
    if (which < NAIVE_LISTS)
        list_append(&s->lists[which], key);
}

static bool is_idle(const naive_slots *s, uint32_t key)
{
    const naive_key *k = &s->keys[key];
    return k->slot >= 0 && k->is_ready && k->users == 0 && !k->is_named;
}

/* The oldest idle key of a list; NAIVE_KEYS: none. */
static uint32_t oldest_idle(const naive_slots *s, uint32_t which)
{
    for (uint32_t i = 0; i < s->lists[which].count; i++)
        if (is_idle(s, s->lists[which].keys[i]))
            return s->lists[which].keys[i];
    return NAIVE_KEYS;
}

/* ---- slots ----------------------------------------------------------------- */

void naive_slots_init(naive_slots *s, const quire_slots_config *config)
{
    memset(s, 0, sizeof *s);
    s->policy = config->policy;
    s->num_slots = config->num_slots;
    s->max_expected = config->max_expected > 0 ? config->max_expected : config->num_slots;
    for (uint32_t i = 0; i < NAIVE_KEYS; i++)
        s->keys[i].slot = -1;
}

static uint32_t slots_left(const naive_slots *s)
{
    return s->num_free + s->num_slots - s->num_fresh;
}

static void give_up_slot(naive_slots *s, uint32_t key)
{
    s->free_slots[s->num_free++] = (uint32_t)s->keys[key].slot;
    s->keys[key].slot = -1;
    s->keys[key].is_ready = false;
    s->keys[key].users = 0;
}

/* ---- who waits for a key --------------------------------------------------- */

static bool is_before(uint64_t order, uint32_t position, uint64_t other_order,
                      uint32_t other_position)
{
    return order != other_order ? order < other_order : position < other_position;
}

/* Whether anybody waits for it; when it is needed first, and how deep. */
static bool soonest(const naive_slots *s, uint32_t key, uint64_t *order, uint32_t *position)
{
    bool is_expected = false;
    for (uint32_t r = 0; r < NAIVE_REQUESTS; r++)
        for (uint32_t i = 0; i < s->requests[r].n; i++) {
            if (s->requests[r].keys[i] != key)
                continue;
            if (is_expected && !is_before(s->requests[r].order, i, *order, *position))
                continue;
            is_expected = true;
            *order = s->requests[r].order;
            *position = i;
        }
    return is_expected;
}

static bool is_expected(const naive_slots *s, uint32_t key)
{
    uint64_t order;
    uint32_t position;
    return soonest(s, key, &order, &position);
}

/* ---- choosing -------------------------------------------------------------- */

static uint32_t choose_arc(naive_slots *s)
{
    uint32_t key = NAIVE_KEYS;
    bool from_t1 = s->lists[0].count >= (uint32_t)s->target;
    if (from_t1)
        key = oldest_idle(s, 0);
    if (key == NAIVE_KEYS) {
        from_t1 = false;
        key = oldest_idle(s, 1);
    }
    if (key == NAIVE_KEYS)
        return key;
    naive_list *ghosts = &s->lists[from_t1 ? 2 : 3];
    move_to(s, key, from_t1 ? 2 : 3);
    if (ghosts->count > s->num_slots)
        list_drop(ghosts, ghosts->keys[0]);
    return key;
}

static uint32_t choose_s3(naive_slots *s)
{
    uint32_t small_size = s->num_slots < 10 ? 1 : s->num_slots / 10;
    naive_list *ghosts = &s->lists[2];
    while (oldest_idle(s, 0) != NAIVE_KEYS || oldest_idle(s, 1) != NAIVE_KEYS) {
        bool has_small = oldest_idle(s, 0) != NAIVE_KEYS;
        bool is_large = s->lists[0].count >= small_size;
        bool from_small = has_small && (is_large || oldest_idle(s, 1) == NAIVE_KEYS);
        uint32_t key = s->lists[from_small ? 0 : 1].keys[0];
        if (from_small && s->keys[key].uses > 1) {
            s->keys[key].uses = 0;
            move_to(s, key, 1);
        } else if (!is_idle(s, key)) {
            move_to(s, key, from_small ? 0 : 1);
        } else if (!from_small && s->keys[key].uses > 0) {
            s->keys[key].uses--;
            move_to(s, key, 1);
        } else {
            move_to(s, key, from_small ? 2 : NAIVE_LISTS);
            if (ghosts->count > s->num_slots - small_size)
                list_drop(ghosts, ghosts->keys[0]);
            return key;
        }
    }
    return NAIVE_KEYS;
}

static uint32_t choose_lookahead(naive_slots *s)
{
    uint32_t oldest = NAIVE_KEYS;
    uint32_t last = NAIVE_KEYS;
    uint64_t last_order = 0;
    uint32_t last_position = 0;
    for (uint32_t key = 0; key < NAIVE_KEYS; key++) {
        uint64_t order;
        uint32_t position;
        if (!is_idle(s, key))
            continue;
        if (!soonest(s, key, &order, &position)) {
            if (oldest == NAIVE_KEYS || s->keys[key].used_at < s->keys[oldest].used_at)
                oldest = key;
        } else if (last == NAIVE_KEYS || is_before(last_order, last_position, order, position)) {
            last = key;
            last_order = order;
            last_position = position;
        }
    }
    return oldest != NAIVE_KEYS ? oldest : last;
}

/* The next one to go; it is taken out of its list. NAIVE_KEYS: there is none. */
static uint32_t choose(naive_slots *s)
{
    if (s->policy == QUIRE_SLOTS_ARC)
        return choose_arc(s);
    if (s->policy == QUIRE_SLOTS_S3FIFO)
        return choose_s3(s);
    if (s->policy == QUIRE_SLOTS_LOOKAHEAD)
        return choose_lookahead(s);
    uint32_t key = oldest_idle(s, 0);
    if (key != NAIVE_KEYS)
        move_to(s, key, NAIVE_LISTS);
    return key;
}

/* ---- using ----------------------------------------------------------------- */

uint32_t naive_slots_lookup(const naive_slots *s, const uint32_t *keys, uint32_t n)
{
    uint32_t found = 0;
    while (found < n && s->keys[keys[found]].is_ready)
        found++;
    return found;
}

static void touch_arc(naive_slots *s, uint32_t key)
{
    uint32_t which = list_of(s, key);
    double b1 = s->lists[2].count;
    double b2 = s->lists[3].count;
    if (which == 2)
        s->target += b2 / b1 > 1 ? b2 / b1 : 1;
    if (which == 3)
        s->target -= b1 / b2 > 1 ? b1 / b2 : 1;
    if (s->target > s->num_slots)
        s->target = s->num_slots;
    if (s->target < 0)
        s->target = 0;
    if (which < NAIVE_LISTS)
        move_to(s, key, which == 0 && s->keys[key].is_ready ? 1 : which);
}

static void touch_one(naive_slots *s, uint32_t key)
{
    bool is_there = s->keys[key].slot >= 0;
    if (s->policy == QUIRE_SLOTS_ARC)
        touch_arc(s, key);
    else if (s->policy == QUIRE_SLOTS_LRU && is_there)
        move_to(s, key, 0);
    else if (s->policy == QUIRE_SLOTS_S3FIFO && s->keys[key].is_ready && s->keys[key].uses < 3)
        s->keys[key].uses++;
    else if (s->policy == QUIRE_SLOTS_LOOKAHEAD && is_there && !is_expected(s, key))
        s->keys[key].used_at = ++s->clock;
}

void naive_slots_touch(naive_slots *s, const uint32_t *keys, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;)
        touch_one(s, keys[i]);
}

int naive_slots_prepare_load(naive_slots *s, const uint32_t *keys, uint32_t n, naive_answer *answer)
{
    if (naive_slots_lookup(s, keys, n) < n)
        return QUIRE_MISS;
    for (uint32_t i = 0; i < n; i++) {
        s->keys[keys[i]].users++;
        answer->slot_ids[i] = (uint32_t)s->keys[keys[i]].slot;
    }
    return QUIRE_OK;
}

int naive_slots_complete_load(naive_slots *s, const uint32_t *keys, uint32_t n)
{
    naive_slots before = *s;
    for (uint32_t i = 0; i < n; i++) {
        naive_key *key = &s->keys[keys[i]];
        if (key->slot >= 0 && key->users > 0) {
            key->users--;
            continue;
        }
        int status = key->slot < 0 ? QUIRE_MISS : QUIRE_E_DOUBLE_FREE;
        *s = before;
        return status;
    }
    return QUIRE_OK;
}

/* ---- storing --------------------------------------------------------------- */

static void insert_one(naive_slots *s, uint32_t key)
{
    bool is_back = s->policy == QUIRE_SLOTS_S3FIFO && list_of(s, key) == 2;
    s->keys[key].uses = 0;
    s->keys[key].used_at = ++s->clock;
    if (s->policy != QUIRE_SLOTS_LOOKAHEAD)
        move_to(s, key, is_back ? 1 : 0);
}

static bool make_room(naive_slots *s, uint32_t num_missing, naive_answer *answer)
{
    while (slots_left(s) < num_missing) {
        uint32_t key = choose(s);
        if (key == NAIVE_KEYS)
            return false;
        answer->evicted[answer->num_evicted++] = key;
        give_up_slot(s, key);
    }
    return true;
}

int naive_slots_prepare_store(naive_slots *s, const uint32_t *keys, uint32_t n,
                              naive_answer *answer)
{
    naive_slots before = *s;
    uint32_t num_missing = 0;
    answer->num_evicted = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->keys[keys[i]].is_named = true;
        num_missing += s->keys[keys[i]].slot < 0;
    }
    if (num_missing > s->num_slots || !make_room(s, num_missing, answer)) {
        *s = before;
        return QUIRE_NO_SPACE;
    }
    for (uint32_t i = 0; i < n; i++) {
        naive_key *key = &s->keys[keys[i]];
        key->is_named = false;
        answer->is_new[i] = key->slot < 0;
        if (answer->is_new[i])
            key->slot = s->num_fresh < s->num_slots ? (int)s->num_fresh++
                                                    : (int)s->free_slots[--s->num_free];
        answer->slot_ids[i] = (uint32_t)key->slot;
    }
    bool is_forward = s->policy == QUIRE_SLOTS_LRU || s->policy == QUIRE_SLOTS_ARC;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = is_forward ? i : n - 1 - i;
        if (answer->is_new[at])
            insert_one(s, keys[at]);
    }
    return QUIRE_OK;
}

static void forget_one(naive_slots *s, uint32_t key)
{
    move_to(s, key, NAIVE_LISTS);
    give_up_slot(s, key);
}

void naive_slots_complete_store(naive_slots *s, const uint32_t *keys, uint32_t n, bool is_good)
{
    for (uint32_t i = 0; i < n; i++) {
        naive_key *key = &s->keys[keys[i]];
        if (key->slot < 0 || key->is_ready)
            continue;
        if (is_good)
            key->is_ready = true;
        else
            forget_one(s, keys[i]);
    }
}

int naive_slots_remove(naive_slots *s, uint32_t key)
{
    if (s->keys[key].slot < 0)
        return QUIRE_MISS;
    if (!is_idle(s, key))
        return QUIRE_BUSY;
    forget_one(s, key);
    return QUIRE_OK;
}

uint32_t naive_slots_reset(naive_slots *s)
{
    uint32_t num_busy = 0;
    uint32_t order[NAIVE_KEYS];
    uint32_t n = 0;
    for (uint32_t which = 0; which < NAIVE_LISTS; which++)
        for (uint32_t i = 0; i < s->lists[which].count; i++)
            order[n++] = s->lists[which].keys[i];
    for (uint32_t i = 0; i < n; i++) {
        if (s->keys[order[i]].slot < 0)
            move_to(s, order[i], NAIVE_LISTS);
        else if (is_idle(s, order[i]))
            forget_one(s, order[i]);
    }
    for (uint32_t key = 0; key < NAIVE_KEYS; key++)
        num_busy += s->keys[key].slot >= 0;
    s->target = 0;
    return num_busy;
}

/* ---- looking ahead --------------------------------------------------------- */

int naive_slots_expect(naive_slots *s, uint32_t request, uint64_t order, const uint32_t *keys,
                       uint32_t n)
{
    naive_request *r = &s->requests[request];
    while (r->n > 0) {
        uint32_t key = r->keys[--r->n];
        if (s->keys[key].slot >= 0 && !is_expected(s, key))
            s->keys[key].used_at = ++s->clock;
    }
    uint32_t num_expected = 0;
    for (uint32_t i = 0; i < NAIVE_REQUESTS; i++)
        num_expected += s->requests[i].n;
    uint32_t room = s->max_expected - num_expected;
    r->order = order;
    r->n = n < room ? n : room;
    for (uint32_t i = 0; i < r->n; i++)
        r->keys[i] = keys[i];
    return r->n == n ? QUIRE_OK : QUIRE_FULL;
}
