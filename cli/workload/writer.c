#include "writer.h"

#include "numbers.h"
#include "output/failure.h"
#include "roots.h"
#include "trace/content.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a number stands for: each kind is numbered apart. */
enum { KIND_CONTENT = 1, KIND_SESSION, KIND_NAME };

struct workload_writer {
    FILE *out;
    workload_options options;
    number_map contents; /* or blocks */
    number_map sessions;
    uint64_t num_contents; /* numbers that were given */
    uint64_t num_sessions;
    uint64_t first_name; /* of this copy: names are numbers of requests from here on */
    uint64_t end_name;
    ideal_cache ideal;
    ideal_cache written; /* the same of the ids: its blocks */
    workload_losses losses;
    bool has_failed;
};

workload_writer *workload_open(FILE *out, const workload_options *options)
{
    workload_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->out = out;
    w->options = *options;
    if (options->form == WORKLOAD_QUIRE) {
        fprintf(out, "{\"quire_workload\": 1, \"kind\": \"%s\"", options->kind);
        if (options->made_by != NULL)
            fprintf(out, ", \"made_by\": %s", options->made_by);
        fprintf(out, "}\n");
    }
    return w;
}

void workload_begin_copy(workload_writer *w)
{
    number_map_clear(&w->contents);
    number_map_clear(&w->sessions);
    w->first_name = w->end_name;
}

void workload_close(workload_writer *w)
{
    if (w == NULL)
        return;
    number_map_free(&w->contents);
    number_map_free(&w->sessions);
    ideal_free(&w->ideal);
    ideal_free(&w->written);
    free(w);
}

/* ---- numbers ------------------------------------------------------------------ */

/* The shortest text that is read as the same number again. */
static void print_real(FILE *out, double value)
{
    char text[40];
    int digits = 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (digits++ < 17 && strtod(text, NULL) != value);
    fputs(text, out);
}

static uint64_t number_of(workload_writer *w, number_map *map, uint64_t *last, uint64_t key)
{
    uint64_t *number = number_map_at(map, key);
    if (number == NULL)
        w->has_failed = true;
    else if (*number == 0)
        *number = ++*last;
    return number != NULL ? *number : 0;
}

static uint64_t content_number(workload_writer *w, uint64_t content)
{
    if (w->options.cipher != NULL)
        return cipher_of(w->options.cipher, KIND_CONTENT, content);
    return number_of(w, &w->contents, &w->num_contents, content);
}

/* 0 is no session: a cipher that gives it is asked for another number. */
static uint64_t session_number(workload_writer *w, uint64_t session)
{
    if (w->options.cipher == NULL)
        return number_of(w, &w->sessions, &w->num_sessions, session);
    uint64_t number = cipher_of(w->options.cipher, KIND_SESSION, session);
    return number != 0 ? number : cipher_of(w->options.cipher, KIND_SESSION, 0);
}

static uint64_t name_of(workload_writer *w, uint64_t number)
{
    uint64_t name = w->first_name + number;
    if (name >= w->end_name)
        w->end_name = name + 1;
    return w->options.cipher != NULL ? cipher_of(w->options.cipher, KIND_NAME, name) : name;
}

static void print_names(workload_writer *w, const trace_request *r, const char *field)
{
    fprintf(w->out, ", \"%s\": [", field);
    for (uint32_t i = 0; i < r->num_after; i++)
        fprintf(w->out, "%s%" PRIu64, i > 0 ? ", " : "", name_of(w, r->after[i]));
    fputc(']', w->out);
}

/* ---- workload files ------------------------------------------------------------- */

static void print_segment(workload_writer *w, uint64_t content, uint32_t num_tokens)
{
    fprintf(w->out, "[%" PRIu64 ", %" PRIu32 "]", content_number(w, content), num_tokens);
}

static void print_prompt(workload_writer *w, const trace_request *r, bool has_contents)
{
    if (!has_contents) {
        fprintf(w->out, ", \"prompt\": %" PRIu32 ", \"output\": %" PRIu32, r->num_prompt_tokens,
                r->num_output_tokens);
        return;
    }
    fprintf(w->out, ", \"prompt\": [");
    for (uint32_t i = 0; i < r->num_segments; i++) {
        fputs(i > 0 ? ", " : "", w->out);
        print_segment(w, r->prompt[i].content, r->prompt[i].num_tokens);
    }
    fputs("], \"output\": ", w->out);
    print_segment(w, r->output_content, r->num_output_tokens);
}

static void write_quire(workload_writer *w, const trace_request *r, bool has_contents)
{
    FILE *out = w->out;
    if (request_waits(r)) {
        fputs("{\"think\": ", out);
        print_real(out, r->think_s);
    } else {
        fputs("{\"time\": ", out);
        print_real(out, r->time_s);
    }
    if (r->session != 0)
        fprintf(out, ", \"session\": %" PRIu64, session_number(w, r->session));
    if (w->options.has_names)
        fprintf(out, ", \"id\": %" PRIu64, name_of(w, r->number));
    if (r->num_after > 0)
        print_names(w, r, "after");
    if (r->priority != 0)
        fprintf(out, ", \"priority\": %" PRId32, r->priority);
    if (r->pin_s >= 0) {
        fputs(", \"pin\": ", out);
        print_real(out, r->pin_s);
    }
    if (r->id_block_size > 0)
        fprintf(out, ", \"id_block_size\": %" PRIu32, r->id_block_size);
    print_prompt(w, r, has_contents);
    fprintf(out, "%s}\n", r->is_last_turn && r->session != 0 ? ", \"last\": true" : "");
}

/* ---- mooncake ------------------------------------------------------------------- */

/* Blocks of a prompt, as its segments come. The length of the last piece of a block is not part of
 * its name: a full block has no other one, and a part-filled last block then has the id of the full
 * one that begins with it. */
typedef struct block_chain {
    uint64_t before; /* the name of the block before */
    uint64_t pieces; /* of this one, but for the last */
    uint64_t last;   /* its last piece */
    uint32_t last_tokens;
    uint32_t filled;
    uint64_t num_blocks;
    bool is_leading; /* all blocks up to here came before */
} block_chain;

static void end_block(workload_writer *w, block_chain *c)
{
    uint64_t name = content_of(c->before, c->pieces, c->last);
    bool was_there = id_set_add(&w->written.seen, name);
    c->is_leading = c->is_leading && was_there;
    if (c->is_leading)
        w->losses.written_tokens += c->filled;
    uint64_t number = number_of(w, &w->contents, &w->num_contents, name);
    fprintf(w->out, "%s%" PRIu64, c->num_blocks > 0 ? ", " : "", number > 0 ? number - 1 : 0);
    *c =
        (block_chain){.before = name, .num_blocks = c->num_blocks + 1, .is_leading = c->is_leading};
}

static void add_piece(workload_writer *w, block_chain *c, uint64_t content, uint32_t first,
                      uint32_t num_tokens)
{
    if (c->filled > 0)
        c->pieces = content_of(c->pieces, c->last, c->last_tokens);
    c->last = content_of(content, first, 1);
    c->last_tokens = num_tokens;
    c->filled += num_tokens;
    if (c->filled == w->options.block_size)
        end_block(w, c);
}

static void print_ids(workload_writer *w, const trace_request *r)
{
    block_chain c = {.is_leading = true};
    fprintf(w->out, ", \"hash_ids\": [");
    for (uint32_t i = 0; i < r->num_segments; i++) {
        const trace_segment *s = &r->prompt[i];
        for (uint32_t at = 0; at < s->num_tokens;) {
            uint32_t left = w->options.block_size - c.filled;
            uint32_t n = s->num_tokens - at < left ? s->num_tokens - at : left;
            add_piece(w, &c, s->content, at, n);
            at += n;
        }
    }
    if (c.filled > 0)
        end_block(w, &c);
    fputc(']', w->out);
    ideal_share share = {0};
    ideal_arrived(&w->ideal, r, &share);
    w->losses.shared_tokens += share.tokens;
    w->losses.prompt_tokens += r->num_prompt_tokens;
}

/* To the nanosecond: a time that was in whole milliseconds is again. */
static void print_ms(FILE *out, double seconds)
{
    char text[64];
    int length = snprintf(text, sizeof text, "%.6f", seconds * 1000);
    while (text[length - 1] == '0')
        length--;
    length -= text[length - 1] == '.';
    fprintf(out, "%.*s", length, text);
}

static bool write_mooncake(workload_writer *w, const trace_request *r, bool has_contents)
{
    FILE *out = w->out;
    bool waits = request_waits(r);
    if (r->pin_s >= 0)
        return fail_with("request %" PRIu64 " (line %" PRIu64
                         "): field \"pin\": mooncake lines cannot say how long blocks are pinned",
                         r->number + 1, r->line) == 0;
    fprintf(out, "{\"%s\": ", waits ? "delay" : "timestamp");
    print_ms(out, waits ? r->think_s : r->time_s);
    /* A session of an open loop would be read as a closed one. */
    bool is_open = r->session != 0 && !r->is_closed_loop && r->turn > 0;
    w->losses.open_sessions += is_open;
    if (r->session != 0 && !is_open)
        fprintf(out, ", \"session_id\": %" PRIu64, session_number(w, r->session));
    if (w->options.has_names)
        fprintf(out, ", \"request_id\": %" PRIu64, name_of(w, r->number));
    if (r->num_after > 0)
        print_names(w, r, "wait_for");
    if (r->priority != 0)
        fprintf(out, ", \"priority\": %" PRId32, r->priority);
    fprintf(out, ", \"input_length\": %" PRIu32 ", \"output_length\": %" PRIu32,
            r->num_prompt_tokens, r->num_output_tokens);
    if (has_contents)
        print_ids(w, r);
    fputs("}\n", out);
    return true;
}

/* ---- the writer ------------------------------------------------------------------ */

bool workload_write(workload_writer *w, const trace_request *request, bool has_contents)
{
    bool ok = true;
    if (w->options.form == WORKLOAD_QUIRE)
        write_quire(w, request, has_contents);
    else
        ok = write_mooncake(w, request, has_contents);
    if (w->has_failed)
        return fail_with("not enough memory for the contents of the trace") == 0;
    return ok;
}

workload_losses workload_get_losses(const workload_writer *w)
{
    workload_losses losses = w->losses;
    if (w->ideal.seen.gave_up || w->written.seen.gave_up) {
        losses.shared_tokens = 0;
        losses.written_tokens = 0;
        losses.prompt_tokens = 0;
    }
    return losses;
}
