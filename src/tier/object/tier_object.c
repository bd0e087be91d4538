/* tier/object/tier_object.c - config, open, the functions that the runner calls; one turn. */
#include "tier/object/object.h"

#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "tier/core/tier.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    LANES = 32,
    MAX_LANES = 256,
    ATTEMPTS = 4,
    MAX_ATTEMPTS = 16,
    MAX_BLOCK = 512 * 1024 * 1024,
    PROBE_MS = 100,
    NS_PER_MS = 1000000
};
#define RETRY_NS      (QR_NET_SECOND / 20)
#define MAX_RETRY_NS  (10 * QR_NET_SECOND)
#define TELL_AGAIN_NS (10 * QR_NET_SECOND)

/* ---- a turn ------------------------------------------------------------------ */

void qr_object_tell(quire_tier_object *object, const char *format, ...)
{
    char text[256];
    va_list values;
    uint64_t now = object->net.now_ns;
    if (object->told_ns != 0 && now < object->told_ns + TELL_AGAIN_NS)
        return;
    object->told_ns = now;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    qr_log(&object->net.hooks, QUIRE_LOG_WARNING, "object %s: %s", object->place.host, text);
}

/* Only while the tier is opened, and only if open waits. */
static void probe(quire_tier_object *object)
{
    if (object->net.wait_ns == 0 || object->is_reachable || object->num_taken > 0 ||
        object->credentials.generation == 0 || object->net.now_ns < object->probe_ns)
        return;
    object->probe_ns = object->net.now_ns + (uint64_t)PROBE_MS * NS_PER_MS;
    (void)qr_lane_probe(object);
}

/* Everything that can be done without waiting. What ends frees lanes for what waits, so driving
 * comes first, and once more for what was begun: if that freed a lane, there is no reason to
 * wait. */
static void work(qr_net_client *net)
{
    quire_tier_object *object = (quire_tier_object *)net;
    qr_multi_drive(object);
    qr_net_expire(net);
    qr_renew_tend(object);
    qr_lane_tend(object);
    probe(object);
    qr_lane_fill(object);
    qr_multi_drive(object);
    net->has_more = net->has_more || qr_lane_can_fill(object);
    qr_count_set(&net->counts[QR_NET_CALLS], object->num_taken + object->num_wrong);
}

static uint64_t next_time(qr_net_client *net)
{
    const quire_tier_object *object = (quire_tier_object *)net;
    uint64_t when = qr_multi_next_time(object);
    qr_earlier(&when, qr_lane_next_time(object));
    qr_earlier(&when, qr_renew_next_time(object));
    return when;
}

static const qr_net_target *find_missing(const qr_net_client *net)
{
    const quire_tier_object *object = (const quire_tier_object *)net;
    return object->is_reachable ? NULL : &object->target;
}

static const qr_net_ops net_ops = {.name = "object",
                                   .work = work,
                                   .next_time = next_time,
                                   .leave = qr_lane_leave,
                                   .find_missing = find_missing};

/* ---- the config ---------------------------------------------------------------- */

static qr_net_options options_of(const quire_tier_object_config *c, const qr_place *place,
                                 uint32_t max_jobs)
{
    return (qr_net_options){.max_jobs = max_jobs,
                            .event_keys = c->event_keys,
                            .max_block_bytes = c->max_block_bytes,
                            .connect_ns = c->connect_ns,
                            .wait_ns = c->wait_ns,
                            .fingerprint = c->fingerprint,
                            .has_tls = place->is_tls,
                            .trusts_network = c->trust_network != 0,
                            .tls = {.ca_file = c->tls_ca_file,
                                    .cert_file = c->tls_cert_file,
                                    .key_file = c->tls_key_file,
                                    .trusts_any = c->tls_trust_any != 0}};
}

static int check_ranges(const quire_tier_object_config *c)
{
    const qr_field fields[] = {
        QR_FIELD(c, connections, 0, MAX_LANES),     QR_FIELD(c, max_block_bytes, 0, MAX_BLOCK),
        QR_FIELD(c, max_attempts, 0, MAX_ATTEMPTS), QR_FIELD(c, retry_ns, 0, MAX_RETRY_NS),
        QR_FIELD(c, connect_ns, 0, QR_NET_LONGEST), QR_FIELD(c, stall_ns, 0, QR_NET_LONGEST),
        QR_FIELD(c, wait_ns, 0, QR_NET_LONGEST),    QR_FIELD(c, tls_trust_any, 0, 1),
        QR_FIELD(c, trust_network, 0, 1),           QR_FIELD(c, sign_payload, 0, QUIRE_OFF),
        QR_FIELD(c, virtual_host, 0, QUIRE_OFF),
    };
    return qr_refuse_fields(fields, sizeof fields / sizeof fields[0]);
}

static int check_config(const void *config)
{
    const quire_tier_object_config *c = config;
    qr_place place;
    int status = check_ranges(c);
    if (status == QUIRE_OK)
        status = qr_place_init(&place, c);
    if (status != QUIRE_OK)
        return status;
    qr_net_options options = options_of(c, &place, 0);
    const char *wrong = qr_net_check(&options);
    if (!place.is_tls && wrong == NULL && c->tls_trust_any != 0)
        wrong = "tls_trust_any is 1, but endpoint is not https://";
    if (wrong != NULL)
        return qr_fail(QUIRE_E_CONFIG, "%s", wrong);
    return qr_net_check_trust(&options, &place.address, "endpoint",
                              c->endpoint == NULL ? "" : c->endpoint);
}

/* ---- making ---------------------------------------------------------------------- */

static void close_object(void *self)
{
    quire_tier_object *object = self;
    for (uint32_t i = 0; object->lanes != NULL && i < object->num_lanes; i++) {
        qr_lane *lane = &object->lanes[i];
        if (lane->state == QR_LANE_RUNNING)
            qr_request_stop(lane);
        if (lane->easy != NULL)
            curl_easy_cleanup(lane->easy);
    }
    qr_renew_close(object);
    qr_multi_close(object);
    qr_net_close(&object->net);
    qr_credentials_close(&object->credentials);
    qr_free(object->ca_file);
    qr_free(object->cert_file);
    qr_free(object->key_file);
    qr_free(object->lanes);
    qr_memory_wipe(object, sizeof *object);
    qr_free(object);
}

static bool copy_text(char **to, const char *text)
{
    *to = text == NULL ? NULL : qr_alloc_text(text);
    return text == NULL || *to != NULL;
}

static void set_limits(quire_tier_object *object, const quire_tier_object_config *c)
{
    object->num_lanes = (uint32_t)qr_or_default(c->connections, LANES);
    object->max_attempts = (uint32_t)qr_or_default(c->max_attempts, ATTEMPTS);
    object->retry_ns = qr_or_default(c->retry_ns, RETRY_NS);
    object->stall_ns = qr_or_default(c->stall_ns, 2 * QR_NET_SECOND);
    object->signs_payload =
        c->sign_payload == QUIRE_ON || (c->sign_payload == QUIRE_DEFAULT && !object->place.is_tls);
    object->trusts_any = c->tls_trust_any != 0;
}

static int open_lanes(quire_tier_object *object)
{
    object->lanes = qr_alloc(object->num_lanes, sizeof *object->lanes);
    for (uint32_t i = 0; object->lanes != NULL && i < object->num_lanes; i++) {
        qr_lane *lane = &object->lanes[i];
        lane->object = object;
        lane->easy = qr_request_make(object);
        if (lane->easy == NULL || !qr_request_prepare(lane))
            return QUIRE_E_NOMEM;
    }
    return object->lanes == NULL || !qr_renew_open(object) ? QUIRE_E_NOMEM : QUIRE_OK;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static bool has_curl;

static void start_curl(void)
{
    has_curl = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

static int init_object(void *self, const void *config, uint32_t max_jobs, const quire_hooks *hooks)
{
    quire_tier_object *object = self;
    const quire_tier_object_config *c = config;
    object->sockets_fd = -1;
    int status = qr_place_init(&object->place, c);
    if (status != QUIRE_OK)
        return status;
    qr_net_options options = options_of(c, &object->place, max_jobs);
    status = qr_net_open(&object->net, &net_ops, &options, hooks);
    if (status == QUIRE_OK)
        status = qr_credentials_open(&object->credentials, c);
    if (status != QUIRE_OK)
        return status;
    if (pthread_once(&curl_once, start_curl) != 0 || !has_curl)
        return qr_fail(QUIRE_E_SYSTEM, "libcurl cannot be initialised");
    object->target.address = object->place.address;
    memcpy(object->sigv4.region, object->place.region, sizeof object->sigv4.region);
    memcpy(object->sigv4.service, "s3", 3);
    set_limits(object, c);
    if (qr_random_bytes(&object->net.hooks, &object->random, sizeof object->random) != 0)
        return QUIRE_E_RANDOM;
    if (!copy_text(&object->ca_file, c->tls_ca_file) ||
        !copy_text(&object->cert_file, c->tls_cert_file) ||
        !copy_text(&object->key_file, c->tls_key_file))
        return QUIRE_E_NOMEM;
    status = qr_multi_open(object);
    return status == QUIRE_OK ? open_lanes(object) : status;
}

/* ---- what a runner calls ------------------------------------------------------------ */

/* Without jobs nothing on the tier's thread looks at the namespace; the next job brings it. Of
 * objects that are still to be deleted the whole path is known. */
static int set_identity(void *self, const unsigned char *fingerprint)
{
    quire_tier_object *object = self;
    qr_place_set_fingerprint(&object->place, fingerprint);
    (void)quire_slots_reset(object->net.known);
    return QUIRE_OK;
}

static const quire_tier_ops ops = {QR_NET_TIER_OPS("object"),    .close = close_object,
                                   .caps = qr_net_get_caps,      .prepare = qr_net_prepare_job,
                                   .set_identity = set_identity, .medium = "OBJ"};
static const qr_tier_kind kind = {.ops = &ops,
                                  .config_bytes = sizeof(quire_tier_object_config),
                                  .self_bytes = sizeof(quire_tier_object),
                                  .check = check_config,
                                  .init = init_object};

QR_TIER_CALLS(object)

QUIRE_API int quire_tier_object_get_stats(const quire_tier_object *object,
                                          quire_tier_object_stats *stats)
{
    quire_tier_object_stats own;
    if (object == NULL)
        return QUIRE_E_ARGUMENT;
#define QR_X(name, field) own.field = qr_count_get(&object->net.counts[QR_NET_##name]);
    QR_OBJECT_COUNTS(QR_X)
#undef QR_X
    return qr_struct_out(stats, &own, sizeof own);
}

QUIRE_API int quire_tier_object_is_built(void)
{
    return 1;
}
