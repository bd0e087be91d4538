#include "api/fields.h"

/* ---- configs: quire_refusal says which field it is -------------------------- */

#define AS_FIELD(field, least, most) {#field, (uint64_t)p->field, (least), (most)},
#define UNUSED(...)
#define CHECK_REAL(field, least, most)                                                             \
    if (!(p->field >= (least) && p->field <= (most)))                                              \
        return qr_refuse("invalid " #field " %g (expected %g..%g)", p->field, (double)(least),     \
                         (double)(most));
#define RETURN_CHECK(type)                                                                         \
    const qr_field fields[] = {QR_FIELDS_##type(AS_FIELD, UNUSED, UNUSED, UNUSED)};                \
    QR_FIELDS_##type(UNUSED, CHECK_REAL, UNUSED,                                                   \
                     UNUSED) return qr_refuse_fields(fields, sizeof fields / sizeof *fields)
#define DEFINE_CHECK(name, noun)                                                                   \
    int name(quire_##noun *p, const quire_##noun *callers)                                         \
    {                                                                                              \
        int err = qr_refuse_reading(p, sizeof *p, callers, "quire_" #noun);                        \
        if (err != QUIRE_OK)                                                                       \
            return err;                                                                            \
        RETURN_CHECK(quire_##noun);                                                                \
    }

DEFINE_CHECK(qr_check_pool_config, pool_config)
DEFINE_CHECK(qr_check_table_config, table_config)
DEFINE_CHECK(qr_check_hasher_config, hasher_config)
DEFINE_CHECK(qr_check_residency_config, residency_config)
static DEFINE_CHECK(check_cache_fields, cache_config) static DEFINE_CHECK(
    check_sched_fields, sched_config) static DEFINE_CHECK(check_monitor_config, monitor_config)

    int qr_check_metrics_format(const quire_metrics_format *p)
{
    RETURN_CHECK(quire_metrics_format);
}

static int check_group_fields(const quire_group_config *p)
{
    RETURN_CHECK(quire_group_config);
}

int qr_check_cache_config(quire_cache_config *p, const quire_cache_config *callers)
{
    int err = check_cache_fields(p, callers);
    if (err == QUIRE_OK && p->num_groups > 0 && p->groups == NULL)
        return qr_refuse("groups is NULL, but num_groups is %u", p->num_groups);
    for (uint32_t g = 0; err == QUIRE_OK && g < p->num_groups; g++)
        err = qr_refuse_in(check_group_fields(&p->groups[g]), "groups[%u]", g);
    return err;
}

static int check_partners(const quire_sched_config *p)
{
    quire_connector connector;
    quire_encoder_connector encoder;
    quire_grammar grammar;
    int err = QUIRE_OK;
    if (p->connector != NULL)
        err = qr_refuse_reading(&connector, sizeof connector, p->connector, "quire_connector");
    if (err == QUIRE_OK && p->encoder_connector != NULL)
        err = qr_refuse_reading(&encoder, sizeof encoder, p->encoder_connector,
                                "quire_encoder_connector");
    if (err == QUIRE_OK && p->grammar != NULL)
        err = qr_refuse_reading(&grammar, sizeof grammar, p->grammar, "quire_grammar");
    return err;
}

int qr_check_sched_config(quire_sched_config *p, const quire_sched_config *callers)
{
    quire_cache_config cache;
    quire_monitor_config monitor;
    int err = check_sched_fields(p, callers);
    if (err == QUIRE_OK)
        err = qr_refuse_in(qr_check_cache_config(&cache, p->cache), "cache");
    if (err == QUIRE_OK)
        err = check_partners(p);
    if (err == QUIRE_OK && p->monitor != NULL)
        err = qr_refuse_in(check_monitor_config(&monitor, p->monitor), "monitor");
    return err;
}

/* ---- parameters: nothing but the answer, in a few instructions -------------- */

/* 1: out of range. The fields of a struct are looked at without a branch between them. */
static unsigned is_outside(uint64_t value, uint64_t least, uint64_t most)
{
    return (unsigned)(value < least) | (unsigned)(value > most);
}

static unsigned is_real_outside(double value, double least, double most)
{
    return !(value >= least && value <= most);
}

#define OR_NUMBER(field, least, most) | is_outside((uint64_t)p->field, (least), (most))
#define OR_REAL(field, least, most)   | is_real_outside(p->field, (least), (most))
#define ARE_OK(type)                  (!(0 QR_FIELDS_##type(OR_NUMBER, OR_REAL, UNUSED, UNUSED)))

int qr_check_cache_full_params(const quire_cache_full_params *p)
{
    return ARE_OK(quire_cache_full_params) ? QUIRE_OK : QUIRE_E_RANGE;
}

bool qr_is_extra_key(const quire_extra_key *p)
{
    return ARE_OK(quire_extra_key);
}

int qr_check_cache_request(const quire_cache_request *p, const qr_field_limits *limits)
{
    return ARE_OK(quire_cache_request) ? QUIRE_OK : QUIRE_E_RANGE;
}

int qr_check_allocate_params(const quire_allocate_params *p, const qr_field_limits *limits)
{
    return ARE_OK(quire_allocate_params) ? QUIRE_OK : QUIRE_E_RANGE;
}

static bool feature_ok(const quire_mm_feature *p, const qr_field_limits *limits)
{
    return ARE_OK(quire_mm_feature);
}

int qr_check_request_params(const quire_request_params *p, const qr_field_limits *limits)
{
    if (!ARE_OK(quire_request_params))
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; p->mm_inputs != NULL && i < p->num_mm_inputs; i++)
        if (!feature_ok(&p->mm_inputs[i].feature, limits))
            return QUIRE_E_RANGE;
    return QUIRE_OK;
}
