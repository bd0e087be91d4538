/* cli/workload/writer.h - requests as lines of a file that the readers read again.
 *
 *      trace_request ──► workload_write ──► {"time": 0.25, "prompt": [[1, 2000], [2, 180]], ...}
 *                                           {"timestamp": 250, "hash_ids": [0, 1, 2], ...}
 *
 * quire      workload files (docs/traces.md): all properties of a request. A replay of them gives
 *            the same result: contents get other numbers, and are the same where they were.
 * mooncake   JSON lines with ids of blocks. An id stands for a block and all before it, so prompts
 *            share whole blocks alone. What the format cannot say is counted (workload_losses), or
 *            refused.
 *
 * Contents are numbered in the order in which they come, or by a key (cipher.h). Memory: 16 bytes
 * for each content or block, none with a key.
 */
#ifndef QUIRE_CLI_WORKLOAD_WRITER_H
#define QUIRE_CLI_WORKLOAD_WRITER_H

#include "cipher.h"
#include "trace/ideal.h"
#include "trace/trace.h"

#include <stdio.h>

typedef enum workload_form { WORKLOAD_QUIRE, WORKLOAD_MOONCAKE } workload_form;

typedef struct workload_options {
    workload_form form;
    const char *kind;    /* for the first line: "convert", "cut" */
    const char *made_by; /* for the first line: JSON of one line; NULL: none */
    bool has_names;      /* later requests may wait for these: each gets its name */
    uint32_t block_size; /* mooncake: tokens of an id */
    const cipher *cipher;
} workload_options;

/* What the mooncake form does not have. */
typedef struct workload_losses {
    uint64_t open_sessions; /* requests whose open-loop session is not written */
    uint64_t prompt_tokens;
    uint64_t shared_tokens;  /* of prompts, that came before */
    uint64_t written_tokens; /* of them, those that the ids say; may be more than the above */
} workload_losses;

typedef struct workload_writer workload_writer;

/* NULL: no memory. What cannot be written is noted in `out`. */
workload_writer *workload_open(FILE *out, const workload_options *options);
/* Contents, sessions and names of the requests that follow are different from those before. */
void workload_begin_copy(workload_writer *w);
/* has_contents: something says what prompts have in common (trace_has_contents); else only their
 * lengths are written. False, and a sentence (failure.h): no memory, or the form cannot say it. */
bool workload_write(workload_writer *w, const trace_request *request, bool has_contents);
/* Mooncake; the tokens are 0 if there were too many blocks to remember. */
workload_losses workload_get_losses(const workload_writer *w);
void workload_close(workload_writer *w);

#endif
