#include "tier/peer/wire.h"

#include "base/bits.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

static const unsigned char MAGIC[8] = {'Q', 'U', 'I', 'R', 'E', 'P', 'E', 'R'};

void qr_peer_put_head(unsigned char *at, uint32_t type, uint32_t id, uint32_t a, uint32_t b)
{
    memcpy(at, &(qr_peer_head){type, id, a, b}, QR_PEER_HEAD);
}

qr_peer_head qr_peer_get_head(const unsigned char *at)
{
    qr_peer_head head;
    memcpy(&head, at, sizeof head);
    return head;
}

void qr_peer_put_greeting(unsigned char *at, qr_peer_status status, const unsigned char *random)
{
    memcpy(at, MAGIC, sizeof MAGIC);
    qr_store_u32(at + 8, QR_PEER_VERSION);
    qr_store_u32(at + 12, status);
    memcpy(at + 16, random, QR_PEER_RANDOM);
}

bool qr_peer_get_greeting(const unsigned char *at, uint32_t *version, uint32_t *status)
{
    *version = qr_load_u32(at + 8);
    *status = qr_load_u32(at + 12);
    return memcmp(at, MAGIC, sizeof MAGIC) == 0 && *version > 0 &&
           (*status == QR_PEER_OK || *status == QR_PEER_UNKNOWN);
}

void qr_peer_put_welcome(unsigned char *at, qr_peer_status status, uint32_t max_block_bytes)
{
    memset(at, 0, QR_PEER_WELCOME);
    qr_store_u32(at, status);
    qr_store_u32(at + 4, max_block_bytes);
}

bool qr_peer_get_welcome(const unsigned char *at, uint32_t *status, uint32_t *max_block_bytes)
{
    *status = qr_load_u32(at);
    *max_block_bytes = qr_load_u32(at + 4);
    return qr_load_u32(at + 8) == 0 && qr_load_u32(at + 12) == 0 &&
           (*status == QR_PEER_OK || *status == QR_PEER_SECRET || *status == QR_PEER_IDENTITY);
}

bool qr_peer_prove(const char *secret, const qr_peer_talk *talk, const unsigned char *welcome,
                   unsigned char *mac)
{
    enum { LABEL = 24 };
    static const char client[LABEL] = "quire peer 1 client";
    static const char server[LABEL] = "quire peer 1 server";
    unsigned char text[LABEL + sizeof *talk + QR_PEER_WELCOME_HEAD];
    size_t bytes = LABEL + sizeof *talk;
    unsigned int mac_bytes = 0;
    memcpy(text, welcome == NULL ? client : server, LABEL);
    memcpy(text + LABEL, talk, sizeof *talk);
    if (welcome != NULL) {
        memcpy(text + bytes, welcome, QR_PEER_WELCOME_HEAD);
        bytes += QR_PEER_WELCOME_HEAD;
    }
    return HMAC(EVP_sha256(), secret, (int)strlen(secret), text, bytes, mac, &mac_bytes) != NULL &&
           mac_bytes == QR_PEER_MAC;
}
