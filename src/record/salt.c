#include "record/salt.h"

#include "base/hooks.h"
#include "base/memory.h"

#include <quire/error.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <string.h>

enum { SECRET_BYTES = 32, DIGEST_BYTES = 32 };

struct qr_salt {
    EVP_MAC *mac;
    EVP_MAC_CTX *keyed; /* holds the secret; an init without a key begins a new message */
};

static int begin(qr_salt *salt, const quire_hooks *hooks)
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    unsigned char secret[SECRET_BYTES];
    salt->mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    salt->keyed = salt->mac == NULL ? NULL : EVP_MAC_CTX_new(salt->mac);
    if (salt->keyed == NULL)
        return QUIRE_E_NOMEM;
    int status = qr_random_bytes(hooks, secret, sizeof secret);
    if (status == QUIRE_OK && EVP_MAC_init(salt->keyed, secret, sizeof secret, params) != 1)
        status = QUIRE_E_NOMEM;
    qr_memory_wipe(secret, sizeof secret);
    return status;
}

int qr_salt_create(const quire_hooks *hooks, qr_salt **salt)
{
    qr_salt *made = qr_alloc(1, sizeof *made);
    if (made == NULL)
        return QUIRE_E_NOMEM;
    int status = begin(made, hooks);
    if (status != QUIRE_OK) {
        qr_salt_destroy(made);
        return status;
    }
    *salt = made;
    return QUIRE_OK;
}

void qr_salt_destroy(qr_salt *salt)
{
    if (salt == NULL)
        return;
    EVP_MAC_CTX_free(salt->keyed); /* clears the key */
    EVP_MAC_free(salt->mac);
    qr_free(salt);
}

int qr_salt_hash(qr_salt *salt, qr_salt_kind kind, const void *value, size_t bytes,
                 unsigned char out[QR_SALTED_BYTES])
{
    unsigned char digest[DIGEST_BYTES];
    unsigned char first = (unsigned char)kind;
    size_t written = 0;
    if (EVP_MAC_init(salt->keyed, NULL, 0, NULL) != 1 ||
        EVP_MAC_update(salt->keyed, &first, 1) != 1 ||
        EVP_MAC_update(salt->keyed, value, bytes) != 1 ||
        EVP_MAC_final(salt->keyed, digest, &written, sizeof digest) != 1)
        return QUIRE_E_NOMEM;
    memcpy(out, digest, QR_SALTED_BYTES);
    return QUIRE_OK;
}
