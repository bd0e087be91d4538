#include "events/frames.h"

bool qr_frames_receive(qr_frames *frames, void *socket)
{
    bool has_more = true;
    frames->count = 0;
    for (int i = 0; i < QR_FRAMES_MOST; i++)
        (void)zmq_msg_init(&frames->all[i]);
    while (has_more) {
        zmq_msg_t rest;
        (void)zmq_msg_init(&rest);
        zmq_msg_t *frame = frames->count < QR_FRAMES_MOST ? &frames->all[frames->count] : &rest;
        bool is_there = zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) >= 0;
        has_more = is_there && zmq_msg_more(frame) != 0;
        (void)zmq_msg_close(&rest);
        if (!is_there)
            return false;
        frames->count++;
    }
    return true;
}

void qr_frames_close(qr_frames *frames)
{
    for (int i = 0; i < QR_FRAMES_MOST; i++)
        (void)zmq_msg_close(&frames->all[i]);
}

void qr_socket_set(void *socket, int option, int value)
{
    (void)zmq_setsockopt(socket, option, &value, sizeof value);
}

void qr_socket_set_most(void *socket, uint64_t bytes)
{
    int64_t most = bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
    (void)zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
}
