/* tier/object/answer.c - what a reply means for its io.
 *
 *      200, 204            well; of a load the bytes are compared, of a FIND the length is told
 *      404                 not found; but NoSuchBucket: failed
 *      408, 409, 429, 5xx  again, after a pause; Retry-After is respected
 *      401, 403            again if the credentials or the clock can be corrected, else failed
 *      507, QuotaExceeded  a store has no room
 *      301, 307, others    failed: a redirect is never followed, it would be signed for another
 *                          host
 *      no reply            again, on another connection; but a certificate that is not trusted:
 *                          failed
 */
#include "tier/object/object.h"

#include "base/hooks.h"

#include <stdio.h>
#include <string.h>

enum { CODE = 64, FAR_CLOCK_S = 240 };
static const char NO_LENGTH[] = "a reply without a length";

/* ---- words for the log ---------------------------------------------------------- */

/* The server's name for the error; "" without one. */
static void read_code(const qr_object_reply *reply, char code[CODE])
{
    const char *at = strstr(reply->said, "<Code>"); /* there is a 0 behind it */
    uint32_t n = 0;
    if (at != NULL)
        for (at += 6; n < CODE - 1 && ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z'));)
            code[n++] = *at++;
    code[n] = 0;
}

static const char *advise(const qr_lane *lane, const char *code)
{
    if (strcmp(code, "NoSuchBucket") == 0)
        return ": the bucket does not exist";
    if (lane->reply.code == 301 || lane->reply.code == 307)
        return ": set endpoint and region to the bucket's";
    if (lane->reply.code == 403 && (code[0] == 0 || strcmp(code, "AccessDenied") == 0))
        return ": access denied; the user needs s3:ListBucket, s3:GetObject, s3:PutObject and "
               "s3:DeleteObject";
    return "";
}

static void fail_and_tell(qr_lane *lane)
{
    quire_tier_object *object = lane->object;
    const qr_object_reply *reply = &lane->reply;
    char code[CODE];
    read_code(reply, code);
    qr_net_note(&object->target, "%ld%s%s%s%s%s", reply->code, code[0] == 0 ? "" : " ", code,
                reply->region[0] == 0 ? "" : ", the bucket is in region ", reply->region,
                advise(lane, code));
    for (char *c = object->target.why; *c != 0; c++) /* they are the server's own words */
        if (*c < ' ' || *c > '~')
            *c = '?';
    qr_object_tell(object, "%s", object->target.why);
    qr_lane_end(lane, QUIRE_TIER_FAILED);
}

static void surprise(qr_lane *lane, const char *what)
{
    quire_tier_object *object = lane->object;
    qr_net_count(&object->net, QR_NET_SURPRISES, 1);
    qr_net_note(&object->target, "protocol error: %s", what);
    lane->is_fresh = true;
    qr_lane_retry(lane, 0);
}

/* ---- replies -------------------------------------------------------------------- */

static void take_load(qr_lane *lane)
{
    quire_tier_io *io = qr_lane_io(lane);
    if (lane->reply.length < 0) {
        surprise(lane, NO_LENGTH);
    } else if (lane->at != (uint64_t)QR_NET_HEADER + io->bytes ||
               lane->block.crc != lane->expected_crc) {
        qr_lane_end_wrong(lane);
    } else {
        io->crc = lane->block.crc;
        qr_lane_end(lane, QUIRE_TIER_DONE);
    }
}

/* Whoever loads a block of that length checks it: it is not sent again. */
static void take_check(qr_lane *lane)
{
    if (lane->reply.length < 0) {
        surprise(lane, NO_LENGTH);
    } else if (lane->reply.length == (int64_t)QR_NET_HEADER + qr_lane_io(lane)->bytes) {
        qr_net_count(&lane->object->net, QR_NET_PRESENT, 1);
        qr_lane_end(lane, QUIRE_TIER_DONE);
    } else {
        qr_lane_begin(lane, QR_OBJECT_STORE);
    }
}

static void take_find(qr_lane *lane)
{
    int64_t bytes = lane->reply.length - QR_NET_HEADER;
    if (lane->reply.length < 0) {
        surprise(lane, NO_LENGTH);
        return;
    }
    bool is_block = bytes > 0 && bytes <= (int64_t)lane->object->net.max_block_bytes;
    if (is_block)
        qr_lane_io(lane)->bytes = (uint32_t)bytes;
    qr_lane_end(lane, is_block ? QUIRE_TIER_DONE : QUIRE_TIER_MISSING);
}

static void take_well(qr_lane *lane)
{
    lane->object->is_reachable = true;
    switch (lane->kind) {
    case QR_OBJECT_LOAD:
        take_load(lane);
        return;
    case QR_OBJECT_CHECK:
        take_check(lane);
        return;
    case QR_OBJECT_FIND:
        take_find(lane);
        return;
    case QR_OBJECT_STORE:
        if (lane->at != (uint64_t)QR_NET_HEADER + qr_lane_io(lane)->bytes)
            surprise(lane, "a reply before the whole object was sent");
        else
            qr_lane_end(lane, QUIRE_TIER_DONE);
        return;
    default:
        qr_lane_end(lane, QUIRE_TIER_DONE);
    }
}

static void take_missing(qr_lane *lane)
{
    char code[CODE];
    read_code(&lane->reply, code);
    bool is_bucket = lane->kind == QR_OBJECT_STORE || lane->kind == QR_OBJECT_PROBE ||
                     strcmp(code, "NoSuchBucket") == 0;
    if (is_bucket)
        fail_and_tell(lane);
    else if (lane->kind == QR_OBJECT_CHECK)
        qr_lane_begin(lane, QR_OBJECT_STORE);
    else
        qr_lane_end(lane, QUIRE_TIER_MISSING);
}

/* HEAD has no body: what a refusal means must be found out. */
static void take_denied(qr_lane *lane)
{
    quire_tier_object *object = lane->object;
    char code[CODE];
    int64_t ahead_s = lane->reply.date_s - qr_object_time(object);
    read_code(&lane->reply, code);
    qr_net_count(&object->net, QR_NET_DENIED, 1);
    if (lane->kind == QR_OBJECT_STORE && strcmp(code, "QuotaExceeded") == 0) {
        qr_lane_end(lane, QUIRE_TIER_NO_ROOM);
    } else if (lane->reply.date_s > 0 && (ahead_s > FAR_CLOCK_S || ahead_s < -FAR_CLOCK_S)) {
        object->clock_s += ahead_s;
        qr_object_tell(object,
                       "the clock of the server differs by %lld s: requests are signed by it",
                       (long long)object->clock_s);
        qr_lane_retry(lane, 0);
    } else if (lane->num_attempts < object->max_attempts &&
               (lane->clock_s != object->clock_s || qr_renew_after(object, lane->generation))) {
        qr_lane_retry(lane, 0);
    } else {
        fail_and_tell(lane);
    }
}

static void take_bad_request(qr_lane *lane)
{
    static const char *const stale[] = {"ExpiredToken", "TokenRefreshRequired", "InvalidToken"};
    char code[CODE];
    read_code(&lane->reply, code);
    for (int i = 0; i < 3; i++)
        if (strcmp(code, stale[i]) == 0) {
            take_denied(lane);
            return;
        }
    if (strcmp(code, "RequestTimeout") == 0)
        qr_lane_retry(lane, 0);
    else if (code[0] == 0 && lane->kind >= QR_OBJECT_FIND) /* HEAD: the reason is not told */
        take_denied(lane);
    else
        fail_and_tell(lane);
}

static void take_busy(qr_lane *lane)
{
    quire_tier_object *object = lane->object;
    char code[CODE];
    bool is_slowed = lane->reply.code == 429 || lane->reply.code == 503;
    read_code(&lane->reply, code);
    qr_net_count(&object->net, QR_NET_SLOWED, is_slowed);
    qr_net_note(&object->target, "%ld %s", lane->reply.code, code);
    qr_lane_retry(lane, lane->reply.retry_after_s * QR_NET_SECOND);
}

static void take_reply(qr_lane *lane)
{
    bool is_remove = lane->kind == QR_OBJECT_REMOVE;
    switch (lane->reply.code) {
    case 200:
        take_well(lane);
        return;
    case 204:
        if (is_remove)
            take_well(lane);
        else
            surprise(lane, "204 without a DELETE");
        return;
    case 404:
        take_missing(lane);
        return;
    case 401:
    case 403:
        take_denied(lane);
        return;
    case 400:
        take_bad_request(lane);
        return;
    case 507:
        if (lane->kind == QR_OBJECT_STORE)
            qr_lane_end(lane, QUIRE_TIER_NO_ROOM);
        else
            fail_and_tell(lane);
        return;
    case 408:
    case 409:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        take_busy(lane);
        return;
    default:
        if (lane->reply.code < 300)
            surprise(lane, "an unexpected status");
        else
            fail_and_tell(lane);
    }
}

/* ---- without a reply -------------------------------------------------------------- */

void qr_answer_lost(qr_lane *lane, const char *why)
{
    quire_tier_object *object = lane->object;
    qr_net_count(&object->net, QR_NET_LOST, 1);
    qr_net_note(&object->target, "%s", why);
    lane->is_fresh = true;
    qr_lane_retry(lane, 0);
}

static void take_failure(qr_lane *lane, CURLcode result)
{
    quire_tier_object *object = lane->object;
    const char *why = lane->why[0] != 0 ? lane->why : curl_easy_strerror(result);
    switch (result) {
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9 */
    case CURLE_HTTP2:
    case CURLE_WRITE_ERROR:
    case CURLE_FILESIZE_EXCEEDED:
        surprise(lane, why);
        return;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
        qr_net_note(&object->target, "TLS: %s", why);
        qr_object_tell(object, "%s", object->target.why);
        qr_lane_end(lane, QUIRE_TIER_FAILED);
        return;
    default:
        qr_answer_lost(lane, why);
    }
}

void qr_answer_take(qr_lane *lane, CURLcode result)
{
    quire_tier_object *object = lane->object;
    curl_off_t length = -1;
    long num_connects = 0;
    (void)curl_easy_getinfo(lane->easy, CURLINFO_RESPONSE_CODE, &lane->reply.code);
    (void)curl_easy_getinfo(lane->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    (void)curl_easy_getinfo(lane->easy, CURLINFO_NUM_CONNECTS, &num_connects);
    lane->reply.length = length;
    if (result == CURLE_OK)
        qr_net_count(&object->net, QR_NET_CONNECTED, (uint64_t)num_connects);
    if (lane->is_wrong && lane->batch != NULL)
        qr_lane_end_wrong(lane);
    else if (lane->reply.is_bad)
        surprise(lane, "a reply without a length, or too long");
    else if (result != CURLE_OK)
        take_failure(lane, result);
    else
        take_reply(lane);
}
