/* cuda/fake_stream.h - streams and events of the stand-in: queues that run in order. */
#ifndef QUIRE_TESTS_FAKE_STREAM_H
#define QUIRE_TESTS_FAKE_STREAM_H

#include "cuda/fake_cuda.h"

typedef struct fake_stream fake_stream;

typedef struct fake_event {
    uint64_t recorded; /* how often it was put into a stream */
    uint64_t reached;
    uint64_t reached_ns;
    struct fake_event *next; /* of those that are destroyed: queues may still name them */
} fake_event;

typedef enum fake_op { FAKE_COPY, FAKE_FILL, FAKE_KERNEL, FAKE_RECORD, FAKE_WAIT } fake_op;

typedef struct fake_work {
    fake_op op;
    uint64_t to;
    uint64_t from;
    size_t bytes; /* FILL: numbers of value_bytes */
    unsigned value;
    unsigned value_bytes;
    fake_event *event;
    uint64_t number; /* of the event */
    fake_kernel kernel;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void *argument; /* a copy */
    size_t argument_bytes;
    struct fake_work *next;
} fake_work;

fake_stream *fake_stream_create(void);
/* Waits for what is in it. */
void fake_stream_destroy(fake_stream *stream);
/* Takes a copy of work, and fills in event numbers. */
void fake_stream_add(fake_stream *stream, const fake_work *work);
/* Also where its context is lost: nothing of it is done any more. */
bool fake_stream_is_idle(fake_stream *stream);
/* Whether work in any of them names memory: in a kernel's arguments, or, with_copies, where it
 * copies. */
bool fake_stream_is_named(uint64_t address, uint64_t bytes, bool with_copies);
void fake_stream_wait(fake_stream *stream);
/* For all of them: what frees memory waits so, as the driver does. */
void fake_stream_wait_all(void);

void fake_event_destroy(fake_event *event);
/* Frees those that are destroyed; when queues are empty. */
void fake_event_bury(void);
bool fake_event_is_reached(const fake_event *event);
void fake_event_wait(const fake_event *event);

/* Before each piece of work. */
void fake_stream_set_delay_us(uint32_t us);
/* What is in queues and comes into them is passed over. */
void fake_stream_set_lost(bool is_lost);

#endif
