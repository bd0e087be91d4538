/* sched/image/image_requests.h - one request in an image, with everything that has no fixed size.
 *
 *      numbers | id | tokens, hashes | stop tokens | features | names | inputs that wait | its row
 */
#ifndef QR_SCHED_IMAGE_IMAGE_REQUESTS_H
#define QR_SCHED_IMAGE_IMAGE_REQUESTS_H

#include "sched/image/image.h"

void qr_image_request(qr_image *image, quire_sched *sched, uint32_t index);

#endif
