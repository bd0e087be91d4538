#include <quire/http.h>

#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "http/server.h"

#include <string.h>

enum {
    DEFAULT_CONNECTIONS = 64,
    DEFAULT_TIMEOUT_S = 5,
    DEFAULT_STREAMS = 16,
    DEFAULT_STUCK_S = 30,
    MAX_CONNECTIONS = 4096,
    MAX_TIMEOUT_S = 3600,
    MAX_STREAMS = 256
};

/* ---- the config ------------------------------------------------------------- */

static int read_config(quire_http_config *config, const quire_http_config *callers)
{
    int status = qr_config_read(config, sizeof *config, callers);
    if (status == QUIRE_E_ARGUMENT)
        return qr_fail(status, "config is NULL");
    if (status == QUIRE_E_CONFIG)
        return qr_fail(status,
                       "invalid size %zu of the config, or a field that this library does "
                       "not know: start from QUIRE_HTTP_CONFIG_INIT",
                       callers->size);
    if (config->address == NULL)
        config->address = "127.0.0.1";
    return status;
}

static int read_limit(const char *name, uint32_t value, uint32_t standard, uint32_t most,
                      uint32_t *limit)
{
    *limit = value == 0 ? standard : value;
    if (*limit <= most)
        return QUIRE_OK;
    return qr_fail(QUIRE_E_CONFIG, "invalid %s %u (expected at most %u)", name, value, most);
}

static int read_label(const char *name, const char *text, qr_http_label *label)
{
    if (text == NULL)
        return QUIRE_OK;
    size_t len = strlen(text);
    if (len >= sizeof label->text)
        return qr_fail(QUIRE_E_CONFIG, "%s has %zu bytes (expected at most %zu)", name, len,
                       sizeof label->text - 1);
    memcpy(label->text, text, len);
    label->is_known = true;
    return QUIRE_OK;
}

static int read_address(const quire_http_config *config, qr_http_access *access)
{
    const char *text = config->address;
    if (!qr_http_address_read(&access->address, text, strlen(text)))
        return qr_fail(
            QUIRE_E_CONFIG,
            "invalid address %.64s (expected a numeric address such as 127.0.0.1 or ::1)", text);
    if (config->port > UINT16_MAX)
        return qr_fail(QUIRE_E_CONFIG, "invalid port %u (expected 0..65535)", config->port);
    if (config->token == NULL && !qr_http_address_is_loopback(&access->address))
        return qr_fail(
            QUIRE_E_UNSAFE,
            "address %s can be reached from other machines: set a token, or listen on 127.0.0.1",
            text);
    if (config->token != NULL && !qr_http_access_set_token(access, config->token))
        return qr_fail(QUIRE_E_CONFIG,
                       "invalid token (expected %d to %d ASCII characters without blanks)",
                       QR_HTTP_MIN_TOKEN, QR_HTTP_MAX_TOKEN);
    return QUIRE_OK;
}

static int read_hosts(const quire_http_config *config, qr_http_access *access)
{
    uint32_t bad;
    if (config->num_hosts > QR_HTTP_MAX_HOSTS)
        return qr_fail(QUIRE_E_CONFIG, "invalid num_hosts %u (expected at most %d)",
                       config->num_hosts, QR_HTTP_MAX_HOSTS);
    if (config->num_hosts > 0 && config->hosts == NULL)
        return qr_fail(QUIRE_E_ARGUMENT, "hosts is NULL, but num_hosts is not 0");
    int status = qr_http_access_set_hosts(access, config->hosts, config->num_hosts, &bad);
    if (status == QUIRE_E_CONFIG)
        return qr_fail(status, "invalid host %.64s (expected a name without scheme and port)",
                       config->hosts[bad] != NULL ? config->hosts[bad] : "NULL");
    return status == QUIRE_OK ? status : qr_fail(status, "out of memory");
}

static int read_site(const quire_http_config *config, qr_http_site *site)
{
    uint32_t stuck_s;
    int status = read_limit("stuck_s", config->stuck_s, DEFAULT_STUCK_S, UINT32_MAX, &stuck_s);
    site->monitor = config->monitor;
    site->info = *quire_monitor_get_info(config->monitor);
    site->started = qr_wall_seconds();
    site->health.stuck_ns = (uint64_t)stuck_s * 1000000000;
    site->health.fine_ns = qr_now_ns(NULL);
    if (status == QUIRE_OK)
        status = read_label("title", config->title, &site->title);
    if (status == QUIRE_OK)
        status = read_label("model_name", config->model_name, &site->model_name);
    if (status == QUIRE_OK)
        status = read_label("engine", config->engine, &site->engine);
    if (status == QUIRE_OK)
        status = read_label("gpu", config->gpu, &site->gpu);
    if (status == QUIRE_OK)
        status = read_address(config, &site->access);
    if (status == QUIRE_OK)
        status = read_hosts(config, &site->access);
    if (status == QUIRE_OK && qr_http_page_init(site) != QUIRE_OK)
        status = qr_fail(QUIRE_E_NOMEM, "out of memory");
    return status;
}

/* ---- making it -------------------------------------------------------------- */

static int make_parts(const quire_http_config *config, quire_http *http)
{
    uint32_t timeout_s;
    uint32_t max_streams;
    int status = read_limit("max_connections", config->max_connections, DEFAULT_CONNECTIONS,
                            MAX_CONNECTIONS, &http->max_connections);
    if (status == QUIRE_OK)
        status = read_limit("timeout_s", config->timeout_s, DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S,
                            &timeout_s);
    if (status == QUIRE_OK)
        status = read_limit("max_streams", config->max_streams, DEFAULT_STREAMS, MAX_STREAMS,
                            &max_streams);
    if (status == QUIRE_OK)
        status = read_site(config, &http->site);
    if (status != QUIRE_OK)
        return status;
    uint32_t most = http->max_connections - http->max_connections / 4;
    max_streams = max_streams < most ? max_streams : most; /* others have to be answered too */
    http->timeout_ns = (uint64_t)timeout_s * 1000000000;
    status = qr_http_lines_init(&http->lines, http->max_connections);
    if (status == QUIRE_OK)
        status = qr_http_hub_init(&http->hub, &http->site, max_streams, &qr_http_server_hooks);
    return status == QUIRE_OK ? status : qr_fail(status, "%s", quire_strerror(status));
}

int quire_http_create(const quire_http_config *callers, quire_http **made)
{
    qr_refuse_clear();
    quire_http_config config = {0};
    if (made == NULL)
        return qr_fail(QUIRE_E_ARGUMENT, "http is NULL");
    int status = read_config(&config, callers);
    if (status != QUIRE_OK)
        return status;
    if (config.monitor == NULL)
        return qr_fail(
            QUIRE_E_ARGUMENT,
            "monitor is NULL; set quire_sched_config.monitor, then pass quire_sched_get_monitor");
    quire_http *http = qr_alloc(1, sizeof *http);
    if (http == NULL)
        return qr_fail(QUIRE_E_NOMEM, "out of memory");
    qr_fork_guard_init(&http->guard);
    http->socket = -1;
    http->stop_fd = -1;
    status = make_parts(&config, http);
    if (status == QUIRE_OK)
        status = qr_http_server_start(http, config.address, config.port);
    if (status == QUIRE_OK)
        *made = http;
    else
        quire_http_destroy(http);
    return status;
}

void quire_http_destroy(quire_http *http)
{
    if (http == NULL)
        return;
    if (qr_fork_guard_is_child(&http->guard)) {
        /* The threads did not stop at a fork: what they were changing cannot be freed. */
        qr_http_server_leave(http);
    } else {
        qr_http_server_stop(http);
        qr_http_hub_free(&http->hub);
        qr_http_lines_free(&http->lines);
    }
    qr_http_access_free(&http->site.access);
    qr_free(http);
}

uint32_t quire_http_port(const quire_http *http)
{
    return http == NULL ? 0 : http->port;
}
