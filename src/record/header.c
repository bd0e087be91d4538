#include "record/header.h"

#include "base/hooks.h"
#include "base/refuse.h"

#include <quire/version.h>

#include <string.h>

static void put_text(qr_record_text *out, const char *name, const char *value)
{
    qr_record_text_put(out, ", ", 2);
    qr_record_text_put_quoted(out, name);
    qr_record_text_put(out, ": ", 2);
    qr_record_text_put_quoted(out, value);
}

/* It becomes a part of a line, and is not parsed: it must look like an object on one line. */
static bool is_object(const char *config)
{
    size_t len = strlen(config);
    return len >= 2 && config[0] == '{' && config[len - 1] == '}' && strchr(config, '\n') == NULL;
}

int qr_header_init(qr_header *header, const quire_recorder_config *config)
{
    const char *object = config->config == NULL ? "{}" : config->config;
    qr_record_text *out = &header->fields;
    if (!is_object(object))
        return qr_refuse("config is not a JSON object on one line");
    header->start_ns = qr_now_ns(&config->hooks);
    header->start_s = qr_wall_seconds();
    if (qr_random_bytes(&config->hooks, header->recording, sizeof header->recording) != QUIRE_OK)
        return QUIRE_E_RANDOM;
    put_text(out, "engine", config->engine == NULL ? "quire" : config->engine);
    put_text(out, "engine_version",
             config->engine_version == NULL ? QUIRE_VERSION_STRING : config->engine_version);
    put_text(out, "quire_version", QUIRE_VERSION_STRING);
    put_text(out, "scheduler", config->scheduler == NULL ? "quire_sched" : config->scheduler);
    put_text(out, "model", config->model == NULL ? "" : config->model);
    if (config->inexact != NULL)
        put_text(out, "inexact", config->inexact);
    qr_record_text_put_string(out, ", \"config\": ");
    qr_record_text_put_string(out, object);
    qr_record_text_put(out, "}\n", 2);
    return out->has_failed ? QUIRE_E_NOMEM : QUIRE_OK;
}

void qr_header_free(qr_header *header)
{
    qr_record_text_free(&header->fields);
}

void qr_header_put(const qr_header *header, qr_record_text *out, uint32_t part, uint64_t t_ns)
{
    qr_record_text_put_string(
        out, "{\"type\": \"header\", \"format\": \"quire.recording.v1\", \"part\": ");
    qr_record_text_put_number(out, part);
    qr_record_text_put_string(out, ", \"recording\": \"");
    qr_record_text_put_hex(out, header->recording, sizeof header->recording);
    qr_record_text_put_string(out, "\", \"time\": ");
    qr_record_text_put_real(out, header->start_s);
    qr_record_text_put_string(out, ", \"t\": ");
    qr_record_text_put_seconds(out, part == 0 ? 0 : t_ns - header->start_ns);
    qr_record_text_put(out, header->fields.bytes, header->fields.len);
}

void qr_header_put_close(const qr_header *header, qr_record_text *out, uint64_t num_lines,
                         uint64_t num_lost, uint64_t t_ns)
{
    qr_record_text_put_string(out, "{\"type\": \"close\", \"t\": ");
    qr_record_text_put_seconds(out, t_ns - header->start_ns);
    qr_record_text_put_string(out, ", \"lines\": ");
    qr_record_text_put_number(out, num_lines);
    qr_record_text_put_string(out, ", \"lost\": ");
    qr_record_text_put_number(out, num_lost);
    qr_record_text_put(out, "}\n", 2);
}
