/* record.h - the extension quire._record: a quire_recorder as a Python object.
 *
 *      module.c    the type Recorder, its settings, stats and end
 *      lines.c     one method for each kind of line, for any engine
 *      steps.c     the same for what vLLM's scheduler returns, read in C: it runs in every step
 */
#ifndef QUIRE_PYTHON_RECORD_H
#define QUIRE_PYTHON_RECORD_H

#include "lists.h"

#include <quire/record.h>

/* Numbers of one call, kept from call to call. */
typedef struct record_list {
    uint32_t *items;
    uint32_t count;
    uint32_t room;
} record_list;

enum {
    RECORD_REQS,
    RECORD_TOKENS,
    RECORD_PREEMPTED,
    RECORD_NEW, /* pairs, from here on */
    RECORD_RESUMED,
    RECORD_DRAFTS,
    RECORD_ENCODER,
    RECORD_NUM_LISTS
};

typedef struct record_recorder {
    PyObject_HEAD quire_recorder *recorder; /* NULL: closed */
    record_list lists[RECORD_NUM_LISTS];
    unsigned char *bytes; /* hashes of one call */
    size_t bytes_room;
} record_recorder;

extern PyMethodDef record_line_methods[];
extern PyMethodDef record_step_methods[];

/* NULL and an exception where it is closed. */
quire_recorder *record_open_recorder(PyObject *self);
/* -1 and an exception where there is no memory. */
int record_push(record_list *list, uint32_t number);
int record_push_pair(record_list *list, uint32_t req, uint32_t number);
/* A line that was lost is no exception: it is counted. NULL and an exception for other statuses. */
PyObject *record_result(int status, PyObject *value);
/* From a list of bytes of one length; -1 and an exception. */
int record_read_hashes(record_recorder *self, PyObject *list, Py_ssize_t first, uint32_t *count,
                       uint32_t *hash_bytes);
/* A number of 32 bits; -1 and an exception. */
int record_read_number(PyObject *number, uint32_t *value);
/* The lists as fields of the step. */
void record_fill_step(const record_recorder *self, quire_recorded_step *step);

#endif
