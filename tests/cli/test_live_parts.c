/* Parts of `quire serve --engines` where their edges are: texts as tokens, bodies of requests, the
 * inbox between clients and an engine, and the pace. */
#include "base/unit.h"

#include "live/api_request.h"
#include "live/inbox.h"
#include "live/pace.h"
#include "live/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words --------------------------------------------------------------------- */

static void check_text(const char *text, size_t num_tokens)
{
    quire_token tokens[64];
    char back[256];
    size_t used = 0;
    size_t n = words_of_text(text, strlen(text), tokens);
    assert_int_equal(n, num_tokens);
    for (size_t i = 0; i < n; i++) {
        assert_in_range(tokens[i], 0, (1 << 29) - 1);
        used += words_text(tokens[i], back + used);
    }
    assert_int_equal(used, strlen(text));
    assert_memory_equal(back, text, used);
}

static void texts_come_back(void **state)
{
    (void)state;
    check_text("", 0);
    check_text("a", 1);
    check_text("abcd", 1);
    check_text("abcde", 2);
    check_text("\x7f\x7f\x7f\x7f", 1);
    check_text("abc\xc3\xa4", 2);              /* three bytes, then two */
    check_text("\xc3\xa4", 1);                 /* fewer than three */
    check_text("\xff\xff\xff\xff", 2);         /* no UTF-8 at all */
    check_text("\xe3\x81\x93\xe3\x82\x8c", 2); /* a character is a token */
    check_text("\x80"
               "abcdef",
               2);
}

/* No two texts of three bytes have the same token, whatever group they are in. */
static void tokens_are_their_texts(void **state)
{
    (void)state;
    quire_token a[4];
    quire_token b[4];
    words_of_text("ab\x80", 3, a);
    words_of_text("ab", 2, b);
    assert_int_not_equal(a[0], b[0]);
    words_of_text("\x01\x01\x01\x01", 4, a);
    words_of_text("\x81\x40\x20", 3, b);
    assert_int_not_equal(a[0], b[0]);
    assert_int_equal(words_text(WORDS_END, (char[WORDS_BYTES]){0}), 0);
    assert_int_equal(words_text(-1, (char[WORDS_BYTES]){0}), 0);
    assert_int_equal(words_text(INT32_MAX, (char[WORDS_BYTES]){0}), 0);
}

static void answers_are_words(void **state)
{
    (void)state;
    quire_token prompt[] = {1, 2, 3};
    uint64_t content = words_content(prompt, 3);
    char text[WORDS_BYTES];
    quire_token again[2];
    for (uint32_t i = 0; i < 1000; i++) {
        quire_token token = words_answer(content, i);
        assert_int_equal(words_text(token, text), 4);
        assert_int_equal(words_of_text(text, 4, again), 1);
        assert_int_equal(again[0], token);
    }
    assert_int_equal(words_content(prompt, 3), content);
    assert_true(words_content(prompt, 2) != content);
    assert_int_equal(words_role("user"), WORDS_USER);
    assert_int_equal(words_role("User"), 0);
}

/* ---- bodies ---------------------------------------------------------------------- */

static const api_limits LIMITS = {.model = "m", .max_model_len = 100, .has_priorities = true};

static bool reads(api_kind kind, const char *body, api_request *request, api_refusal *refusal)
{
    return api_request_read(request, kind, body, strlen(body), &LIMITS, refusal);
}

static void check_refusal(api_kind kind, const char *body, uint32_t status, const char *field)
{
    api_request request;
    api_refusal refusal;
    assert_false(reads(kind, body, &request, &refusal));
    assert_int_equal(refusal.status, status);
    assert_string_equal(refusal.field, field);
    assert_true(refusal.message[0] != '\0');
    api_request_free(&request);
}

static void bodies_have_limits(void **state)
{
    (void)state;
    api_request q;
    api_refusal refusal;
    assert_true(
        reads(API_COMPLETION, "{\"prompt\":[0,2147483647],\"max_tokens\":98}", &q, &refusal));
    assert_int_equal(q.num_tokens, 2);
    assert_int_equal(q.tokens[1], INT32_MAX);
    assert_int_equal(q.max_tokens, 98);
    api_request_free(&q);
    check_refusal(API_COMPLETION, "{\"prompt\":[0,1],\"max_tokens\":99}", 400, "max_tokens");
    check_refusal(API_COMPLETION, "{\"prompt\":[2147483648]}", 400, "prompt");
    check_refusal(API_COMPLETION, "{\"prompt\":[-1]}", 400, "prompt");
    check_refusal(API_COMPLETION, "{\"prompt\":[1.0]}", 400, "prompt");
    check_refusal(API_COMPLETION, "{\"prompt\":[99999999999999999999]}", 400, "");
    check_refusal(API_COMPLETION, "{\"prompt\":[[]]}", 400, "prompt");
    check_refusal(API_COMPLETION, "{\"prompt\":{}}", 400, "prompt");
    check_refusal(API_COMPLETION, "{\"prompt\":\"x\"} {}", 400, "");
    check_refusal(API_CHAT, "{\"prompt\":\"x\"}", 400, "prompt");
    check_refusal(API_CHAT, "{}", 400, "messages");
    check_refusal(API_TOKENIZE, "{\"prompt\":\"x\",\"max_tokens\":1}", 400, "max_tokens");
    check_refusal(API_COMPLETION, "", 400, "");
    check_refusal(API_COMPLETION, "null", 400, "");
    assert_true(reads(API_COMPLETION, "{\"prompt\":\"x\",\"priority\":-2147483648}", &q, &refusal));
    assert_int_equal(q.priority, INT32_MIN);
    assert_int_equal(q.max_tokens, 16);
    api_request_free(&q);
    check_refusal(API_COMPLETION, "{\"prompt\":\"x\",\"priority\":2147483648}", 400, "priority");
    assert_true(
        reads(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", &q, &refusal));
    assert_int_equal(q.num_tokens, 3);
    assert_int_equal(q.max_tokens, 97); /* what fits */
    api_request_free(&q);
}

/* Any damage to a body is a refusal or a request, and nothing is lost or read beyond its end. */
static void damaged_bodies(void **state)
{
    (void)state;
    static const char body[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":"
        "\"hi\"}]}],\"max_tokens\":7,\"stop_token_ids\":[1,2],\"stream\":true,\"stream_options\":"
        "{\"include_usage\":true},\"cache_salt\":\"s\",\"temperature\":0.5}";
    static const char damage[] = "{}[]\",:0-9ten\x80\\";
    uint32_t num_read = 0;
    for (size_t at = 0; at <= sizeof body - 1; at++)
        for (size_t i = 0; i < sizeof damage; i++) {
            size_t bytes = at;
            char *copy = malloc(sizeof body); /* exact, for the sanitizer */
            memcpy(copy, body, sizeof body);
            if (i < sizeof damage - 1 && at < sizeof body - 1) {
                copy[at] = damage[i];
                bytes = sizeof body - 1;
            }
            char *exact = malloc(bytes + 1);
            memcpy(exact, copy, bytes);
            api_request q;
            api_refusal refusal;
            bool ok = api_request_read(&q, API_CHAT, exact, bytes, &LIMITS, &refusal);
            num_read += ok;
            assert_true(ok || (refusal.status >= 400 && refusal.message[0] != '\0'));
            api_request_free(&q);
            free(exact);
            free(copy);
        }
    assert_true(num_read > 1);
}

/* ---- the inbox --------------------------------------------------------------------- */

static uint32_t num_sleeps;
static uint32_t num_wakes;

static void note_sleep(void *asker)
{
    (void)asker;
    num_sleeps++;
}

static void note_wake(void *asker)
{
    (void)asker;
    num_wakes++;
}

static bool always(void *asker)
{
    (void)asker;
    return true;
}

static ask *make_ask(void)
{
    api_request q;
    api_refusal refusal;
    assert_true(reads(API_COMPLETION, "{\"prompt\":\"hello\",\"max_tokens\":4}", &q, &refusal));
    ask *a = ask_create(&q, UINT32_MAX);
    assert_non_null(a);
    return a;
}

static void open_inbox(inbox *x)
{
    num_sleeps = num_wakes = 0;
    assert_true(inbox_open(x, 2, note_sleep, note_wake));
}

static void inbox_has_limits(void **state)
{
    (void)state;
    inbox x;
    open_inbox(&x);
    ask *a[3] = {make_ask(), make_ask(), make_ask()};
    assert_int_equal(inbox_submit(&x, a[0], NULL), INBOX_OK);
    assert_int_equal(inbox_submit(&x, a[1], NULL), INBOX_OK);
    assert_int_equal(inbox_submit(&x, a[2], NULL), INBOX_FULL);
    assert_ptr_equal(inbox_take(&x), a[0]);
    assert_int_equal(inbox_submit(&x, a[2], NULL), INBOX_FULL); /* until one is done */
    inbox_tell(&x, a[0], &(ask_progress){.num_generated = 4, .end = ASK_LENGTH});
    assert_int_equal(inbox_submit(&x, a[2], NULL), INBOX_OK);
    assert_ptr_equal(inbox_take(&x), a[1]);
    assert_ptr_equal(inbox_take(&x), a[2]);
    assert_null(inbox_take(&x));
    assert_true(inbox_first_s(&x) < 0);
    inbox_close(&x);
    ask *late = make_ask();
    assert_int_equal(inbox_submit(&x, late, NULL), INBOX_CLOSED);
    ask_free(late);
    for (int i = 1; i < 3; i++)
        inbox_tell(&x, a[i], &(ask_progress){.end = ASK_ABORT});
    assert_int_equal(inbox_num_open(&x), 0);
    for (int i = 0; i < 3; i++)
        inbox_leave(&x, a[i]);
    inbox_free(&x);
}

static void askers_sleep_and_wake(void **state)
{
    (void)state;
    inbox x;
    open_inbox(&x);
    ask *a = make_ask();
    ask_progress seen = {0};
    ask_progress now;
    inbox_submit(&x, a, &x);
    assert_false(inbox_look(&x, a, &seen, false, &now));
    assert_int_equal(num_sleeps, 1);
    inbox_take(&x);
    inbox_tell(&x, a, &(ask_progress){.num_generated = 1});
    assert_int_equal(num_wakes, 1);
    inbox_tell(&x, a, &(ask_progress){.num_generated = 2}); /* awake: it will look by itself */
    assert_int_equal(num_wakes, 1);
    assert_true(inbox_look(&x, a, &seen, false, &now));
    assert_int_equal(now.num_generated, 2);
    assert_false(inbox_look(&x, a, &seen, true, &now)); /* the end only */
    inbox_tell(&x, a, &(ask_progress){.num_generated = 3});
    assert_int_equal(num_wakes, 1);
    inbox_wake_gone(&x, always);
    assert_int_equal(num_wakes, 2);
    assert_false(inbox_look(&x, a, &seen, true, &now));
    inbox_tell(&x, a, &(ask_progress){.num_generated = 4, .end = ASK_LENGTH});
    assert_int_equal(num_wakes, 3);
    assert_true(inbox_look(&x, a, &seen, true, &now));
    assert_int_equal(now.end, ASK_LENGTH);
    inbox_leave(&x, a);
    inbox_free(&x);
}

/* In whatever order the asker leaves and the engine ends, it is freed once (sanitizers look). */
static void both_let_go(void **state)
{
    (void)state;
    inbox x;
    open_inbox(&x);
    const ask_progress end = {.end = ASK_ABORT};
    ask *a = make_ask();
    inbox_submit(&x, a, NULL); /* leaves before it is taken */
    inbox_leave(&x, a);
    assert_null(inbox_take_cancelled(&x));
    assert_ptr_equal(inbox_take(&x), a);
    assert_ptr_equal(inbox_take_cancelled(&x), a);
    assert_null(inbox_take_cancelled(&x));
    inbox_tell(&x, a, &end);
    a = make_ask();
    inbox_submit(&x, a, NULL); /* leaves after it was taken */
    inbox_take(&x);
    inbox_leave(&x, a);
    assert_ptr_equal(inbox_take_cancelled(&x), a);
    inbox_tell(&x, a, &end);
    a = make_ask();
    inbox_submit(&x, a, NULL); /* ends before the engine hears that it was left */
    inbox_take(&x);
    inbox_leave(&x, a);
    inbox_tell(&x, a, &end);
    assert_null(inbox_take_cancelled(&x));
    a = make_ask();
    inbox_submit(&x, a, NULL); /* leaves after its end */
    inbox_take(&x);
    inbox_tell(&x, a, &end);
    inbox_leave(&x, a);
    assert_null(inbox_take_cancelled(&x));
    assert_int_equal(inbox_num_open(&x), 0);
    inbox_wait(&x, 0);
    inbox_free(&x);
}

/* ---- the pace ----------------------------------------------------------------------- */

static void pace_follows_real_time(void **state)
{
    (void)state;
    pace p = {.speed = 4};
    assert_float_equal(pace_left_s(&p, 0, 100), 0, 1e-9);
    assert_float_equal(pace_left_s(&p, 8, 100), 2, 1e-9);
    assert_float_equal(pace_left_s(&p, 8, 101.5), 0.5, 1e-9);
    assert_float_equal(pace_simulated_s(&p, 101), 4, 1e-9);
    assert_float_equal(pace_left_s(&p, 8, 102.4), -0.4, 1e-9); /* a little late: it catches up */
    assert_float_equal(pace_simulated_s(&p, 102.4), 9.6, 1e-9);
    assert_true(pace_left_s(&p, 8, 110) < -0.5); /* far behind: it goes on from there */
    assert_float_equal(pace_simulated_s(&p, 110), 8, 1e-9);
    assert_float_equal(pace_left_s(&p, 12, 110), 1, 1e-9);
    pace fast = {.speed = 0};
    assert_float_equal(pace_left_s(&fast, 1000, 5), 0, 1e-9);
    assert_float_equal(pace_simulated_s(&fast, 6), 1000, 1e-9);
    assert_float_equal(pace_left_s(&fast, 10, 5), 0, 1e-9);
    assert_float_equal(pace_simulated_s(&fast, 6), 1000, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),        cmocka_unit_test(tokens_are_their_texts),
        cmocka_unit_test(answers_are_words),      cmocka_unit_test(bodies_have_limits),
        cmocka_unit_test(damaged_bodies),         cmocka_unit_test(inbox_has_limits),
        cmocka_unit_test(askers_sleep_and_wake),  cmocka_unit_test(both_let_go),
        cmocka_unit_test(pace_follows_real_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
