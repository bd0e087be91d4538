/* record/test_salt.c - salted hashes are HMAC-SHA256 of kind and value, under the secret. */
#include "record/salt.h"

#include "record_kit.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <quire/error.h>

static int sevens(void *user, void *out, size_t bytes)
{
    (void)user;
    memset(out, 7, bytes);
    return 0;
}

static int none(void *user, void *out, size_t bytes)
{
    (void)user, (void)out, (void)bytes;
    return -1;
}

static void it_is_hmac(void **state)
{
    quire_hooks hooks = {.random_bytes = sevens};
    unsigned char secret[32];
    unsigned char expected[EVP_MAX_MD_SIZE];
    unsigned char out[QR_SALTED_BYTES];
    unsigned int len;
    qr_salt *salt;
    (void)state;
    memset(secret, 7, sizeof secret);
    assert_int_equal(qr_salt_create(&hooks, &salt), QUIRE_OK);
    for (int i = 0; i < 3; i++) { /* a message does not change the next one */
        assert_int_equal(qr_salt_hash(salt, QR_SALT_BLOCK, "value", 5, out), QUIRE_OK);
        (void)HMAC(EVP_sha256(), secret, sizeof secret, (const unsigned char *)"bvalue", 6,
                   expected, &len);
        assert_memory_equal(out, expected, sizeof out);
        assert_int_equal(qr_salt_hash(salt, QR_SALT_ADAPTER, "value", 5, out), QUIRE_OK);
        (void)HMAC(EVP_sha256(), secret, sizeof secret, (const unsigned char *)"avalue", 6,
                   expected, &len);
        assert_memory_equal(out, expected, sizeof out);
    }
    qr_salt_destroy(salt);
}

static void without_random_bytes_there_is_none(void **state)
{
    quire_hooks hooks = {.random_bytes = none};
    qr_salt *salt = NULL;
    (void)state;
    assert_int_equal(qr_salt_create(&hooks, &salt), QUIRE_E_RANDOM);
    assert_null(salt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_hmac),
                                       cmocka_unit_test(without_random_bytes_there_is_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
