/* sched/image/image_encoder.h - the encoder cache in an image: its items in four rows.
 *
 *      gone     to be told, in that order
 *      used     in any order; their users come with the requests
 *      unused   the longest unused first
 *      fresh    of encoder-decoder models: in order
 */
#ifndef QR_SCHED_IMAGE_IMAGE_ENCODER_H
#define QR_SCHED_IMAGE_IMAGE_ENCODER_H

#include "sched/image/image.h"

/* Before the requests: the items, nobody's yet. */
void qr_image_encoder_begin(qr_image *image, qr_encoder *encoder);
/* Whether a request is a user of features[i]'s item. */
void qr_image_hold(qr_image *image, qr_encoder *encoder, qr_feature *features, uint32_t i);
/* After them: the room that is left. */
void qr_image_encoder_end(qr_image *image, qr_encoder *encoder);

#endif
