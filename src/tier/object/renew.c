/* tier/object/renew.c - credentials that change while the tier works. */
#include "tier/object/object.h"

#include "base/hooks.h"

#include <stdio.h>
#include <string.h>

enum { CHECK_S = 1, AGAIN_S = 1, REQUEST_MS = 5000 };

int64_t qr_object_time(const quire_tier_object *object)
{
    return (int64_t)qr_wall_seconds() + object->clock_s;
}

static void use_new(quire_tier_object *object)
{
    qr_request_use_token(object);
    qr_net_count(&object->net, QR_NET_RENEWED, 1);
}

/* ---- the request ----------------------------------------------------------------- */

static size_t take_bytes(char *bytes, size_t size, size_t count, void *user)
{
    quire_tier_object *object = user;
    size_t n = size * count;
    if (n > QR_CREDENTIALS_BODY - object->renewal.bytes)
        return 0;
    memcpy(object->credentials.body + object->renewal.bytes, bytes, n);
    object->renewal.bytes += n;
    return n;
}

bool qr_renew_open(quire_tier_object *object)
{
    if (object->credentials.source != QR_CREDENTIALS_URI_SOURCE) {
        qr_request_use_token(object);
        return true;
    }
    CURL *easy = qr_request_make(object);
    object->renewal.easy = easy;
    return easy != NULL &&
           curl_easy_setopt(easy, CURLOPT_URL, object->credentials.uri) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)REQUEST_MS) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, object) == CURLE_OK;
}

static void stop(quire_tier_object *object)
{
    if (object->renewal.is_running)
        (void)curl_multi_remove_handle(object->multi, object->renewal.easy);
    object->renewal.is_running = false;
}

void qr_renew_close(quire_tier_object *object)
{
    if (object->renewal.easy == NULL)
        return;
    stop(object);
    curl_easy_cleanup(object->renewal.easy);
}

static void ask(quire_tier_object *object)
{
    qr_renewal *r = &object->renewal;
    const char *text = qr_credentials_authorization(&object->credentials);
    r->bytes = 0;
    r->is_wanted = false;
    r->after_ns = object->net.now_ns + AGAIN_S * QR_NET_SECOND;
    r->line = (struct curl_slist){.data = r->text};
    (void)snprintf(r->text, sizeof r->text, "authorization: %s", text == NULL ? "" : text);
    r->is_running =
        curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, text == NULL ? NULL : &r->line) == CURLE_OK &&
        curl_multi_add_handle(object->multi, r->easy) == CURLM_OK;
}

void qr_renew_take(quire_tier_object *object, CURLcode result)
{
    long code = 0;
    uint64_t generation = object->credentials.generation;
    (void)curl_easy_getinfo(object->renewal.easy, CURLINFO_RESPONSE_CODE, &code);
    stop(object);
    if (result == CURLE_OK && code == 200 &&
        qr_credentials_take(&object->credentials, object->renewal.bytes)) {
        if (object->credentials.generation != generation)
            use_new(object);
        return;
    }
    qr_net_note(&object->target, "credentials_uri: %s",
                result != CURLE_OK ? curl_easy_strerror(result)
                : code != 200      ? "access denied, or not found"
                                   : "the reply is not a set of credentials");
    qr_object_tell(object, "%s", object->target.why);
}

/* ---- when --------------------------------------------------------------------------- */

static bool is_due(const quire_tier_object *object)
{
    return object->renewal.is_wanted ||
           qr_credentials_is_due(&object->credentials, qr_object_time(object));
}

void qr_renew_tend(quire_tier_object *object)
{
    uint64_t now = object->net.now_ns;
    if (object->net.num_jobs > 0 && now >= object->check_file_ns) {
        object->check_file_ns = now + CHECK_S * QR_NET_SECOND;
        if (qr_credentials_reload(&object->credentials, false))
            use_new(object);
    }
    if (!object->renewal.is_running && now >= object->renewal.after_ns && is_due(object))
        ask(object);
}

bool qr_renew_after(quire_tier_object *object, uint64_t generation)
{
    if (generation != object->credentials.generation)
        return true;
    if (qr_credentials_reload(&object->credentials, true)) {
        use_new(object);
        return true;
    }
    object->renewal.is_wanted = object->credentials.source == QR_CREDENTIALS_URI_SOURCE;
    return object->renewal.is_wanted;
}

uint64_t qr_renew_next_time(const quire_tier_object *object)
{
    const qr_credentials *c = &object->credentials;
    if (c->source != QR_CREDENTIALS_URI_SOURCE || object->renewal.is_running)
        return UINT64_MAX;
    if (is_due(object))
        return object->renewal.after_ns;
    return c->now.expires_s == 0 ? UINT64_MAX : object->net.now_ns + 60 * QR_NET_SECOND;
}
