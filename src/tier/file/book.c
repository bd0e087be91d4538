#include "tier/file/book.h"

#include "base/bits.h"
#include "base/memory.h"

#include <string.h>

/* Blocks that a scan found, taken over in one call: a step stays short. */
enum { CATCH_UP = QR_AT_A_TIME(1024, 2) };

/* ---- opening ------------------------------------------------------------ */

int qr_file_book_open(qr_file_book *book, uint32_t num_slots, quire_slots_policy policy,
                      const quire_hooks *hooks)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = num_slots;
    config.policy = policy;
    config.hooks = *hooks;
    *book = (qr_file_book){.num_slots = num_slots};
    book->place_of = qr_alloc(num_slots, sizeof(uint32_t));
    book->slot_at = qr_alloc(num_slots, sizeof(uint32_t));
    book->keys = qr_alloc(num_slots, sizeof(quire_tier_key));
    book->bytes = qr_alloc(num_slots, sizeof(uint32_t));
    book->is_doomed = qr_alloc(num_slots, 1);
    int status = QUIRE_E_NOMEM;
    if (book->place_of != NULL && book->slot_at != NULL && book->keys != NULL &&
        book->bytes != NULL && book->is_doomed != NULL)
        status = quire_slots_create(&config, NULL, &book->slots);
    if (status != QUIRE_OK) {
        qr_file_book_close(book);
        return status;
    }
    for (uint32_t i = 0; i < num_slots; i++) {
        book->place_of[i] = i;
        book->slot_at[i] = i;
    }
    return QUIRE_OK;
}

void qr_file_book_close(qr_file_book *book)
{
    quire_slots_destroy(book->slots);
    qr_free(book->place_of);
    qr_free(book->slot_at);
    qr_free(book->keys);
    qr_free(book->bytes);
    qr_free(book->is_doomed);
    *book = (qr_file_book){0};
}

static void set_doomed(qr_file_book *book, uint32_t slot, bool is_doomed)
{
    book->num_doomed += (uint32_t)is_doomed - book->is_doomed[slot];
    book->is_doomed[slot] = is_doomed;
}

/* ---- what the file had -------------------------------------------------- */

static void turn_place(qr_file_book *book, uint32_t slot, uint32_t place)
{
    uint32_t other = book->slot_at[place];
    uint32_t before = book->place_of[slot];
    book->place_of[slot] = place;
    book->slot_at[place] = slot;
    book->place_of[other] = before;
    book->slot_at[before] = other;
}

/* A key that is there already moves to the newer place. Returns the place that has lost it;
 * QR_NIL: none has. */
static uint32_t take_entry(qr_file_book *book, const qr_file_entry *entries, uint32_t place)
{
    const qr_file_entry *entry = &entries[place];
    uint32_t slot;
    uint32_t is_ready;
    uint32_t num_evicted;
    uint32_t loser = QR_NIL;
    uint8_t is_new;
    if (quire_slots_find(book->slots, &entry->key, &slot, &is_ready) == QUIRE_OK) {
        loser = book->place_of[slot];
        if (entry->seq <= entries[loser].seq)
            return place;
    } else {
        if (quire_slots_prepare_store(book->slots, &entry->key, 1, &slot, &is_new, NULL,
                                      &num_evicted) != QUIRE_OK)
            return place;
        quire_slots_end_store(book->slots, &slot, 1, 1);
    }
    turn_place(book, slot, place);
    book->keys[slot] = entry->key;
    book->bytes[slot] = entry->bytes;
    set_doomed(book, slot, false);
    return loser;
}

/* Heap order by age: a sort that needs no memory and no worst case. */
static void sift_down(uint32_t *heap, uint32_t n, uint32_t at, const qr_file_entry *entries)
{
    uint32_t value = heap[at];
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && entries[heap[child + 1]].seq > entries[heap[child]].seq)
            child++;
        if (entries[heap[child]].seq <= entries[value].seq)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = value;
}

static void sort_by_age(uint32_t *places, uint32_t n, const qr_file_entry *entries)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(places, n, i, entries);
    for (uint32_t end = n; end-- > 1;) {
        uint32_t newest = places[0];
        places[0] = places[end];
        places[end] = newest;
        sift_down(places, end, 0, entries);
    }
}

void qr_file_book_take_index(qr_file_book *book, qr_file_entry *entries, uint32_t *memory)
{
    uint32_t n = 0;
    for (uint32_t place = 0; place < book->num_slots; place++)
        if (entries[place].state == QR_FILE_STORED)
            memory[n++] = place;
    sort_by_age(memory, n, entries);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t loser = take_entry(book, entries, memory[i]);
        if (loser != QR_NIL)
            entries[loser] = (qr_file_entry){0};
    }
}

static bool is_catching_up(const qr_file_book *book)
{
    return book->scan != NULL && book->num_taken < book->num_slots;
}

static void catch_up(qr_file_book *book)
{
    if (!is_catching_up(book))
        return;
    uint32_t end = atomic_load_explicit(&book->scan->num_found, memory_order_acquire);
    if (end > book->num_taken + CATCH_UP)
        end = book->num_taken + CATCH_UP;
    for (; book->num_taken < end; book->num_taken++)
        if (book->scan->found[book->num_taken].state == QR_FILE_STORED)
            (void)take_entry(book, book->scan->found, book->num_taken);
}

/* ---- jobs --------------------------------------------------------------- */

/* io->generation: 1 + num_resets while the io has a slot, as its writer or its user: the tier's
 * thread does not begin what was prepared before a reset. */
static quire_tier_status prepare_store(qr_file_book *book, quire_tier_io *io)
{
    uint32_t slot;
    uint32_t is_ready;
    uint32_t num_evicted;
    uint8_t is_new = 0;
    if (quire_slots_find(book->slots, &io->key, &slot, &is_ready) == QUIRE_OK) {
        if (book->is_doomed[slot])
            return QUIRE_TIER_REFUSED;
        if (is_ready)
            quire_slots_touch(book->slots, &io->key, 1);
        return is_ready ? QUIRE_TIER_DONE : QUIRE_TIER_REFUSED;
    }
    if (is_catching_up(book) || quire_slots_prepare_store(book->slots, &io->key, 1, &slot, &is_new,
                                                          NULL, &num_evicted) != QUIRE_OK)
        return QUIRE_TIER_NO_ROOM;
    book->keys[slot] = io->key;
    book->bytes[slot] = io->bytes;
    set_doomed(book, slot, false);
    io->place = book->place_of[slot];
    io->generation = 1 + book->num_resets;
    return QUIRE_TIER_PENDING;
}

/* LOAD, REMOVE: the io is a user of the slot until it ends, so that nobody else gets it. */
static quire_tier_status prepare_use(qr_file_book *book, quire_tier_io *io)
{
    uint32_t slot;
    if (quire_slots_prepare_load(book->slots, &io->key, 1, &slot) != QUIRE_OK)
        return QUIRE_TIER_MISSING;
    if (book->is_doomed[slot]) {
        quire_slots_end_load(book->slots, &slot, 1);
        return QUIRE_TIER_MISSING;
    }
    io->place = book->place_of[slot];
    io->generation = 1 + book->num_resets;
    return QUIRE_TIER_PENDING;
}

static quire_tier_status find_key(qr_file_book *book, quire_tier_io *io)
{
    uint32_t slot;
    uint32_t is_ready = 0;
    if (quire_slots_find(book->slots, &io->key, &slot, &is_ready) != QUIRE_OK || !is_ready ||
        book->is_doomed[slot])
        return QUIRE_TIER_MISSING;
    io->bytes = book->bytes[slot];
    return QUIRE_TIER_DONE;
}

void qr_file_book_prepare(qr_file_book *book, quire_tier_job *job)
{
    catch_up(book);
    for (uint32_t i = job->num_ios; i-- > 0;) { /* so that the end of a prompt is the oldest */
        quire_tier_io *io = &job->ios[i];
        io->generation = 0;
        io->place = 0;
        if (job->op == QUIRE_TIER_STORE)
            io->status = prepare_store(book, io);
        else if (job->op == QUIRE_TIER_FIND)
            io->status = find_key(book, io);
        else
            io->status = prepare_use(book, io);
    }
}

static void finish_store(qr_file_book *book, const quire_tier_io *io, uint32_t slot)
{
    uint32_t is_good = io->status == QUIRE_TIER_DONE && !book->is_doomed[slot];
    quire_slots_end_store(book->slots, &slot, 1, is_good);
    set_doomed(book, slot, false);
}

static void finish_use(qr_file_book *book, const quire_tier_job *job, const quire_tier_io *io,
                       uint32_t slot)
{
    bool is_gone = job->op == QUIRE_TIER_REMOVE
                       ? io->status == QUIRE_TIER_DONE
                       : io->status == QUIRE_TIER_WRONG || io->status == QUIRE_TIER_MISSING;
    if (is_gone || (io->place & QR_FILE_FORGET) != 0)
        set_doomed(book, slot, true);
    quire_slots_end_load(book->slots, &slot, 1);
    if (book->is_doomed[slot] && quire_slots_remove(book->slots, &io->key) == QUIRE_OK)
        set_doomed(book, slot, false);
}

void qr_file_book_finish(qr_file_book *book, quire_tier_job *job)
{
    for (uint32_t i = 0; i < job->num_ios; i++) {
        quire_tier_io *io = &job->ios[i];
        uint32_t slot;
        uint32_t is_ready;
        if (io->generation == 0 ||
            quire_slots_find(book->slots, &io->key, &slot, &is_ready) != QUIRE_OK)
            continue;
        io->generation = 0;
        if (job->op == QUIRE_TIER_STORE)
            finish_store(book, io, slot);
        else
            finish_use(book, job, io, slot);
    }
}

/* ---- looking ------------------------------------------------------------ */

void qr_file_book_lookup(qr_file_book *book, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    catch_up(book);
    quire_slots_lookup_each(book->slots, keys, n, found);
    for (uint32_t i = 0; i < n && book->num_doomed > 0; i++) {
        uint32_t slot;
        uint32_t is_ready;
        if (found[i] && quire_slots_find(book->slots, &keys[i], &slot, &is_ready) == QUIRE_OK)
            found[i] = !book->is_doomed[slot];
    }
}

/* What has users or is being written goes when they are done. */
void qr_file_book_reset(qr_file_book *book)
{
    book->num_taken = book->num_slots;
    book->num_resets++;
    for (uint32_t slot = 0; slot < book->num_slots; slot++) {
        uint32_t now;
        uint32_t is_ready;
        if (quire_slots_find(book->slots, &book->keys[slot], &now, &is_ready) != QUIRE_OK ||
            now != slot)
            continue;
        set_doomed(book, slot, quire_slots_remove(book->slots, &book->keys[slot]) != QUIRE_OK);
    }
}
