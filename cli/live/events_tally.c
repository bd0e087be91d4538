#include "events_tally.h"
#include "replay/report.h"

#include <inttypes.h>

static void count_events(events_tally *t, const quire_delivery *d)
{
    t->num_bytes += d->bytes.len;
    t->num_events += d->batch.num_events;
    for (uint32_t i = 0; i < d->batch.num_events; i++) {
        const quire_wire_event *event = quire_wire_get(d->events, i);
        switch (event->kind) {
        case QUIRE_WIRE_STORED:
            t->num_stored++;
            t->num_stored_blocks += event->num_hashes;
            break;
        case QUIRE_WIRE_REMOVED:
            t->num_removed++;
            t->num_removed_blocks += event->num_hashes;
            break;
        case QUIRE_WIRE_CLEARED:
            t->num_cleared++;
            t->num_anew += d->kind != QUIRE_DELIVERY_SNAPSHOT;
            break;
        default:
            t->num_other++;
        }
    }
}

/* A whole index has the number of the last batch that it includes, and the next one follows it. */
static void note_number(events_tally *t, const quire_delivery *d)
{
    bool is_batch = d->kind == QUIRE_DELIVERY_LIVE || d->kind == QUIRE_DELIVERY_REPLAY;
    if (t->has_number && is_batch) {
        t->num_repeated += d->number == t->last_number;
        t->num_disordered += d->number != t->last_number && d->number != t->last_number + 1;
    }
    if (t->has_number && !is_batch && d->number > t->last_number)
        t->num_covered += d->number - t->last_number;
    if (!t->has_number)
        t->first_number = d->number;
    t->has_number = true;
    t->last_number = d->number;
}

void events_tally_add(events_tally *t, const quire_delivery *d)
{
    switch (d->kind) {
    case QUIRE_DELIVERY_GAP: /* the next one may have any number */
        t->num_gaps++;
        t->num_missed += d->num_missed;
        t->has_number = false;
        return;
    case QUIRE_DELIVERY_RESTART:
        t->num_restarts++;
        t->has_number = false;
        return;
    case QUIRE_DELIVERY_WHOLE: /* its parts were counted */
        return;
    case QUIRE_DELIVERY_LIVE:
        t->num_live++;
        break;
    case QUIRE_DELIVERY_REPLAY:
        t->num_replayed++;
        break;
    default:
        t->num_index++;
    }
    note_number(t, d);
    count_events(t, d);
}

uint64_t events_tally_num_batches(const events_tally *t)
{
    return t->num_live + t->num_replayed;
}

bool events_tally_is_sound(const events_tally *t)
{
    uint64_t num_wrong =
        t->num_gaps + t->num_restarts + t->num_corrupt + t->num_repeated + t->num_disordered;
    return num_wrong == 0 && events_tally_num_batches(t) + t->num_index > 0;
}

void events_tally_faults(const events_tally *t, char text[FAULTS_BYTES])
{
    const struct {
        uint64_t count;
        const char *one;
        const char *many;
    } rows[] = {{t->num_gaps, "gap", "gaps"},
                {t->num_restarts, "restart", "restarts"},
                {t->num_corrupt, "undecodable message", "undecodable messages"},
                {t->num_repeated, "repetition", "repetitions"},
                {t->num_disordered, "number out of order", "numbers out of order"}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof *rows && used < FAULTS_BYTES; i++)
        if (rows[i].count > 0)
            used += (size_t)snprintf(text + used, FAULTS_BYTES - used, "%s%s %s",
                                     used > 0 ? ", " : "", report_number(rows[i].count),
                                     rows[i].count == 1 ? rows[i].one : rows[i].many);
    if (used == 0 && !events_tally_is_sound(t))
        snprintf(text, FAULTS_BYTES, "no events received");
}

void events_tally_print(FILE *out, const events_tally *t, double seconds)
{
    fprintf(out, "%s batches, of them %s replayed, and %s parts of the whole index, in %.1f s\n",
            report_number(events_tally_num_batches(t)), report_number(t->num_replayed),
            report_number(t->num_index), seconds);
    fprintf(out, "%s events, %.0f a second, %s bytes\n", report_number(t->num_events),
            seconds > 0 ? (double)t->num_events / seconds : 0, report_number(t->num_bytes));
    fprintf(out, "  stored   %12s events %12s blocks\n", report_number(t->num_stored),
            report_number(t->num_stored_blocks));
    fprintf(out, "  removed  %12s events %12s blocks\n", report_number(t->num_removed),
            report_number(t->num_removed_blocks));
    fprintf(out, "  cleared  %12s events\n", report_number(t->num_cleared));
    if (t->num_other > 0)
        fprintf(out, "  other    %12s events\n", report_number(t->num_other));
    if (t->has_number)
        fprintf(out, "Numbers %" PRIu64 " to %" PRIu64 "\n", t->first_number, t->last_number);
    fprintf(out, "Gaps %s (%s batches), restarts %s, undecodable %s", report_number(t->num_gaps),
            report_number(t->num_missed), report_number(t->num_restarts),
            report_number(t->num_corrupt));
    fprintf(out, ", repeated %s, out of order %s\n", report_number(t->num_repeated),
            report_number(t->num_disordered));
    if (t->num_covered > 0)
        fprintf(out, "%s batches were not received one by one: a whole index contained them\n",
                report_number(t->num_covered));
}

void events_tally_print_json(FILE *out, const events_tally *t, double seconds)
{
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {{"live", t->num_live},
                   {"replayed", t->num_replayed},
                   {"index_parts", t->num_index},
                   {"events", t->num_events},
                   {"bytes", t->num_bytes},
                   {"stored", t->num_stored},
                   {"stored_blocks", t->num_stored_blocks},
                   {"removed", t->num_removed},
                   {"removed_blocks", t->num_removed_blocks},
                   {"cleared", t->num_cleared},
                   {"other", t->num_other},
                   {"gaps", t->num_gaps},
                   {"missed", t->num_missed},
                   {"restarts", t->num_restarts},
                   {"undecodable", t->num_corrupt},
                   {"repeated", t->num_repeated},
                   {"disordered", t->num_disordered},
                   {"covered", t->num_covered},
                   {"told_anew", t->num_anew}};
    fprintf(out, "\"batches\":%" PRIu64, events_tally_num_batches(t));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        fprintf(out, ",\"%s\":%" PRIu64, members[i].name, members[i].value);
    if (t->has_number)
        fprintf(out, ",\"first_number\":%" PRIu64 ",\"last_number\":%" PRIu64, t->first_number,
                t->last_number);
    fprintf(out, ",\"seconds\":%.3f", seconds);
}
