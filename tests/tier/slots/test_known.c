/* tier/slots/test_known.c - what an engine knows of a tier that it shares: what jobs have shown,
 * and with too little room what was used last. */
#include "base/unit.h"
#include "tier/slots/known.h"

enum { MOST_IOS = 4 };

typedef struct part { /* as the tiers' own parts begin */
    quire_slots *known;
} part;

static quire_tier_key key_of(uint32_t number)
{
    quire_tier_key key = {.group = 1};
    memcpy(key.hash, &number, sizeof number);
    return key;
}

static part open_part(uint32_t num_keys)
{
    part p = {NULL};
    quire_hooks hooks = {0};
    assert_int_equal(qr_known_open(num_keys, &hooks, &p.known), QUIRE_OK);
    return p;
}

/* A job over the keys [first, first + n) has ended, all of them so. */
static void end_job(part *p, quire_tier_op op, uint32_t first, uint32_t n, quire_tier_status status)
{
    quire_tier_io ios[MOST_IOS];
    memset(ios, 0, sizeof ios);
    for (uint32_t i = 0; i < n; i++) {
        ios[i].key = key_of(first + i);
        ios[i].status = status;
    }
    quire_tier_job job = {.op = op, .num_ios = n, .ios = ios};
    qr_known_finish_job(p, &job);
    if (p->known != NULL)
        assert_int_equal(quire_slots_check(p->known), QUIRE_OK);
}

static bool knows(part *p, uint32_t number)
{
    quire_tier_key key = key_of(number);
    return quire_slots_lookup(qr_known_get_slots(p), &key, 1) == 1;
}

static void jobs_show_what_is_there(void **state)
{
    (void)state;
    static const quire_tier_op SHOWS[] = {QUIRE_TIER_STORE, QUIRE_TIER_LOAD, QUIRE_TIER_FIND};
    part p = open_part(8);
    for (uint32_t i = 0; i < COUNT(SHOWS); i++) {
        end_job(&p, SHOWS[i], 1, 2, QUIRE_TIER_FAILED); /* says nothing */
        assert_false(knows(&p, 1) || knows(&p, 2));
        end_job(&p, SHOWS[i], 1, 2, QUIRE_TIER_DONE);
        end_job(&p, SHOWS[i], 1, 2, QUIRE_TIER_FAILED);
        assert_true(knows(&p, 1) && knows(&p, 2));
        assert_int_equal(qr_known_get_usage(&p).cached, 2);
        end_job(&p, QUIRE_TIER_LOAD, 1, 1, i == 0 ? QUIRE_TIER_MISSING : QUIRE_TIER_WRONG);
        assert_true(!knows(&p, 1) && knows(&p, 2));
        end_job(&p, QUIRE_TIER_REMOVE, 2, 1, QUIRE_TIER_DONE);
        assert_int_equal(qr_known_get_usage(&p).cached, 0);
    }
    quire_slots_destroy(p.known);
}

/* Of a job the last key, and what a touch has named goes last. */
static void the_oldest_is_forgotten(void **state)
{
    (void)state;
    part p = open_part(3);
    const quire_tier_key touched[2] = {key_of(3), key_of(1)};
    end_job(&p, QUIRE_TIER_STORE, 1, 3, QUIRE_TIER_DONE);
    end_job(&p, QUIRE_TIER_STORE, 4, 1, QUIRE_TIER_DONE);
    assert_true(knows(&p, 1) && knows(&p, 2) && !knows(&p, 3) && knows(&p, 4));
    qr_known_touch_keys(&p, touched, 2); /* one is not known any more */
    end_job(&p, QUIRE_TIER_STORE, 5, 1, QUIRE_TIER_DONE);
    end_job(&p, QUIRE_TIER_STORE, 6, 1, QUIRE_TIER_DONE);
    assert_true(knows(&p, 1) && !knows(&p, 2) && !knows(&p, 3) && !knows(&p, 4));
    quire_slots_destroy(p.known);
}

static void nothing_need_be_known(void **state)
{
    (void)state;
    part p = {NULL};
    quire_tier_key key = key_of(1);
    end_job(&p, QUIRE_TIER_STORE, 1, 1, QUIRE_TIER_DONE);
    qr_known_touch_keys(&p, &key, 1);
    assert_false(knows(&p, 1));
    assert_int_equal(qr_known_get_usage(&p).cached, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_show_what_is_there),
        cmocka_unit_test(the_oldest_is_forgotten),
        cmocka_unit_test(nothing_need_be_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
