/* parity/parity_slots.c - Quire's slots against vLLM's CPUOffloadingManager with LRU and ARC.
 *
 *      slots arc 8 24     8 slots, 24 keys; a list of keys is first, how many and step (1)
 *      l3 5     lookup            s3 5 7   prepare_store         c3 5   complete_store
 *      t3 5     touch             p3 5     prepare_load          x3 5   complete_store, not good
 *                                 q3 5     complete_load
 *
 * After each operation its answer (slots, keys that are new, keys that were evicted, in order), its
 * events and the whole state of the policy are compared: all keys in their order with slot and
 * users, what ARC remembers, and its target.
 */
#include "parity/recording.h"
#include "parity/stream.h"
#include "tier/slots/slots.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_KEYS = 256, ENOUGH_RUNS = 500 };

static const char *path;

typedef struct slots_case {
    recording r;
    quire_slots *slots;
    bool is_arc;
    uint32_t num_keys;
    quire_tier_key all[MOST_KEYS];
    quire_tier_key keys[MOST_KEYS]; /* of the operation at hand */
    uint32_t numbers[MOST_KEYS];
    uint32_t n;
    text events;
    uint64_t num_refused;
    uint64_t num_below;     /* refused by ARC since T1 was below its target */
    uint64_t num_fractions; /* targets that are no whole number */
    uint64_t num_evicted;
} slots_case;

static void start_case(slots_case *c)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    c->is_arc = strcmp(recording_word(&c->r), "arc") == 0;
    config.policy = c->is_arc ? QUIRE_SLOTS_ARC : QUIRE_SLOTS_LRU;
    config.num_slots = recording_u32(&c->r);
    c->num_keys = recording_u32(&c->r);
    recording_expect(&c->r, c->num_keys <= MOST_KEYS, "keys fit");
    quire_slots_destroy(c->slots);
    recording_expect(&c->r, quire_slots_create(&config, NULL, &c->slots) == QUIRE_OK, "made");
    for (uint32_t i = 0; i < c->num_keys; i++) {
        stream_digest(0, i, c->all[i].hash, sizeof c->all[i].hash);
        c->all[i].group = i % 3;
    }
    recording_start_case(&c->r);
}

static uint32_t number_of(const slots_case *c, const quire_tier_key *key)
{
    uint32_t i = 0;
    while (memcmp(&c->all[i], key, sizeof *key) != 0)
        i++;
    return i;
}

/* "t3 5" and "t3 5 7": the operation's first word has its letter and the first key. */
static void read_keys(slots_case *c, const char *word)
{
    uint32_t first = (uint32_t)strtoul(word + 1, NULL, 10);
    c->n = recording_u32(&c->r);
    recording_expect(&c->r, c->n <= MOST_KEYS, "keys fit");
    const char *rest = c->r.cursor;
    /* the step is there when two words are left: itself and the fingerprint */
    bool has_step = rest != NULL && strchr(rest, ' ') != NULL;
    uint32_t step = has_step ? recording_u32(&c->r) : 1;
    for (uint32_t i = 0; i < c->n; i++) {
        c->numbers[i] = (uint32_t)((first + (uint64_t)i * step) % c->num_keys);
        c->keys[i] = c->all[c->numbers[i]];
    }
}

/* ---- operations ------------------------------------------------------------ */

static void look_up(slots_case *c)
{
    uint32_t leading = 0;
    bool is_leading = true;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t slot;
        uint32_t is_ready = 0;
        int status = quire_slots_find(c->slots, &c->keys[i], &slot, &is_ready);
        bool is_found = status == QUIRE_OK && is_ready;
        is_leading = is_leading && is_found;
        leading += is_leading;
        text_add(&c->r.answer, "%d", is_found);
    }
    recording_expect(&c->r, quire_slots_lookup(c->slots, c->keys, c->n) == leading,
                     "lookup finds as many from the first on");
}

/* Whether enough could be evicted: what is missing, against what is free or idle and not named. */
static bool has_enough(const slots_case *c)
{
    const quire_slots *slots = c->slots;
    uint32_t num_missing = c->n;
    uint32_t room = (uint32_t)quire_slots_usage(slots).empty;
    for (uint32_t list = 0; list < 2; list++)
        room += slots->lists[list].num_idle;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t node = qr_slots_node_of(slots, &c->keys[i]);
        bool is_there = node != QR_NIL && slots->nodes[node].slot != QR_NIL;
        num_missing -= is_there;
        room -= is_there && qr_slots_is_idle(&slots->nodes[node]);
    }
    return room >= num_missing;
}

static void prepare_store(slots_case *c)
{
    uint32_t slot_ids[MOST_KEYS];
    uint8_t is_new[MOST_KEYS];
    quire_tier_key evicted[MOST_KEYS];
    uint32_t lists[3][MOST_KEYS]; /* new keys, their slots, evicted keys */
    uint32_t num_new = 0;
    uint32_t num_evicted = 0;
    int status =
        quire_slots_prepare_store(c->slots, c->keys, c->n, slot_ids, is_new, evicted, &num_evicted);
    if (status == QUIRE_NO_SPACE) {
        text_add(&c->r.answer, "!");
        c->num_refused++;
        c->num_below += has_enough(c);
        recording_expect(&c->r, c->is_arc || !has_enough(c), "LRU finds what there is");
        return;
    }
    recording_expect(&c->r, status == QUIRE_OK, "prepare_store is done or has no space");
    for (uint32_t i = 0; i < c->n; i++) {
        if (!is_new[i])
            continue;
        lists[0][num_new] = c->numbers[i];
        lists[1][num_new++] = slot_ids[i];
    }
    for (uint32_t i = 0; i < num_evicted; i++)
        lists[2][i] = number_of(c, &evicted[i]);
    text_add_ids(&c->r.answer, lists[0], num_new);
    text_add(&c->r.answer, "@");
    text_add_ids(&c->r.answer, lists[1], num_new);
    text_add(&c->r.answer, "-");
    text_add_ids(&c->r.answer, lists[2], num_evicted);
    c->num_evicted += num_evicted;
    if (num_evicted == 0)
        return;
    text_add(&c->events, "R");
    text_add_ids(&c->events, lists[2], num_evicted);
}

static void complete_store(slots_case *c, bool is_good)
{
    uint32_t stored[MOST_KEYS];
    uint32_t num_stored = 0;
    for (uint32_t i = 0; i < c->n && is_good; i++) {
        uint32_t slot;
        uint32_t is_ready = 0;
        int status = quire_slots_find(c->slots, &c->keys[i], &slot, &is_ready);
        if (status == QUIRE_OK && !is_ready)
            stored[num_stored++] = c->numbers[i];
    }
    int status = quire_slots_complete_store(c->slots, c->keys, c->n, is_good);
    recording_expect(&c->r, status == QUIRE_OK, "complete_store is done");
    if (num_stored == 0)
        return;
    text_add(&c->events, "S");
    text_add_ids(&c->events, stored, num_stored);
}

static void prepare_load(slots_case *c)
{
    uint32_t slot_ids[MOST_KEYS];
    int status = quire_slots_prepare_load(c->slots, c->keys, c->n, slot_ids);
    if (status == QUIRE_OK)
        text_add_ids(&c->r.answer, slot_ids, c->n);
    else
        text_add(&c->r.answer, "!");
}

static void run_operation(slots_case *c, char op)
{
    text_clear(&c->events);
    text_add(&c->r.answer, "%c=", op);
    if (op == 'l')
        look_up(c);
    else if (op == 't')
        quire_slots_touch(c->slots, c->keys, c->n);
    else if (op == 's')
        prepare_store(c);
    else if (op == 'c' || op == 'x')
        complete_store(c, op == 'c');
    else if (op == 'p')
        prepare_load(c);
    else if (op == 'q')
        text_add(&c->r.answer, "%s",
                 quire_slots_complete_load(c->slots, c->keys, c->n) == QUIRE_OK ? "" : "!");
    else
        recording_expect(&c->r, false, "operation is known");
}

/* ---- the state ------------------------------------------------------------- */

static void add_list(slots_case *c, uint32_t which, bool has_slots)
{
    const quire_slots *slots = c->slots;
    bool is_first = true;
    for (uint32_t id = slots->lists[which].chain.first; id != QR_NIL;
         id = slots->nodes[id].link.next) {
        const qr_slots_node *node = &slots->nodes[id];
        text_add(&c->r.answer, "%s%u", is_first ? "" : ",", number_of(c, &node->key));
        if (has_slots)
            text_add(&c->r.answer, ":%u:%d", node->slot, node->is_ready ? (int)node->users : -1);
        is_first = false;
    }
    if (is_first && !has_slots)
        text_add(&c->r.answer, "-");
}

static void check_state(slots_case *c)
{
    recording_expect(&c->r, quire_slots_check(c->slots) == QUIRE_OK, "slots are valid");
    text_add(&c->r.answer, "|%s|", c->events.data != NULL ? c->events.data : "");
    add_list(c, 0, true);
    for (uint32_t list = 1; list < QR_SLOTS_LISTS && c->is_arc; list++) {
        text_add(&c->r.answer, "/");
        add_list(c, list, list == 1);
    }
    if (c->is_arc)
        text_add(&c->r.answer, "/%.17g", c->slots->target);
    c->num_fractions += c->slots->target > (double)(uint32_t)c->slots->target;
    recording_check_answer(&c->r);
}

static void slots_answer_as_vllm(void **state)
{
    (void)state;
    static slots_case c;
    recording_open(&c.r, path, "slots");
    while (recording_next(&c.r)) {
        const char *op = recording_word(&c.r);
        if (strcmp(op, "slots") == 0) {
            start_case(&c);
        } else if (strcmp(op, "end") == 0) {
            recording_check_case(&c.r);
        } else {
            read_keys(&c, op);
            run_operation(&c, op[0]);
            check_state(&c);
        }
    }
    printf("%llu evicted, %llu times no space, %llu of them with T1 below its target\n",
           (unsigned long long)c.num_evicted, (unsigned long long)c.num_refused,
           (unsigned long long)c.num_below);
    if (c.r.runs >= ENOUGH_RUNS)
        recording_expect(&c.r, c.num_evicted > 0 && c.num_below > 0 && c.num_fractions > 0,
                         "all of it happened");
    recording_close(&c.r);
    quire_slots_destroy(c.slots);
    text_free(&c.events);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/slots.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test(slots_answer_as_vllm)};
    return cmocka_run_group_tests_name("parity_slots", tests, NULL, NULL);
}
