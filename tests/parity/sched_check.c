/* parity/sched_check.c - which field of an answer differs.
 *
 *      # s|new=3:0:5,6:20.1f|cached=|tokens=3.20|...     what vLLM answered, with --explain
 *        s|new=3:0:5,6:20.1f|cached=|tokens=3.16|...     what Quire answered
 *                                        ^ field "tokens" of step 41, seed 7
 */
#include "parity/sched_model.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t FNV_PRIME = UINT64_C(0x100000001b3);

static size_t field_len(const char *field)
{
    return strcspn(field, "|");
}

/* In a long field, the first word in which the two differ. */
static void show_word(const char *expected, const char *got)
{
    size_t same = 0;
    size_t start = 0;
    while (expected[same] == got[same] && expected[same] != '\0') {
        start = expected[same] == ' ' ? same + 1 : start;
        same++;
    }
    print_error("    there      %.*s\n", (int)strcspn(expected + start, " |"), expected + start);
    print_error("    here       %.*s\n", (int)strcspn(got + start, " |"), got + start);
}

/* Shows the first field in which the two differ, and what it is in both. */
static void show_field(const char *expected, const char *got)
{
    for (;;) {
        size_t expected_len = field_len(expected);
        size_t got_len = field_len(got);
        bool is_same = expected_len == got_len && memcmp(expected, got, got_len) == 0;
        if (!is_same) {
            const char *shown = expected_len > 0 ? expected : got;
            size_t name_len = strcspn(shown, "=|");
            print_error("    field      %.*s\n", (int)name_len, shown);
            print_error("    expected   %.*s\n", (int)expected_len, expected);
            print_error("    got        %.*s\n", (int)got_len, got);
            show_word(expected, got);
            return;
        }
        if (expected[expected_len] == '\0' || got[got_len] == '\0')
            break;
        expected += expected_len + 1;
        got += got_len + 1;
    }
    print_error("    no field differs: the difference is in an operation before\n");
}

static void show_difference(sched_model *m)
{
    recording *r = &m->r;
    print_error("%s:%lu: seed %" PRIu64 " (%s), step %" PRIu64 ": answer differs\n", r->path,
                r->line_number, m->seed, m->mix, m->num_steps);
    print_error("    operation  %s\n", r->line);
    ssize_t len = getline(&r->line, &r->capacity, r->file);
    if (len > 2 && r->line[0] == '#') {
        r->line[strcspn(r->line, "\n")] = '\0';
        show_field(r->line + 2, r->answer.data);
        print_error("    all of it  %s\n", r->line + 2);
    } else {
        print_error("    expected   (record --seed %" PRIu64 " with --explain)\n", m->seed);
    }
    print_error("    got all    %s\n", r->answer.data);
    fail();
}

void sched_check_answer(sched_model *m)
{
    recording *r = &m->r;
    recording_ignore_fields(r);
    for (size_t i = 0; i < r->answer.len; i++)
        r->fingerprint = (r->fingerprint ^ (unsigned char)r->answer.data[i]) * FNV_PRIME;
    const char *word = recording_word(r);
    if (word[0] == '~')
        word = recording_word(r);
    if (r->fingerprint >> 52 != strtoull(word, NULL, 16))
        show_difference(m);
    recording_expect(r, r->cursor == NULL, "line ends after the fingerprint");
    text_clear(&r->answer);
    r->compared++;
}
