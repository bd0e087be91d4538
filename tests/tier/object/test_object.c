/* tier/object/test_object.c - configs, names, signatures, credentials, and a server that is
 * well. */
#include "fake.h"
#include "object_kit.h"

#include "tier/object/credentials.h"
#include "tier/object/place.h"
#include "tier/object/sigv4.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- signatures: AWS's published examples ---------------------------------------- */

typedef struct example {
    const char *region;
    const char *service;
    const char *secret;
    const char *access;
    qr_sigv4_request request;
    const char *signature;
} example;

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define S3_SECRET  "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define S3_ACCESS  "AKIAIOSFODNN7EXAMPLE"
#define S3_HOST    "examplebucket.s3.amazonaws.com"
#define S3_TIME    "20130524T000000Z"
#define PUT_HASH   "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"

static const qr_sigv4_header get_headers[] = {{"host", S3_HOST},
                                              {"range", "bytes=0-9"},
                                              {"x-amz-content-sha256", EMPTY_HASH},
                                              {"x-amz-date", S3_TIME}};
static const qr_sigv4_header put_headers[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                              {"host", S3_HOST},
                                              {"x-amz-content-sha256", PUT_HASH},
                                              {"x-amz-date", S3_TIME},
                                              {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
static const qr_sigv4_header plain_headers[] = {
    {"host", S3_HOST}, {"x-amz-content-sha256", EMPTY_HASH}, {"x-amz-date", S3_TIME}};
static const qr_sigv4_header suite_headers[] = {{"host", "example.amazonaws.com"},
                                                {"x-amz-date", "20150830T123600Z"}};

#define REQUEST(m, p, q, t, hash, list)                                                            \
    {                                                                                              \
        m, p, q, t, hash, list, COUNT(list)                                                        \
    }

static const example examples[] = {
    {"us-east-1", "s3", S3_SECRET, S3_ACCESS,
     REQUEST("GET", "/test.txt", "", S3_TIME, EMPTY_HASH, get_headers),
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"us-east-1", "s3", S3_SECRET, S3_ACCESS,
     REQUEST("PUT", "/test%24file.text", "", S3_TIME, PUT_HASH, put_headers),
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"us-east-1", "s3", S3_SECRET, S3_ACCESS,
     REQUEST("GET", "/", "lifecycle=", S3_TIME, EMPTY_HASH, plain_headers),
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"us-east-1", "s3", S3_SECRET, S3_ACCESS,
     REQUEST("GET", "/", "max-keys=2&prefix=J", S3_TIME, EMPTY_HASH, plain_headers),
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    {"us-east-1", "service", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE",
     REQUEST("GET", "/", "", "20150830T123600Z", EMPTY_HASH, suite_headers),
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
};

static void published_signatures(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(examples); i++) {
        const example *e = &examples[i];
        qr_sigv4 sigv4 = {0};
        char text[QR_SIGV4_TEXT];
        (void)snprintf(sigv4.region, sizeof sigv4.region, "%s", e->region);
        (void)snprintf(sigv4.service, sizeof sigv4.service, "%s", e->service);
        for (int again = 0; again < 2; again++) { /* with the key of the day, too */
            assert_true(qr_sigv4_sign(&sigv4, e->access, e->secret, &e->request, text));
            const char *said = strstr(text, "Signature=");
            assert_non_null(said);
            assert_string_equal(said + 10, e->signature);
        }
    }
}

static void hashes_and_times(void **state)
{
    char hash[QR_SIGV4_HASH];
    char text[QR_SIGV4_TIME];
    (void)state;
    qr_sigv4_hash("", 0, "", 0, hash);
    assert_string_equal(hash, EMPTY_HASH);
    qr_sigv4_hash("Welcome to ", 11, "Amazon S3.", 10, hash);
    assert_string_equal(hash, PUT_HASH);
    qr_sigv4_write_time(1369353600, text);
    assert_string_equal(text, S3_TIME);
}

/* ---- names ------------------------------------------------------------------------- */

static void names_of_objects(void **state)
{
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {0xab};
    quire_tier_object_config c = QUIRE_TIER_OBJECT_CONFIG_INIT;
    qr_place place;
    char path[QR_PLACE_PATH];
    char url[QR_PLACE_URL];
    quire_tier_key key = {.hash = {1, 2}, .group = UINT32_MAX, .rank = UINT32_MAX};
    char bucket[64];
    char prefix[129];
    (void)state;
    memset(bucket, 'b', 63);
    memset(prefix, 'p', 128);
    bucket[63] = prefix[128] = 0;
    c.bucket = bucket; /* the longest of everything */
    c.prefix = prefix;
    c.region = "eu-central-1";
    c.fingerprint = fingerprint;
    c.virtual_host = QUIRE_OFF;
    assert_int_equal(qr_place_init(&place, &c), QUIRE_OK);
    qr_place_write_path(&place, &key, path);
    assert_int_equal(strlen(path), 1 + 63 + 1 + 128 + 3 + 64 + 1 + 64 + 22);
    assert_non_null(strstr(path, "/1/ab0000"));
    assert_non_null(strstr(path, "/010200"));
    assert_non_null(strstr(path, "-4294967295-4294967295"));

    c.bucket = "kv";
    assert_int_equal(qr_place_init(&place, &c), QUIRE_E_CONFIG);
    c.bucket = "kv-blocks";
    c.prefix = NULL;
    c.virtual_host = QUIRE_DEFAULT;
    assert_int_equal(qr_place_init(&place, &c), QUIRE_OK);
    qr_place_write_url(&place, place.space, url);
    assert_int_equal(strncmp(url, "https://kv-blocks.s3.eu-central-1.amazonaws.com/quire/1/ab", 58),
                     0);
    c.endpoint = "http://[::1]:9000/";
    assert_int_equal(qr_place_init(&place, &c), QUIRE_OK);
    qr_place_write_url(&place, place.space, url);
    assert_int_equal(strncmp(url, "http://[::1]:9000/kv-blocks/quire/1/ab", 38), 0);
    c.endpoint = "https://minio.example";
    c.virtual_host = QUIRE_ON;
    assert_int_equal(qr_place_init(&place, &c), QUIRE_OK);
    assert_string_equal(place.host, "kv-blocks.minio.example");
}

/* ---- configs ----------------------------------------------------------------------- */

static void refuses(quire_tier_object_config c, int status, const char *says)
{
    quire_tier *tier = NULL;
    if (quire_tier_object_open(&c, NULL, NULL, &tier, NULL) != status ||
        strstr(quire_refusal(), says) == NULL)
        fail_msg("\"%s\", not \"%s\"", quire_refusal(), says);
    assert_null(tier);
}

static void wrong_configs(void **state)
{
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_tier_object_config good = QUIRE_TIER_OBJECT_CONFIG_INIT;
    (void)state;
    good.endpoint = "http://127.0.0.1:9";
    good.bucket = "quire-test";
    good.region = "us-east-1";
    good.fingerprint = fingerprint;
    good.access_key = S3_ACCESS;
    good.secret_key = S3_SECRET;
#define REFUSE(field, value, status, says)                                                         \
    do {                                                                                           \
        quire_tier_object_config c = good;                                                         \
        c.field = value;                                                                           \
        refuses(c, status, says);                                                                  \
    } while (0)
    REFUSE(bucket, NULL, QUIRE_E_CONFIG, "invalid bucket \"(null)\" (expected 3..63");
    REFUSE(bucket, "Upper", QUIRE_E_CONFIG, "invalid bucket \"Upper\"");
    REFUSE(bucket, "a/b/c", QUIRE_E_CONFIG, "invalid bucket \"a/b/c\"");
    REFUSE(region, "us east", QUIRE_E_CONFIG, "invalid region \"us east\" (expected 1..63");
    REFUSE(prefix, "", QUIRE_E_CONFIG, "invalid prefix \"\" (expected 1..128");
    REFUSE(prefix, "a/../b", QUIRE_E_CONFIG, "invalid prefix \"a/../b\"");
    REFUSE(prefix, "a//b", QUIRE_E_CONFIG, "invalid prefix");
    REFUSE(prefix, "a b", QUIRE_E_CONFIG, "invalid prefix");
    REFUSE(prefix, "a/", QUIRE_E_CONFIG, "invalid prefix");
    REFUSE(endpoint, "127.0.0.1:9000", QUIRE_E_CONFIG, "invalid endpoint \"127.0.0.1:9000\"");
    REFUSE(endpoint, "ftp://a", QUIRE_E_CONFIG, "invalid endpoint");
    REFUSE(endpoint, "http://a/path", QUIRE_E_CONFIG, "invalid endpoint");
    REFUSE(endpoint, "http://user@a", QUIRE_E_CONFIG, "invalid endpoint");
    REFUSE(endpoint, "http://unix:/x", QUIRE_E_CONFIG, "invalid endpoint");
    REFUSE(endpoint, "http://10.0.0.1:9000", QUIRE_E_UNSAFE, "endpoint: \"http://10.0.0.1:9000\"");
    REFUSE(fingerprint, NULL, QUIRE_E_CONFIG, "fingerprint is NULL");
    REFUSE(virtual_host, QUIRE_ON, QUIRE_E_CONFIG, "virtual_host is QUIRE_ON");
    REFUSE(virtual_host, (quire_switch)3, QUIRE_E_CONFIG, "invalid virtual_host 3 (expected 0..2)");
    REFUSE(sign_payload, (quire_switch)7, QUIRE_E_CONFIG, "invalid sign_payload 7 (expected 0..2)");
    REFUSE(connections, 257, QUIRE_E_CONFIG, "invalid connections 257 (expected 0..256)");
    REFUSE(max_attempts, 17, QUIRE_E_CONFIG, "invalid max_attempts 17 (expected 0..16)");
    REFUSE(max_block_bytes, 600u << 20, QUIRE_E_CONFIG, "invalid max_block_bytes 629145600");
    REFUSE(retry_ns, UINT64_MAX, QUIRE_E_CONFIG, "invalid retry_ns");
    REFUSE(connect_ns, UINT64_MAX, QUIRE_E_CONFIG, "invalid connect_ns");
    REFUSE(stall_ns, UINT64_MAX, QUIRE_E_CONFIG, "invalid stall_ns");
    REFUSE(wait_ns, UINT64_MAX, QUIRE_E_CONFIG, "invalid wait_ns");
    REFUSE(trust_network, 2, QUIRE_E_CONFIG, "invalid trust_network 2 (expected 0..1)");
    REFUSE(tls_trust_any, 1, QUIRE_E_CONFIG, "tls_trust_any is 1, but endpoint is not https://");
    REFUSE(tls_ca_file, "/nowhere", QUIRE_E_CONFIG, "tls is 0, but a TLS file or name is set");
    REFUSE(event_keys, UINT32_MAX, QUIRE_E_CONFIG, "invalid event_keys");
    REFUSE(secret_key, NULL, QUIRE_E_CONFIG, "access_key and secret_key: set both or neither");
    REFUSE(access_key, "a b", QUIRE_E_CONFIG, "access_key: invalid access key");
    REFUSE(session_token, "line\nbreak", QUIRE_E_CONFIG, "session token");
    REFUSE(credentials_file, "/nowhere", QUIRE_E_CONFIG, "set at most one");
    REFUSE(credentials_uri, "http://127.0.0.1/", QUIRE_E_CONFIG, "set at most one");
    good.endpoint = "https://127.0.0.1:9";
    REFUSE(tls_ca_file, "/nowhere", QUIRE_E_CONFIG, "tls_ca_file: cannot read /nowhere");
    REFUSE(tls_cert_file, "/nowhere", QUIRE_E_CONFIG, "tls_cert_file and tls_key_file: set both");
    REFUSE(tls_key_file, "/nowhere", QUIRE_E_CONFIG, "tls_cert_file and tls_key_file: set both");
    good.endpoint = "http://127.0.0.1:9";
    good.access_key = good.secret_key = NULL;
    REFUSE(session_token, "x", QUIRE_E_CONFIG, "session_token needs both");
    REFUSE(credentials_file, "/nowhere", QUIRE_E_CONFIG, "credentials_file /nowhere, profile");
    good.profile = "team";
    REFUSE(credentials_file, "/nowhere", QUIRE_E_CONFIG, "credentials_file /nowhere, profile team");
    good.profile = NULL;
    REFUSE(credentials_uri, "http://10.0.0.1/", QUIRE_E_CONFIG, "invalid credentials_uri");
    REFUSE(credentials_uri, "file:///etc/x", QUIRE_E_CONFIG, "invalid credentials_uri");
    static const char *const variables[] = {
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"};
    for (size_t i = 0; i < COUNT(variables); i++)
        (void)unsetenv(variables[i]);
    (void)setenv("HOME", "/nowhere", 1);
    refuses(good, QUIRE_E_CONFIG, "no credentials: set access_key");
#undef REFUSE
}

/* ---- credentials --------------------------------------------------------------------- */

static void files_are_read(void **state)
{
    static const char text[] = "# a comment\n[other]\naws_access_key_id = OTHER\n"
                               "aws_secret_access_key=othersecret\n\n[ default ]\r\n"
                               "region = eu-west-1\r\n aws_access_key_id=KEY\r\n"
                               "aws_secret_access_key = a/b+c=\r\naws_session_token=T\n[last]\n";
    qr_credentials_set set;
    (void)state;
    assert_true(qr_credentials_read_file(text, strlen(text), "default", &set));
    assert_string_equal(set.access_key, "KEY");
    assert_string_equal(set.secret_key, "a/b+c=");
    assert_string_equal(set.token, "T");
    assert_true(qr_credentials_read_file(text, strlen(text), "other", &set));
    assert_string_equal(set.access_key, "OTHER");
    assert_string_equal(set.token, "");
    assert_false(qr_credentials_read_file(text, strlen(text), "last", &set));
    assert_false(qr_credentials_read_file(text, strlen(text), "none", &set));
    assert_false(qr_credentials_read_file("", 0, "default", &set));
}

static const char JSON[] =
    " {\"RoleArn\": null, \"n\": 17, \"AccessKeyId\": \"KEY\", \"SecretAccessKey\": \"a\\/b+c\","
    "\"Token\": \"t\", \"Expiration\": \"2026-09-30T12:00:00.5Z\"}\n";

static void json_is_read(void **state)
{
    static const char *const wrong[] = {
        "",
        "{",
        "{}",
        "[]",
        "null",
        "{\"AccessKeyId\": \"K\"}",
        "{\"AccessKeyId\": {\"a\": 1}}",
        "{\"AccessKeyId\": \"K\", \"SecretAccessKey\": \"S\"} x",
        "{\"AccessKeyId\": \"K\", \"SecretAccessKey\": \"S\",}",
        "{\"AccessKeyId\": \"K\\u0000\", \"SecretAccessKey\": \"S\"}",
        "{\"AccessKeyId\": \"K K\", \"SecretAccessKey\": \"S\"}",
        "{\"AccessKeyId\": \"K\", \"SecretAccessKey\": \"S\", \"Expiration\": \"tomorrow\"}"};
    qr_credentials_set set;
    (void)state;
    assert_true(qr_credentials_read_json(JSON, strlen(JSON), &set));
    assert_string_equal(set.access_key, "KEY");
    assert_string_equal(set.secret_key, "a/b+c");
    assert_string_equal(set.token, "t");
    assert_int_equal(set.expires_s, 1790769600);
    for (size_t i = 0; i < COUNT(wrong); i++)
        if (qr_credentials_read_json(wrong[i], strlen(wrong[i]), &set))
            fail_msg("%s was read", wrong[i]);
}

/* Every reader, with every kind of damage: nothing outside of the text is looked at. */
static void damaged_credentials(void **state)
{
    static const char file[] = "[default]\naws_access_key_id=KEY\naws_secret_access_key=s\n";
    uint64_t random = 11;
    qr_credentials_set set;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        const char *from = i % 2 == 0 ? JSON : file;
        uint32_t n = unit_random_below(&random, (uint32_t)strlen(from) + 1);
        char *text = malloc(n + (n == 0)); /* as long as it is: more is seen by the sanitizer */
        assert_non_null(text);
        memcpy(text, from, n);
        for (uint64_t k = unit_random_below(&random, 4); k > 0 && n > 0; k--)
            text[unit_random_below(&random, n)] = (char)unit_random_below(&random, 256);
        (void)qr_credentials_read_json(text, n, &set);
        (void)qr_credentials_read_file(text, n, "default", &set);
        free(text);
    }
}

static void write_file(const char *path, const char *key, mode_t mode)
{
    char other[128];
    (void)snprintf(other, sizeof other, "%s.new", path);
    FILE *file = fopen(other, "we");
    assert_non_null(file);
    (void)fprintf(file, "[default]\naws_access_key_id=%s\naws_secret_access_key=s\n", key);
    (void)fclose(file);
    (void)chmod(other, mode);
    assert_int_equal(rename(other, path), 0);
}

/* A file that changes: before the server refuses, and because it refuses. */
static void credentials_of_a_file_are_renewed(void **state)
{
    char path[] = "/tmp/quire_object_XXXXXX";
    object_fake *fake = object_fake_start(NULL, NULL);
    object_tier t = {0};
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_file(path, "FIRST", 0644);
    t.config.credentials_file = path;
    assert_int_equal(object_tier_try(&t, object_fake_port(fake)), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "chmod 600"));
    write_file(path, "FIRST", 0600);
    object_fake_set_key(fake, "FIRST");
    object_fake_set(fake, FAKE_KEY_DENIED);
    object_tier_open(&t, object_fake_port(fake));
    object_do(&t, QUIRE_TIER_STORE, 0, 20);
    object_expect_only(&t, OBJECT_BIT(DONE));
    static const struct {
        const char *key;
        fake_mode mode;
    } steps[] = {{"SECOND", FAKE_KEY_DENIED}, {"THIRD", FAKE_KEY_EXPIRED}};
    for (int i = 0; i < 2; i++) {
        object_fake_set(fake, steps[i].mode);
        object_fake_set_key(fake, steps[i].key); /* the server knows first */
        object_do(&t, QUIRE_TIER_LOAD, 0, 20);
        object_expect_only(&t, OBJECT_BIT(FAILED));
        write_file(path, steps[i].key, 0600);
        object_do(&t, QUIRE_TIER_LOAD, 0, 20);
        object_expect_only(&t, OBJECT_BIT(DONE));
        object_do(&t, QUIRE_TIER_FIND, 0, 20);
        object_expect_only(&t, OBJECT_BIT(DONE));
    }
    assert_int_equal(object_stats(&t).renewed, 2);
    assert_null(strstr(t.log, "THIRD"));
    object_tier_close(&t);
    object_fake_stop(fake);
    (void)unlink(path);
}

static void set_uri_credentials(object_fake *fake, const char *key, int lives_s)
{
    char json[512];
    char when[32];
    time_t end = time(NULL) + lives_s;
    struct tm t;
    (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &t));
    (void)snprintf(json, sizeof json,
                   "{\"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"s\", \"Token\": \"tok-%s\", "
                   "\"Expiration\": \"%s\"}",
                   key, key, when);
    object_fake_set_credentials(fake, json);
}

static void credentials_of_a_uri_are_renewed(void **state)
{
    object_fake *fake = object_fake_start(NULL, NULL);
    object_tier t = {0};
    char uri[64];
    char last[4096];
    (void)state;
    (void)snprintf(uri, sizeof uri, "http://127.0.0.1:%d/credentials", object_fake_port(fake));
    (void)setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret", 1);
    t.config.credentials_uri = uri;
    t.config.max_attempts = 16;
    t.config.retry_ns = 100000000;
    object_fake_set(fake, FAKE_KEY_DENIED);
    object_fake_set_key(fake, "ONE");
    object_tier_open(&t, object_fake_port(fake));
    object_fill(&t, QUIRE_TIER_STORE, 0, 20);
    assert_int_equal(quire_tier_submit(t.tier, &t.job), QUIRE_OK); /* it waits for credentials */
    object_sleep_ms(100);
    set_uri_credentials(fake, "ONE", 3600);
    object_wait(&t);
    object_expect_only(&t, OBJECT_BIT(DONE));
    object_fake_last(fake, last);
    assert_non_null(strstr(last, "x-amz-security-token: tok-ONE"));
    assert_non_null(strstr(last, "x-amz-date;x-amz-security-token,"));

    set_uri_credentials(fake, "TWO", 3600); /* refused before the time */
    object_fake_set_key(fake, "TWO");
    object_do(&t, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(&t, OBJECT_BIT(DONE));

    set_uri_credentials(fake, "NEARLY", 60); /* asked again before they expire */
    object_fake_set_key(fake, "NEARLY");
    object_do(&t, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(&t, OBJECT_BIT(DONE));
    set_uri_credentials(fake, "FOUR", 3600);
    for (int i = 0; i < 1000 && object_stats(&t).renewed < 4; i++)
        object_sleep_ms(10);
    assert_int_equal(object_stats(&t).renewed, 4);
    object_fake_set_credentials(fake, "{\"Code\": \"nonsense\"}");
    object_tier_close(&t);
    object_fake_stop(fake);
    (void)unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
}

/* The environment has another one. */
static void token_of_a_file(void **state)
{
    char path[] = "/tmp/quire_object_XXXXXX";
    object_fake *fake = object_fake_start(NULL, NULL);
    object_tier t = {0};
    char uri[64];
    (void)state;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "secret\n", 7), 7);
    (void)close(fd);
    (void)snprintf(uri, sizeof uri, "http://127.0.0.1:%d/credentials", object_fake_port(fake));
    (void)setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "wrong", 1);
    t.config.credentials_uri = uri;
    t.config.credentials_token_file = path;
    set_uri_credentials(fake, "KEY", 3600);
    object_tier_open(&t, object_fake_port(fake));
    object_do(&t, QUIRE_TIER_STORE, 0, 5);
    object_expect_only(&t, OBJECT_BIT(DONE));
    object_tier_close(&t);
    object_fake_stop(fake);
    (void)unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    (void)unlink(path);
}

static void environment_is_read(void **state)
{
    object_fake *fake = object_fake_start(NULL, NULL);
    quire_tier_object_config c = QUIRE_TIER_OBJECT_CONFIG_INIT;
    object_tier t = {0};
    quire_tier_object *object = NULL;
    (void)state;
    object_tier_open(&t, object_fake_port(fake)); /* its config, without keys */
    c = t.config;
    object_tier_close(&t);
    c.access_key = c.secret_key = NULL;
    (void)setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    assert_int_equal(quire_tier_object_create(&c, 0, NULL, &object), QUIRE_OK);
    quire_tier_object_ops()->close(object);
    (void)setenv("AWS_ACCESS_KEY_ID", "two words", 1);
    assert_int_equal(quire_tier_object_create(&c, 0, NULL, &object), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "the environment: invalid access key"));
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
    object_fake_stop(fake);
}

/* ---- a server that is well --------------------------------------------------------- */

static void all_operations(void **state)
{
    object_fake *fake = object_fake_start(NULL, NULL);
    object_tier t = {0};
    (void)state;
    t.config.wait_ns = UINT64_C(20000000000);
    t.config.prefix = "a/b_c.d";
    t.config.event_keys = 100;
    t.config.trust_network = 1;
    object_tier_open(&t, object_fake_port(fake));
    assert_string_equal(quire_tier_medium(t.tier), "OBJ");
    assert_int_equal(quire_tier_reset(t.tier), QUIRE_E_IDENTITY);
    object_all_operations(&t);
    assert_int_equal(object_fake_num_objects(fake), 20);
    unsigned char other[QUIRE_FINGERPRINT_BYTES] = {9};
    assert_int_equal(quire_tier_set_identity(t.tier, other), QUIRE_OK);
    object_do(&t, QUIRE_TIER_LOAD, 0, 20); /* another model's blocks are not found */
    object_expect_only(&t, OBJECT_BIT(MISSING));
    object_do(&t, QUIRE_TIER_STORE, 0, 20);
    object_expect_only(&t, OBJECT_BIT(DONE));
    assert_int_equal(object_fake_num_objects(fake), 40);
    quire_tier_object_stats stats = object_stats(&t);
    assert_true(stats.connected > 0 && stats.connected <= stats.requests);
    assert_true(stats.bytes_in > 20 * 10000 && stats.bytes_out > 40 * 10000);
    assert_int_equal(stats.refused, 0);
    object_tier_close(&t);
    object_fake_stop(fake);
}

/* A batch of FINDs has as many requests in flight as there are connections, and stores leave some
 * of them to loads. */
static void requests_run_in_parallel(void **state)
{
    object_fake *fake = object_fake_start(NULL, NULL);
    object_tier t = {.bytes = 100, .deadline_ms = 60000};
    (void)state;
    t.config.connections = 48;
    object_tier_open(&t, object_fake_port(fake));
    object_fake_set_delay(fake, 100); /* all begin before the first has ended */
    object_do(&t, QUIRE_TIER_STORE, 0, OBJECT_MAX_IOS);
    object_expect_only(&t, OBJECT_BIT(DONE));
    assert_int_equal(object_fake_most_clients(fake), 36);
    object_do(&t, QUIRE_TIER_FIND, 0, OBJECT_MAX_IOS);
    object_expect_only(&t, OBJECT_BIT(DONE));
    assert_int_equal(object_fake_most_clients(fake), 48);
    object_tier_close(&t);
    object_fake_stop(fake);
}

static void far_clock_is_corrected(void **state)
{
    object_fake *fake = object_fake_start(NULL, NULL);
    object_tier t = {0};
    (void)state;
    object_fake_set(fake, FAKE_CLOCK);
    object_tier_open(&t, object_fake_port(fake));
    object_do(&t, QUIRE_TIER_STORE, 0, 20);
    object_expect_only(&t, OBJECT_BIT(DONE));
    assert_non_null(strstr(t.log, "the clock of the server differs"));
    object_tier_close(&t);
    object_fake_stop(fake);
}

static void open_waits_for_the_bucket(void **state)
{
    static const struct {
        fake_mode mode;
        const char *says;
    } cases[] = {{FAKE_DENIED, "access denied; the user needs s3:ListBucket"},
                 {FAKE_NO_BUCKET, "404"},
                 {FAKE_MOVED, "the bucket is in region eu-central-1"},
                 {FAKE_SILENT, "object 127.0.0.1"}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        object_fake *fake = object_fake_start(NULL, NULL);
        object_tier t = {0};
        object_fake_set(fake, cases[i].mode);
        t.config.wait_ns = 300000000;
        assert_int_equal(object_tier_try(&t, object_fake_port(fake)), QUIRE_E_SYSTEM);
        if (strstr(quire_refusal(), cases[i].says) == NULL)
            fail_msg("\"%s\", not \"%s\"", quire_refusal(), cases[i].says);
        object_fake_stop(fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_signatures),
        cmocka_unit_test(hashes_and_times),
        cmocka_unit_test(names_of_objects),
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(json_is_read),
        cmocka_unit_test(damaged_credentials),
        cmocka_unit_test(credentials_of_a_file_are_renewed),
        cmocka_unit_test(credentials_of_a_uri_are_renewed),
        cmocka_unit_test(token_of_a_file),
        cmocka_unit_test(environment_is_read),
        cmocka_unit_test(all_operations),
        cmocka_unit_test(requests_run_in_parallel),
        cmocka_unit_test(far_clock_is_corrected),
        cmocka_unit_test(open_waits_for_the_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
