/* sched/image/image_flight.h - what the rules of vLLM 0.32 keep in an image: steps in flight,
 * fences, pace. The images of other profiles have nothing of it. */
#ifndef QR_SCHED_IMAGE_IMAGE_FLIGHT_H
#define QR_SCHED_IMAGE_IMAGE_FLIGHT_H

#include "sched/image/image.h"

/* Of one request: counters of steps in flight, marks. */
void qr_image_flight(qr_image *image, quire_sched *sched, uint32_t index);
/* After all requests and rows: fences with their rows, pace, requests that will end. */
void qr_image_fences(qr_image *image, quire_sched *sched);
/* Whether each request has as many tokens in flight as the steps in flight have of it. */
bool qr_image_flight_adds_up(quire_sched *sched);
/* Numbers of the config that decide. */
void qr_image_mix_0_32(const quire_sched *sched,
                       void (*mix)(unsigned char *, const uint64_t *, size_t),
                       unsigned char *fingerprint);

#endif
