#include "tier/transfer/message.h"

#include "base/refuse.h"

#include <quire/tier.h>

void qr_message_seal(unsigned char *bytes, uint32_t magic, uint32_t length)
{
    qr_store_u32(bytes, magic);
    qr_store_u32(bytes + 4, QR_MESSAGE_VERSION);
    qr_store_u32(bytes + 8, length);
    qr_store_u32(bytes + 12, quire_crc32c(0, bytes + QR_MESSAGE_HEAD, length - QR_MESSAGE_HEAD));
}

int qr_message_check(quire_bytes message, uint32_t magic, uint32_t least, const char *what)
{
    const unsigned char *bytes = message.data;
    if (bytes == NULL || message.len < least || qr_load_u32(bytes) != magic)
        return qr_fail(QUIRE_E_CORRUPT, "not a %s: %zu bytes", what, message.len);
    uint32_t version = qr_load_u32(bytes + 4);
    if (version != QR_MESSAGE_VERSION)
        return qr_fail(QUIRE_E_CORRUPT, "a %s of version %u (expected %u)", what, version,
                       (unsigned)QR_MESSAGE_VERSION);
    if (message.len > UINT32_MAX || qr_load_u32(bytes + 8) != message.len)
        return qr_fail(QUIRE_E_CORRUPT, "a %s of %u bytes has %zu bytes", what,
                       qr_load_u32(bytes + 8), message.len);
    uint32_t crc = quire_crc32c(0, bytes + QR_MESSAGE_HEAD, message.len - QR_MESSAGE_HEAD);
    if (crc != qr_load_u32(bytes + 12))
        return qr_fail(QUIRE_E_CORRUPT, "checksum mismatch in a %s of %zu bytes", what,
                       message.len);
    return QUIRE_OK;
}
