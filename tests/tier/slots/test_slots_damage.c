/* tier/slots/test_slots_damage.c - quire_slots_check sees slots that were written to behind their
 * back.
 *
 *      [0]  T1   3 4 5 8 9     used once, 8 is being written      ARC with eight slots
 *      [1]  T2   0 1 2         used again
 *      [2]  B1   6 7           evicted, remembered
 *
 * Each damage starts from these sound slots and changes one thing. */
#include "base/unit.h"
#include "tier/slots/slots.h"

enum { NUM_SLOTS = 8 };

static quire_tier_key key_of(uint32_t number)
{
    quire_tier_key key = {.group = 1};
    memcpy(key.hash, &number, sizeof number);
    return key;
}

static void prepare(quire_slots *slots, uint32_t number)
{
    quire_tier_key key = key_of(number);
    uint32_t slot;
    uint8_t is_new;
    assert_int_equal(quire_slots_prepare_store(slots, &key, 1, &slot, &is_new, NULL, NULL),
                     QUIRE_OK);
    assert_int_equal(is_new, 1);
}

static void put(quire_slots *slots, uint32_t number)
{
    quire_tier_key key = key_of(number);
    prepare(slots, number);
    assert_int_equal(quire_slots_complete_store(slots, &key, 1, 1), QUIRE_OK);
}

static quire_slots *sound_slots(void)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = NUM_SLOTS;
    config.policy = QUIRE_SLOTS_ARC;
    quire_slots *slots = NULL;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_OK);
    static const uint32_t ORDER[] = {0, 1, 2, 6, 7, 3, 4, 5};
    for (uint32_t i = 0; i < COUNT(ORDER); i++) {
        quire_tier_key key = key_of(ORDER[i]);
        put(slots, ORDER[i]);
        if (i < 3)
            quire_slots_touch(slots, &key, 1);
    }
    prepare(slots, 8);
    put(slots, 9);
    assert_int_equal(slots->lists[0].count, 5);
    assert_int_equal(slots->lists[1].count, 3);
    assert_int_equal(slots->lists[2].count, 2);
    assert_int_equal(quire_slots_check(slots), QUIRE_OK);
    return slots;
}

/* ---- the damages ------------------------------------------------------------- */

static qr_slots_node *first_of(quire_slots *slots, uint32_t list)
{
    return &slots->nodes[slots->lists[list].chain.first];
}

static void end_list_early(quire_slots *slots, uint32_t list)
{
    slots->lists[list].chain.last = slots->lists[list].chain.first;
}

static void close_ring(quire_slots *slots, uint32_t list)
{
    slots->nodes[slots->lists[list].chain.last].link.next = slots->lists[list].chain.first;
}

static void lead_outside(quire_slots *slots, uint32_t list)
{
    slots->nodes[slots->lists[list].chain.last].link.next = 1000000;
}

static void lose_way_back(quire_slots *slots, uint32_t list)
{
    slots->nodes[slots->lists[list].chain.last].link.prev = QR_NIL;
}

/* The sums over the lists stay as they are. */
static void count_one_elsewhere(quire_slots *slots, uint32_t list)
{
    slots->lists[list].count--;
    slots->lists[(list + 1) % 3].count++;
}

static void count_idle_elsewhere(quire_slots *slots, uint32_t list)
{
    slots->lists[list].num_idle--;
    slots->lists[(list + 1) % 3].num_idle++;
}

static void name_another_list(quire_slots *slots, uint32_t list)
{
    first_of(slots, list)->list = (list + 1) & 3;
}

static void leave_node_named(quire_slots *slots, uint32_t list)
{
    first_of(slots, list)->is_named = 1;
}

static void give_key_of_another(quire_slots *slots, uint32_t list)
{
    first_of(slots, list)->key = first_of(slots, (list + 1) % 3)->key;
}

static void give_slot_of_another(quire_slots *slots, uint32_t list)
{
    first_of(slots, list)->slot = slots->nodes[slots->lists[(list + 1) % 2].chain.last].slot;
}

static void lose_slot(quire_slots *slots, uint32_t list)
{
    first_of(slots, list)->slot = list == 2 ? 1000000 : QR_NIL;
}

static void add_user(quire_slots *slots, uint32_t list)
{
    first_of(slots, list)->users++;
}

static void count_idle_as_active(quire_slots *slots, uint32_t list)
{
    slots->num_cached -= list + 1;
    slots->num_active += list + 1;
}

static void add_free_node(quire_slots *slots, uint32_t list)
{
    slots->free_nodes = slots->lists[list].chain.first;
}

static void use_too_many(quire_slots *slots, uint32_t list)
{
    uint32_t *const numbers[] = {&slots->num_fresh, &slots->num_fresh_nodes, &slots->num_slots};
    *numbers[list] = list == 2 ? NUM_SLOTS - 1 : 1000000;
}

static void every_damage_is_seen(void **state)
{
    (void)state;
    static void (*const DAMAGES[])(quire_slots *, uint32_t) = {
        end_list_early,       close_ring,           lead_outside,      lose_way_back,
        count_one_elsewhere,  count_idle_elsewhere, name_another_list, leave_node_named,
        give_key_of_another,  give_slot_of_another, lose_slot,         add_user,
        count_idle_as_active, add_free_node,        use_too_many};
    for (uint32_t i = 0; i < COUNT(DAMAGES); i++)
        for (uint32_t list = 0; list < 3; list++) {
            quire_slots *slots = sound_slots();
            DAMAGES[i](slots, list);
            if (quire_slots_check(slots) != QUIRE_E_CORRUPT)
                fail_msg("damage %u to list %u is not seen", (unsigned)i, (unsigned)list);
            quire_slots_destroy(slots);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
