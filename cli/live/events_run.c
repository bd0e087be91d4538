#include "events_run.h"
#include "events_index.h"
#include "events_print.h"
#include "events_probe.h"
#include "events_tally.h"
#include "options/secret_file.h"
#include "output/interrupt.h"
#include "output/progress.h"
#include "replay/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { POLL_MS = 50, EXPLAIN_AFTER_S = 2 };
enum { LIST_BYTES = FAULTS_BYTES + PROBE_MESSAGE_BYTES + 96 };

typedef struct follower {
    const command *cmd;
    const events_settings *settings;
    quire_subscriber *subscriber;
    events_tally tally;
    events_index index;
    bool has_index;
    double start_s;
    bool has_all;                   /* --count batches have come */
    bool is_explained;              /* why nothing came, if so */
    char gone[PROBE_MESSAGE_BYTES]; /* the publisher is, at the end; empty: it is there */
    bool is_compared;
    uint64_t num_differing;
    uint64_t compared_at; /* number, and */
    uint64_t compared_blocks;
} follower;

static int subscribe(const command *cmd, const quire_subscriber_config *config,
                     quire_subscriber **subscriber)
{
    int err = quire_subscriber_create(config, subscriber);
    if (err == QUIRE_OK)
        return 0;
    command_error(cmd, "%s", quire_refusal());
    return err == QUIRE_E_SYSTEM || err == QUIRE_E_NOMEM ? 1 : 2;
}

/* ---- silence ------------------------------------------------------------------ */

static bool has_come(const follower *f)
{
    return events_tally_num_batches(&f->tally) + f->tally.num_index + f->tally.num_corrupt > 0;
}

static bool has_answered(const follower *f)
{
    return f->tally.num_index + f->tally.num_replayed > 0;
}

/* Why nothing came so far, of events or of what was asked for; once. */
static void explain_silence(follower *f)
{
    const quire_subscriber_config *c = &f->settings->subscriber;
    char message[PROBE_MESSAGE_BYTES];
    char no_answer[PROBE_MESSAGE_BYTES] = "";
    bool has_replay = c->replay_endpoint != NULL && c->start != 1;
    f->is_explained = true;
    if (!has_answered(f) && has_replay)
        (void)events_probe(c, true, no_answer);
    if (!has_come(f)) {
        probe_result result = events_probe(c, false, message);
        if (result == PROBE_FAILED)
            command_error(f->cmd, "no events received: %s", message);
        else if (result == PROBE_FINE && no_answer[0] == '\0')
            command_error(
                f->cmd, "no events received: connected to %s%s%s; the engine may be idle%s",
                c->endpoint, has_replay ? " and " : "", has_replay ? c->replay_endpoint : "",
                c->topic != NULL ? ", or none of its topics begins with --topic" : "");
        else if (result == PROBE_UNKNOWN)
            command_error(
                f->cmd, "no events received: no publisher has connected to %s, or it sends nothing",
                c->endpoint);
    }
    if (no_answer[0] != '\0')
        command_error(f->cmd, "cannot ask for earlier events: %s", no_answer);
}

static bool must_explain(const follower *f)
{
    bool asks = f->settings->subscriber.replay_endpoint != NULL;
    return !f->is_explained && (!has_come(f) || (asks && !has_answered(f)));
}

/* ---- following --------------------------------------------------------------- */

/* Takes in one delivery, if one comes. 0, 1 after a sentence; *has_one says whether. */
static int take_one(follower *f, bool *has_one)
{
    const events_settings *s = f->settings;
    quire_delivery d = QUIRE_DELIVERY_INIT;
    int err = quire_subscriber_next(f->subscriber, POLL_MS, &d);
    *has_one = err == QUIRE_OK;
    if (err == QUIRE_E_CORRUPT)
        f->tally.num_corrupt++;
    if (err == QUIRE_E_CORRUPT || err == QUIRE_RETRY)
        return 0;
    if (err != QUIRE_OK)
        return command_failed(f->cmd, "%s: %s", s->subscriber.endpoint, quire_strerror(err));
    events_tally_add(&f->tally, &d);
    if (f->has_index)
        events_index_add(&f->index, &d);
    if (!s->quiet) {
        events_print(stdout, &d, s->json);
        fflush(stdout);
    }
    return 0;
}

static int follow(follower *f)
{
    const events_settings *s = f->settings;
    int status = 0;
    bool has_one;
    while (status == 0 && !interrupt_came() && !ferror(stdout)) {
        f->has_all = s->max_batches > 0 && events_tally_num_batches(&f->tally) >= s->max_batches;
        if (f->has_all)
            break;
        if (s->max_seconds > 0 && progress_clock() - f->start_s >= s->max_seconds)
            break;
        if (progress_clock() - f->start_s >= EXPLAIN_AFTER_S && must_explain(f))
            explain_silence(f);
        status = take_one(f, &has_one);
    }
    if (status == 0 && !f->is_explained && !has_come(f))
        explain_silence(f);
    /* Whether the last batches came cannot be known when there is nobody to ask. */
    if (status == 0 && s->check && !f->has_all && has_come(f))
        (void)events_probe(&s->subscriber, false, f->gone);
    return status;
}

/* ---- comparing --------------------------------------------------------------- */

/* So long it waits in all, and while nothing comes. */
enum { PATIENCE_S = 10, SILENCE_S = 3, MAX_ASKED = 20, ASK_AGAIN_MS = 150 };

typedef struct patience {
    double until_s;
    double silent_until_s;
} patience;

static patience patience_begin(void)
{
    double now = progress_clock();
    return (patience){now + PATIENCE_S, now + SILENCE_S};
}

static bool patience_lasts(const patience *p)
{
    double now = progress_clock();
    return now < p->until_s && now < p->silent_until_s && !interrupt_came();
}

/* Parts of the index, up to its end. */
static bool take_parts(quire_subscriber *subscriber, events_index *theirs)
{
    quire_delivery d = QUIRE_DELIVERY_INIT;
    patience p = patience_begin();
    while (patience_lasts(&p)) {
        int err = quire_subscriber_next(subscriber, POLL_MS, &d);
        if (err == QUIRE_RETRY)
            continue;
        if (err == QUIRE_OK && d.kind == QUIRE_DELIVERY_WHOLE)
            return theirs->has_number;
        if (err != QUIRE_OK || d.kind != QUIRE_DELIVERY_SNAPSHOT)
            return false;
        events_index_add(theirs, &d);
        p.silent_until_s = progress_clock() + SILENCE_S;
    }
    return false;
}

/* The publisher's whole index, as another subscriber that has just come gets it. A publisher may
 * give the same one to all who ask within a short time: it is asked again until what it gives
 * includes the last batch seen here. */
static int take_whole(const follower *f, events_index *theirs)
{
    quire_subscriber_config config = f->settings->subscriber;
    quire_subscriber *subscriber;
    config.start = 0;
    for (int i = 0; i < MAX_ASKED && interrupt_sleep(i == 0 ? 0 : ASK_AGAIN_MS * 1e-3); i++) {
        events_index_forget(theirs);
        if (subscribe(f->cmd, &config, &subscriber) != 0)
            return 1;
        bool is_there = take_parts(subscriber, theirs);
        quire_subscriber_destroy(subscriber);
        if (!is_there)
            break;
        if (!f->index.has_number || theirs->number >= f->index.number)
            return 0;
    }
    if (!interrupt_came())
        command_error(f->cmd,
                      "--compare: %s returned no index (vLLM's publisher has none; Quire's has "
                      "none before its first batch)",
                      config.replay_endpoint);
    return 1;
}

/* Goes on until the index is whole, and of this batch. */
static int catch_up(follower *f, uint64_t number)
{
    patience p = patience_begin();
    int status = 0;
    bool has_one;
    while (status == 0 && patience_lasts(&p)) {
        if (f->index.is_whole && f->index.number >= number)
            break;
        status = take_one(f, &has_one);
        if (has_one)
            p.silent_until_s = progress_clock() + SILENCE_S;
    }
    return status;
}

/* One who has just come may still be taking in the index that it began with. The other index is
 * then of the last batch seen here, or of one that is yet to come here. */
static int reach_same_batch(follower *f, events_index *theirs)
{
    char message[PROBE_MESSAGE_BYTES];
    if (events_probe(&f->settings->subscriber, true, message) == PROBE_FAILED)
        return command_failed(f->cmd, "--compare: no index from the publisher: %s", message);
    int status = catch_up(f, 0);
    if (interrupt_came())
        return 1;
    if (status == 0 && !f->index.is_whole)
        return command_failed(f->cmd,
                              "--compare: the received index is incomplete: neither a whole index "
                              "nor the first batch was received, or later batches are missing");
    if (status == 0)
        status = take_whole(f, theirs);
    if (status == 0)
        status = catch_up(f, theirs->number);
    if (status != 0 || interrupt_came())
        return 1;
    if (f->index.is_whole && f->index.number == theirs->number)
        return 0;
    return command_failed(f->cmd,
                          "--compare: the publisher's index is of batch %" PRIu64
                          ", which was not received as an event",
                          theirs->number);
}

/* Ctrl-C ends the following; a second one ends this too. */
static int compare(follower *f)
{
    events_index theirs;
    bool is_interrupted = interrupt_came();
    interrupt_catch();
    if (is_interrupted && isatty(STDERR_FILENO))
        fprintf(stderr, "comparing; Ctrl-C cancels\n");
    if (events_index_open(&theirs) != QUIRE_OK)
        return command_failed(f->cmd, "not enough memory");
    int status = reach_same_batch(f, &theirs);
    if (status == 0) {
        f->is_compared = true;
        f->compared_at = theirs.number;
        f->compared_blocks = quire_index_get_stats(theirs.index)->num_blocks;
        f->num_differing =
            events_index_compare(f->settings->json ? stderr : stdout, &f->index, &theirs);
        status = f->num_differing > 0;
    } else if (interrupt_came()) {
        command_error(f->cmd, "--compare: cancelled by Ctrl-C");
    }
    events_index_close(&theirs);
    return status;
}

/* ---- the end ----------------------------------------------------------------- */

static bool is_sound(const follower *f)
{
    return events_tally_is_sound(&f->tally) && f->gone[0] == '\0' &&
           events_index_num_unknown(&f->index) == 0;
}

/* What --check found, in words; empty where nothing is wrong. */
static void list_faults(const follower *f, char text[LIST_BYTES])
{
    char faults[FAULTS_BYTES];
    uint64_t num_unknown = events_index_num_unknown(&f->index);
    events_tally_faults(&f->tally, faults);
    int used = snprintf(text, LIST_BYTES, "%s", faults);
    if (num_unknown > 0)
        used += snprintf(text + used, LIST_BYTES - (size_t)used,
                         "%s%s blocks removed that were not in their medium", used > 0 ? ", " : "",
                         report_number(num_unknown));
    if (f->gone[0] != '\0')
        snprintf(text + used, LIST_BYTES - (size_t)used, "%sthe publisher has ended: %s",
                 used > 0 ? "; " : "", f->gone);
}

static void summarize_json(const follower *f, double seconds)
{
    const events_settings *s = f->settings;
    printf("{\"kind\":\"summary\",");
    events_tally_print_json(stdout, &f->tally, seconds);
    char faults[LIST_BYTES];
    list_faults(f, faults);
    if (s->check) {
        printf(",\"media\":");
        events_index_print_media(stdout, &f->index, true);
    }
    if (s->check)
        printf(",\"check\":\"%s\"", is_sound(f) ? "passed" : "failed");
    if (s->check && !is_sound(f)) {
        printf(",\"faults\":");
        events_print_json_text(stdout, (quire_bytes){faults, strlen(faults)});
    }
    if (s->index || s->compare) {
        printf(",\"index\":");
        events_index_print(stdout, &f->index, true);
    }
    if (f->is_compared)
        printf(",\"compare\":{\"number\":%" PRIu64 ",\"blocks\":%" PRIu64 ",\"differing\":%" PRIu64
               "}",
               f->compared_at, f->compared_blocks, f->num_differing);
    printf("}\n");
}

static void summarize(const follower *f, double seconds)
{
    const events_settings *s = f->settings;
    if (!s->quiet)
        putchar('\n');
    events_tally_print(stdout, &f->tally, seconds);
    if (s->index)
        events_index_print(stdout, &f->index, false);
    char faults[LIST_BYTES];
    list_faults(f, faults);
    if (s->check)
        events_index_print_media(stdout, &f->index, false);
    if (s->check)
        printf("Check: %s%s\n", is_sound(f) ? "passed" : "FAILED: ", faults);
    if (f->is_compared)
        printf("Compare: %s: %s blocks at batch %" PRIu64 "\n",
               f->num_differing == 0 ? "equal" : "DIFFERENT", report_number(f->compared_blocks),
               f->compared_at);
    if ((s->check || f->is_compared) && f->tally.num_anew > 0)
        printf("The publisher sent its whole index again %s time%s: its cache was reset, or it "
               "lost events (quire serve --event-ring).\nUntil it has sent all blocks, its index "
               "is incomplete\n",
               report_number(f->tally.num_anew), f->tally.num_anew == 1 ? "" : "s");
}

int events_run(const command *cmd, const events_settings *settings)
{
    follower f = {.cmd = cmd, .settings = settings, .start_s = progress_clock()};
    interrupt_catch();
    f.has_index = settings->index || settings->compare || settings->check;
    if (f.has_index && events_index_open(&f.index) != QUIRE_OK)
        return command_failed(cmd, "not enough memory");
    int status = subscribe(cmd, &settings->subscriber, &f.subscriber);
    if (status == 0) {
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "listening to %s; stop with Ctrl-C\n", settings->subscriber.endpoint);
        status = follow(&f);
        if (status == 0 && settings->compare)
            status = compare(&f);
        double seconds = progress_clock() - f.start_s;
        if (settings->json)
            summarize_json(&f, seconds);
        else
            summarize(&f, seconds);
        if (settings->check && !is_sound(&f))
            status = 1;
    }
    quire_subscriber_destroy(f.subscriber);
    if (f.has_index)
        events_index_close(&f.index);
    return status;
}

int events_keys_make(const command *cmd, const char *path)
{
    char public_key[KEY_CHARACTERS + 1];
    char secret_key[KEY_CHARACTERS + 2];
    if (zmq_curve_keypair(public_key, secret_key) != 0)
        return command_failed(cmd, "--make-keys: this libzmq was built without CURVE");
    memcpy(secret_key + KEY_CHARACTERS, "\n", 2);
    int fd =
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* a key is never replaced */
    bool ok = fd >= 0 && write(fd, secret_key, KEY_CHARACTERS + 1) == KEY_CHARACTERS + 1;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    if (!ok) {
        command_error(cmd, "--make-keys: %s: %s", path, strerror(errno));
        if (fd >= 0)
            unlink(path); /* part of a key is no key */
        return 1;
    }
    printf("%s\n", public_key);
    return 0;
}
