/* events/frames.h - a message of ZeroMQ's as it came, and options of sockets. */
#ifndef QR_EVENTS_FRAMES_H
#define QR_EVENTS_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <zmq.h>

enum { QR_FRAMES_MOST = 7 };

typedef struct qr_frames {
    zmq_msg_t all[QR_FRAMES_MOST];
    uint32_t count; /* that the message has; those beyond QR_FRAMES_MOST are dropped */
} qr_frames;

/* Receives a message without waiting. False: there is none. Close the frames in any case. */
bool qr_frames_receive(qr_frames *frames, void *socket);
void qr_frames_close(qr_frames *frames);

/* Options that the socket has; a failure shows when the socket is used. */
void qr_socket_set(void *socket, int option, int value);
/* The longest message that is taken. */
void qr_socket_set_most(void *socket, uint64_t bytes);

#endif
