/* base/test_list.c - lists inside an array: in at any place, out from any place.
 *
 *      elements 0..4 and the sentinel 5; a list is written as the string of its elements, "013"
 */
#include "base/list.h"
#include "base/unit.h"

enum { NUM = 5, SENTINEL = NUM };

/* Larger than its link, so that a wrong stride shows. */
typedef struct element {
    qr_link link;
    char payload[12];
} element;

typedef struct fixture {
    element elements[NUM + 1];
} fixture;

static void init(fixture *f)
{
    for (uint32_t i = 0; i <= NUM; i++) {
        qr_link_clear(&f->elements[i].link);
        memset(f->elements[i].payload, 'p', sizeof f->elements[i].payload);
    }
    qr_list_init(f->elements, sizeof(element), SENTINEL);
}

static void insert_before(fixture *f, uint32_t where, uint32_t index)
{
    qr_list_insert_before(f->elements, sizeof(element), where, index);
}

static void take_out(fixture *f, uint32_t index)
{
    qr_list_remove(f->elements, sizeof(element), index);
}

static void append_all(fixture *f, const char *order)
{
    for (; *order != '\0'; order++)
        insert_before(f, SENTINEL, (uint32_t)(*order - '0'));
}

/* The list is this one, forward and backward, and all others are in none. */
static void assert_list(const fixture *f, const char *wanted)
{
    size_t n = strlen(wanted);
    uint32_t forward = SENTINEL;
    uint32_t backward = SENTINEL;
    bool listed[NUM] = {false};
    for (size_t i = 0; i < n; i++) {
        forward = f->elements[forward].link.next;
        backward = f->elements[backward].link.prev;
        assert_int_equal(forward, wanted[i] - '0');
        assert_int_equal(backward, wanted[n - 1 - i] - '0');
        listed[forward] = true;
    }
    assert_int_equal(f->elements[forward].link.next, SENTINEL);
    assert_int_equal(f->elements[backward].link.prev, SENTINEL);
    for (uint32_t i = 0; i < NUM; i++) {
        const qr_link *link = &f->elements[i].link;
        assert_int_equal(qr_link_in_list(link), listed[i]);
        assert_int_equal(link->prev == QR_NIL, !listed[i]);
        for (size_t k = 0; k < sizeof f->elements[i].payload; k++)
            assert_int_equal(f->elements[i].payload[k], 'p');
    }
}

static void new_list_is_empty(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    assert_list(&f, "");
}

static void insert_before_sentinel_appends(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    insert_before(&f, SENTINEL, 3);
    assert_list(&f, "3");
    insert_before(&f, SENTINEL, 0);
    insert_before(&f, SENTINEL, 4);
    assert_list(&f, "304");
}

static void insert_before_first_and_middle(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    append_all(&f, "12");
    insert_before(&f, 1, 0);
    assert_list(&f, "012");
    insert_before(&f, 2, 4);
    assert_list(&f, "0142");
}

static void remove_first(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    append_all(&f, "234");
    take_out(&f, 2);
    assert_list(&f, "34");
}

static void remove_middle(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    append_all(&f, "234");
    take_out(&f, 3);
    assert_list(&f, "24");
}

static void remove_last(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    append_all(&f, "234");
    take_out(&f, 4);
    assert_list(&f, "23");
}

static void remove_only(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    append_all(&f, "1");
    take_out(&f, 1);
    assert_list(&f, "");
}

static void removed_element_can_return(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    append_all(&f, "01");
    take_out(&f, 0);
    insert_before(&f, SENTINEL, 0);
    assert_list(&f, "10");
}

/* Takes out what `order` says, one by one, from "0123". */
static void remove_in_order(const char *order)
{
    fixture f;
    init(&f);
    append_all(&f, "0123");
    char left[NUM] = "0123";
    for (; *order != '\0'; order++) {
        take_out(&f, (uint32_t)(*order - '0'));
        char *gone = strchr(left, *order);
        memmove(gone, gone + 1, strlen(gone));
        assert_list(&f, left);
    }
}

static void all_removal_orders(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        char order[NUM] = "";
        unsigned seen = 0;
        for (unsigned i = 0; i < 4; i++) {
            unsigned digit = code >> (2 * i) & 3;
            order[i] = (char)('0' + digit);
            seen |= 1u << digit;
        }
        if (seen == 15) /* a permutation */
            remove_in_order(order);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_list_is_empty),
        cmocka_unit_test(insert_before_sentinel_appends),
        cmocka_unit_test(insert_before_first_and_middle),
        cmocka_unit_test(remove_first),
        cmocka_unit_test(remove_middle),
        cmocka_unit_test(remove_last),
        cmocka_unit_test(remove_only),
        cmocka_unit_test(removed_element_can_return),
        cmocka_unit_test(all_removal_orders),
    };
    return cmocka_run_group_tests_name("base_list", tests, NULL, NULL);
}
