/* base/test_ring.c - the queue between two threads: on one thread every fill and drain, on two a
 * million elements in order.
 */
#include "base/ring.h"
#include "base/unit.h"

#include <pthread.h>
#include <sched.h>

enum { ROOM = 4096, MANY = 1000000 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static void make_ring(qr_ring *ring, uint32_t capacity, uint32_t element_bytes)
{
    qr_arena arena = qr_arena_carve(memory, ROOM);
    qr_ring_carve(ring, &arena, capacity, element_bytes);
    qr_ring_init(ring);
}

static void capacity_is_rounded_up(void **state)
{
    (void)state;
    static const uint32_t ASKED[] = {0, 1, 2, 3, 4, 5, 63, 64, 65};
    static const uint32_t GIVEN[] = {1, 1, 2, 4, 4, 8, 64, 64, 128};
    for (size_t i = 0; i < COUNT(ASKED); i++) {
        qr_ring ring;
        make_ring(&ring, ASKED[i], 1);
        assert_int_equal(ring.capacity, GIVEN[i]);
    }
}

static void new_ring_is_empty(void **state)
{
    (void)state;
    qr_ring ring;
    uint32_t out = 77;
    make_ring(&ring, 4, sizeof out);
    assert_int_equal(qr_ring_count(&ring), 0);
    assert_false(qr_ring_take(&ring, &out));
    assert_int_equal(out, 77);
}

/* Puts until it is full, takes until it is empty, from a start that lies anywhere. */
static void fill_and_drain(qr_ring *ring, uint32_t first)
{
    for (uint32_t i = 0; i < ring->capacity; i++) {
        uint32_t in = first + i;
        assert_true(qr_ring_put(ring, &in));
        assert_int_equal(qr_ring_count(ring), i + 1);
    }
    uint32_t refused = 0;
    assert_false(qr_ring_put(ring, &refused));
    assert_int_equal(qr_ring_count(ring), ring->capacity);
    for (uint32_t i = 0; i < ring->capacity; i++) {
        uint32_t out = 0;
        assert_true(qr_ring_take(ring, &out));
        assert_int_equal(out, first + i);
    }
    uint32_t nothing = 0;
    assert_false(qr_ring_take(ring, &nothing));
}

static void fill_drain_and_wrap(void **state)
{
    (void)state;
    for (uint32_t capacity = 1; capacity <= 16; capacity *= 2) {
        qr_ring ring;
        make_ring(&ring, capacity, sizeof(uint32_t));
        for (uint32_t shift = 0; shift < 3 * capacity; shift++) {
            fill_and_drain(&ring, 100 * shift);
            uint32_t x = shift; /* the next round starts one place further */
            assert_true(qr_ring_put(&ring, &x) && qr_ring_take(&ring, &x));
            assert_int_equal(x, shift);
        }
    }
}

static void ring_of_one(void **state)
{
    (void)state;
    qr_ring ring;
    make_ring(&ring, 1, sizeof(uint32_t));
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t out = 0;
        assert_true(qr_ring_put(&ring, &i));
        assert_false(qr_ring_put(&ring, &i));
        assert_true(qr_ring_take(&ring, &out));
        assert_int_equal(out, i);
    }
}

static void counts_wrap_at_their_end(void **state)
{
    (void)state;
    qr_ring ring;
    make_ring(&ring, 4, sizeof(uint32_t));
    uint64_t nearly = UINT64_MAX - 1;
    atomic_store(&ring.put, nearly);
    atomic_store(&ring.taken, nearly);
    ring.taken_seen = ring.put_seen = nearly;
    fill_and_drain(&ring, 5);
    assert_int_equal(atomic_load(&ring.put), 2);
    fill_and_drain(&ring, 50);
}

static void elements_of_odd_sizes_are_whole(void **state)
{
    (void)state;
    for (uint32_t bytes = 1; bytes <= 40; bytes += 3) {
        qr_ring ring;
        make_ring(&ring, 8, bytes);
        unsigned char in[8][40];
        unsigned char out[40];
        for (uint32_t i = 0; i < 8; i++) {
            memset(in[i], (int)(i * 16 + bytes), sizeof in[i]);
            assert_true(qr_ring_put(&ring, in[i]));
        }
        for (uint32_t i = 0; i < 8; i++) {
            assert_true(qr_ring_take(&ring, out));
            assert_memory_equal(out, in[i], bytes);
        }
    }
}

/* ---- two threads ----------------------------------------------------------- */

typedef struct parcel {
    uint64_t number;
    uint64_t check;
    uint64_t filler;
} parcel;

static parcel make_parcel(uint64_t number)
{
    uint64_t r = number;
    return (parcel){.number = number, .check = unit_random(&r), .filler = ~number};
}

static void *put_many(void *argument)
{
    qr_ring *ring = argument;
    for (uint64_t i = 0; i < MANY; i++) {
        parcel p = make_parcel(i);
        while (!qr_ring_put(ring, &p))
            sched_yield();
    }
    return NULL;
}

static void a_million_in_order(uint32_t capacity)
{
    qr_ring ring;
    make_ring(&ring, capacity, sizeof(parcel));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, put_many, &ring), 0);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        parcel p;
        while (!qr_ring_take(&ring, &p))
            sched_yield();
        parcel wanted = make_parcel(i);
        wrong += p.number != wanted.number || p.check != wanted.check || p.filler != wanted.filler;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wrong, 0);
    assert_int_equal(qr_ring_count(&ring), 0);
}

static void two_threads_in_order(void **state)
{
    (void)state;
    a_million_in_order(64);
}

static void *put_few(void *argument)
{
    qr_ring *ring = argument;
    for (uint64_t i = 0; i < 2000; i++)
        while (!qr_ring_put(ring, &i))
            sched_yield();
    return NULL;
}

static void two_threads_through_one_place(void **state)
{
    (void)state;
    qr_ring ring;
    make_ring(&ring, 1, sizeof(uint64_t));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, put_few, &ring), 0);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t out = 0;
        while (!qr_ring_take(&ring, &out))
            sched_yield();
        wrong += out != i;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_rounded_up),
        cmocka_unit_test(new_ring_is_empty),
        cmocka_unit_test(fill_drain_and_wrap),
        cmocka_unit_test(ring_of_one),
        cmocka_unit_test(counts_wrap_at_their_end),
        cmocka_unit_test(elements_of_odd_sizes_are_whole),
        cmocka_unit_test(two_threads_in_order),
        cmocka_unit_test(two_threads_through_one_place),
    };
    return cmocka_run_group_tests_name("base_ring", tests, NULL, NULL);
}
