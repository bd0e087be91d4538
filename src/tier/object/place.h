/* tier/object/place.h - where the objects of a tier are: endpoint, bucket, names.
 *
 *      path style     https://HOST[:PORT]/BUCKET/PREFIX/1/<fingerprint, 64 hex>/<hash, 64 hex>-0-0
 *      virtual host   https://BUCKET.HOST[:PORT]/PREFIX/1/...
 *
 * Only characters that a URL has as they are stand in a name: what is signed is what is sent. */
#ifndef QR_TIER_OBJECT_PLACE_H
#define QR_TIER_OBJECT_PLACE_H

#include "tier/net/address.h"
#include "tier/object/sigv4.h"

#include <quire/tier_object.h>

enum {
    QR_PLACE_BUCKET = 63 + 1,
    QR_PLACE_PREFIX = 128 + 1,
    QR_PLACE_HOST = QR_PLACE_BUCKET + QR_ADDRESS_HOST + 8,
    QR_PLACE_SPACE = QR_PLACE_BUCKET + QR_PLACE_PREFIX + 72, /* up to the fingerprint's / */
    QR_PLACE_PATH = QR_PLACE_SPACE + 88,
    QR_PLACE_URL = 8 + QR_PLACE_HOST + QR_PLACE_PATH
};

typedef struct qr_place {
    bool is_tls;
    qr_address address; /* of the endpoint, for messages and trust */
    char region[QR_SIGV4_REGION];
    char host[QR_PLACE_HOST];         /* as the Host header has it */
    char bucket_path[QR_PLACE_SPACE]; /* "/BUCKET", or "" with a virtual host */
    char prefix[QR_PLACE_PREFIX];
    char space[QR_PLACE_SPACE]; /* the beginning of all paths */
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
} qr_place;

/* QUIRE_OK, or QUIRE_E_CONFIG with a message. The fingerprint may be NULL: a check of the rest. */
int qr_place_init(qr_place *place, const quire_tier_object_config *config);
void qr_place_set_fingerprint(qr_place *place, const unsigned char *fingerprint);
/* The path of a block, with a 0 at its end. */
void qr_place_write_path(const qr_place *place, const quire_tier_key *key,
                         char path[QR_PLACE_PATH]);
void qr_place_write_url(const qr_place *place, const char *path, char url[QR_PLACE_URL]);

#endif
