#include "events_run.h"
#include "events_index.h"
#include "events_print.h"
#include "events_tally.h"
#include "interrupt.h"
#include "report.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 512, POLL_MS = 50, CATCH_UP_S = 10 };

typedef struct follower {
    const command *cmd;
    const events_settings *settings;
    quire_subscriber *subscriber;
    events_tally tally;
    events_index index;
    bool has_index;
    double start_s;
    bool is_compared;
    uint64_t num_differing;
    uint64_t compared_at; /* number, and */
    uint64_t compared_blocks;
} follower;

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int subscribe(const command *cmd, const quire_subscriber_config *config,
                     quire_subscriber **subscriber)
{
    char message[MESSAGE_BYTES] = "";
    int err = quire_subscriber_create(config, subscriber, message, sizeof message);
    if (err == QUIRE_OK)
        return 0;
    command_error(cmd, "%s", message[0] != '\0' ? message : quire_strerror(err));
    return 1;
}

/* ---- following --------------------------------------------------------------- */

/* Takes in one delivery, if one comes. 0, 1 after a sentence; *has_one says whether. */
static int take_one(follower *f, bool *has_one)
{
    const events_settings *s = f->settings;
    quire_delivery d;
    int err = quire_subscriber_next(f->subscriber, POLL_MS, &d);
    *has_one = err == QUIRE_OK;
    if (err == QUIRE_E_CORRUPT)
        f->tally.num_corrupt++;
    if (err == QUIRE_E_CORRUPT || err == QUIRE_RETRY)
        return 0;
    if (err != QUIRE_OK) {
        command_error(f->cmd, "%s: %s", s->subscriber.endpoint, quire_strerror(err));
        return 1;
    }
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
        if (s->max_batches > 0 && events_tally_num_batches(&f->tally) >= s->max_batches)
            break;
        if (s->max_seconds > 0 && clock_s() - f->start_s >= s->max_seconds)
            break;
        status = take_one(f, &has_one);
    }
    return status;
}

/* ---- comparing --------------------------------------------------------------- */

enum { WHOLE_S = 10, MAX_ASKED = 20, ASK_AGAIN_MS = 150 };

/* Parts of the index, up to its end. */
static bool take_parts(quire_subscriber *subscriber, events_index *theirs)
{
    quire_delivery d;
    double until = clock_s() + WHOLE_S;
    while (clock_s() < until && !interrupt_came()) {
        int err = quire_subscriber_next(subscriber, POLL_MS, &d);
        if (err == QUIRE_RETRY)
            continue;
        if (err == QUIRE_OK && d.kind == QUIRE_DELIVERY_WHOLE)
            return theirs->has_number;
        if (err != QUIRE_OK || d.kind != QUIRE_DELIVERY_SNAPSHOT)
            return false;
        events_index_add(theirs, &d);
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
    command_error(f->cmd,
                  "--compare: %s gave no index to compare with; vLLM's publisher has none, "
                  "Quire's does",
                  config.replay_endpoint);
    return 1;
}

/* Goes on until the index is whole, and of this batch. */
static int catch_up(follower *f, uint64_t number)
{
    double until = clock_s() + CATCH_UP_S;
    int status = 0;
    bool has_one;
    while (status == 0 && clock_s() < until && !interrupt_came()) {
        if (f->index.is_whole && f->index.number >= number)
            break;
        status = take_one(f, &has_one);
    }
    return status;
}

/* One who has just come may still be taking in the index that it began with. The other index is
 * then of the last batch seen here, or of one that is yet to come here. */
static int reach_same_batch(follower *f, events_index *theirs)
{
    int status = catch_up(f, 0);
    if (status == 0 && !f->index.is_whole) {
        command_error(f->cmd,
                      "--compare: events are missing here, so there is no whole index to compare");
        return 1;
    }
    if (status == 0)
        status = take_whole(f, theirs);
    if (status == 0)
        status = catch_up(f, theirs->number);
    if (status != 0 || (f->index.is_whole && f->index.number == theirs->number))
        return status;
    command_error(f->cmd,
                  "--compare: the publisher's index is of batch %" PRIu64
                  ", which did not come here as an event",
                  theirs->number);
    return 1;
}

static int compare(follower *f)
{
    events_index theirs;
    if (events_index_open(&theirs) != QUIRE_OK) {
        command_error(f->cmd, "not enough memory");
        return 1;
    }
    int status = reach_same_batch(f, &theirs);
    if (status == 0) {
        f->is_compared = true;
        f->compared_at = theirs.number;
        f->compared_blocks = quire_index_get_stats(theirs.index).num_blocks;
        f->num_differing =
            events_index_compare(f->settings->json ? stderr : stdout, &f->index, &theirs);
        status = f->num_differing > 0;
    }
    events_index_close(&theirs);
    return status;
}

/* ---- the end ----------------------------------------------------------------- */

static void summarize_json(const follower *f, double seconds)
{
    const events_settings *s = f->settings;
    printf("{\"kind\":\"summary\",");
    events_tally_print_json(stdout, &f->tally, seconds);
    if (s->check)
        printf(",\"check\":\"%s\"", events_tally_is_sound(&f->tally) ? "passed" : "failed");
    if (f->has_index) {
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
    bool has_come = events_tally_num_batches(&f->tally) + f->tally.num_index > 0;
    if (s->check)
        printf("Check: %s\n", events_tally_is_sound(&f->tally) ? "passed"
                              : has_come                       ? "FAILED"
                                                               : "FAILED: nothing came");
    if (f->is_compared)
        printf("Compare: %s: %s blocks at batch %" PRIu64 "\n",
               f->num_differing == 0 ? "equal" : "DIFFERENT", report_number(f->compared_blocks),
               f->compared_at);
}

int events_run(const command *cmd, const events_settings *settings)
{
    follower f = {.cmd = cmd, .settings = settings, .start_s = clock_s()};
    interrupt_catch(false);
    f.has_index = settings->index || settings->compare;
    if (f.has_index && events_index_open(&f.index) != QUIRE_OK) {
        command_error(cmd, "not enough memory");
        return 1;
    }
    int status = subscribe(cmd, &settings->subscriber, &f.subscriber);
    if (status == 0) {
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "listening to %s; Ctrl-C ends it\n", settings->subscriber.endpoint);
        status = follow(&f);
        if (status == 0 && settings->compare)
            status = compare(&f);
        double seconds = clock_s() - f.start_s;
        if (settings->json)
            summarize_json(&f, seconds);
        else
            summarize(&f, seconds);
        if (settings->check && !events_tally_is_sound(&f.tally))
            status = 1;
    }
    quire_subscriber_destroy(f.subscriber);
    if (f.has_index)
        events_index_close(&f.index);
    return status;
}
