#include "router_table.h"

#include "options/nearest.h"
#include "policies.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const router_policy *const table[] = {
    &policy_round_robin,     &policy_random,
    &policy_least_loaded,    &policy_power_of_two,
    &policy_session,         &policy_dynamo_kv,
    &policy_llm_d,           &policy_llm_d_precise,
    &policy_sgl_cache_aware, &policy_lmetric,
    &policy_vllm_kv_aware,   &policy_vllm_dp,
    &policy_smetric,         &policy_production_loadaware,
    &policy_aibrix_prefix,   &policy_conductor,
    &policy_preble,          &policy_ray_prefix,
    &policy_oracle,
};

enum { NUM_POLICIES = sizeof table / sizeof *table, NAME_BYTES = 256 };

const router_policy *router_table(uint32_t i)
{
    return i < NUM_POLICIES ? table[i] : NULL;
}

const char *router_name(uint32_t i)
{
    return i < NUM_POLICIES ? table[i]->name : NULL;
}

const router_policy *router_find(const char *name)
{
    for (uint32_t i = 0; i < NUM_POLICIES; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

static uint32_t num_options(const router_policy *policy)
{
    uint32_t n = 0;
    while (policy->options != NULL && policy->options[n].name != NULL)
        n++;
    return n;
}

/* ---- a policy in a shared object ------------------------------------------- */

static bool is_file(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') != NULL || (length > 3 && strcmp(name + length - 3, ".so") == 0);
}

static bool check_loaded(const char *path, const router_policy *policy, char *why)
{
    if (policy->version != ROUTER_POLICY_VERSION)
        snprintf(why, ROUTER_WHY_BYTES, "invalid version %u of router %s (expected %d)",
                 policy->version, path, ROUTER_POLICY_VERSION);
    else if (policy->name == NULL || policy->summary == NULL || policy->choose == NULL)
        snprintf(why, ROUTER_WHY_BYTES, "router %s has no name, no summary or no choose", path);
    else if (num_options(policy) > ROUTER_MAX_OPTIONS)
        snprintf(why, ROUTER_WHY_BYTES, "router %s has %u options (expected at most %d)", path,
                 num_options(policy), ROUTER_MAX_OPTIONS);
    else
        return true;
    return false;
}

static bool load(const char *path, router_spec *spec, char *why)
{
    spec->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (spec->library == NULL) {
        snprintf(why, ROUTER_WHY_BYTES, "cannot load router %s: %s", path, dlerror());
        return false;
    }
    spec->policy = dlsym(spec->library, "quire_router_policy");
    if (spec->policy == NULL)
        snprintf(why, ROUTER_WHY_BYTES, "quire_router_policy not found in router %s", path);
    else if (check_loaded(path, spec->policy, why))
        return true;
    router_spec_free(spec);
    return false;
}

void router_spec_free(router_spec *spec)
{
    if (spec->library != NULL)
        dlclose(spec->library);
    *spec = (router_spec){0};
}

/* ---- a text ---------------------------------------------------------------- */

static bool no_router(const char *name, char *why)
{
    nearest n = nearest_to(name);
    for (uint32_t i = 0; i < NUM_POLICIES; i++)
        nearest_offer(&n, table[i]->name);
    const char *near = nearest_name(&n);
    int n_bytes = snprintf(why, ROUTER_WHY_BYTES, "router \"%.64s\" not found%s%s%s (known are ",
                           name, near == NULL ? "" : "; did you mean \"", near == NULL ? "" : near,
                           near == NULL ? "" : "\"?");
    for (uint32_t i = 0; i < NUM_POLICIES && n_bytes < ROUTER_WHY_BYTES; i++)
        n_bytes += snprintf(why + n_bytes, ROUTER_WHY_BYTES - (size_t)n_bytes, "%s%s",
                            table[i]->name, i + 1 < NUM_POLICIES ? ", " : ")");
    return false;
}

static bool no_option(const router_policy *policy, const char *name, char *why)
{
    nearest n = nearest_to(name);
    for (uint32_t i = 0; i < num_options(policy); i++)
        nearest_offer(&n, policy->options[i].name);
    const char *near = nearest_name(&n);
    snprintf(why, ROUTER_WHY_BYTES, "router %s has no option \"%s\"%s%s%s", policy->name, name,
             near == NULL ? "" : "; did you mean \"", near == NULL ? "" : near,
             near == NULL ? "" : "\"?");
    return false;
}

static bool bad_value(const router_policy *policy, const router_option *o, const char *text,
                      char *why)
{
    int n = snprintf(why, ROUTER_WHY_BYTES, "invalid value \"%s\" for %s of router %s (expected ",
                     text, o->name, policy->name);
    for (uint32_t i = 0; o->choices != NULL && o->choices[i] != NULL && n < ROUTER_WHY_BYTES; i++)
        n += snprintf(why + n, ROUTER_WHY_BYTES - (size_t)n, "%s%s", i == 0 ? "" : ", ",
                      o->choices[i]);
    if (n < ROUTER_WHY_BYTES && o->choices == NULL)
        n += snprintf(why + n, ROUTER_WHY_BYTES - (size_t)n, "%s%.12g to %.12g",
                      o->is_whole ? "a whole number from " : "", o->min, o->max);
    if (n < ROUTER_WHY_BYTES)
        snprintf(why + n, ROUTER_WHY_BYTES - (size_t)n, ")");
    return false;
}

static bool read_choice(const router_option *o, const char *text, double *value)
{
    for (uint32_t i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool read_number(const router_option *o, const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    bool is_number = end != text && *end == '\0' && isfinite(*value);
    return is_number && *value >= o->min && *value <= o->max &&
           (!o->is_whole || *value == floor(*value));
}

/* "name=value". */
static bool read_pair(char *pair, router_spec *spec, char *why)
{
    char *equals = strchr(pair, '=');
    if (equals == NULL) {
        snprintf(why, ROUTER_WHY_BYTES, "invalid option \"%s\" of router %s (expected name=value)",
                 pair, spec->policy->name);
        return false;
    }
    *equals = '\0';
    for (uint32_t i = 0; i < num_options(spec->policy); i++) {
        const router_option *o = &spec->policy->options[i];
        if (strcmp(o->name, pair) != 0)
            continue;
        bool is_ok = o->choices != NULL ? read_choice(o, equals + 1, &spec->values[i])
                                        : read_number(o, equals + 1, &spec->values[i]);
        return is_ok || bad_value(spec->policy, o, equals + 1, why);
    }
    return no_option(spec->policy, pair, why);
}

/* Where the options begin: at the first colon behind the folders of a file's name. */
static const char *end_of_name(const char *text)
{
    const char *slash = strrchr(text, '/');
    const char *colon = strchr(slash == NULL ? text : slash, ':');
    return colon == NULL ? text + strlen(text) : colon;
}

static bool read_options(char *text, router_spec *spec, char *why)
{
    while (text != NULL && *text != '\0') {
        char *comma = strchr(text, ',');
        if (comma != NULL)
            *comma = '\0';
        if (!read_pair(text, spec, why))
            return false;
        text = comma == NULL ? NULL : comma + 1;
    }
    return true;
}

bool router_spec_read(const char *text, router_spec *spec, char why[ROUTER_WHY_BYTES])
{
    char name[NAME_BYTES];
    const char *end = end_of_name(text);
    *spec = (router_spec){0};
    if ((size_t)(end - text) >= sizeof name) {
        snprintf(why, ROUTER_WHY_BYTES, "name of a router is too long (expected at most %zu bytes)",
                 sizeof name - 1);
        return false;
    }
    snprintf(name, sizeof name, "%.*s", (int)(end - text), text);
    if (is_file(name)) {
        if (!load(name, spec, why))
            return false;
    } else if ((spec->policy = router_find(name)) == NULL) {
        return no_router(name, why);
    }
    for (uint32_t i = 0; i < num_options(spec->policy); i++)
        spec->values[i] = spec->policy->options[i].def;
    char *options = strdup(*end == ':' ? end + 1 : end);
    bool is_ok = options != NULL && read_options(options, spec, why);
    if (options == NULL)
        snprintf(why, ROUTER_WHY_BYTES, "out of memory for options of router %s", name);
    free(options);
    if (!is_ok)
        router_spec_free(spec);
    return is_ok;
}

/* ---- help ------------------------------------------------------------------ */

typedef struct page {
    char *out;
    size_t capacity;
    size_t length;
} page;

__attribute__((format(printf, 2, 3))) static void add(page *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t left = p->length < p->capacity ? p->capacity - p->length : 0;
    int n = vsnprintf(left == 0 ? NULL : p->out + p->length, left, format, arguments);
    va_end(arguments);
    p->length += n > 0 ? (size_t)n : 0;
}

size_t router_describe(const router_policy *policy, char *out, size_t capacity)
{
    page p = {out, capacity, 0};
    add(&p, "%s  %s\n", policy->name, policy->summary);
    for (uint32_t i = 0; i < num_options(policy); i++) {
        const router_option *o = &policy->options[i];
        add(&p, "    %s  %s (", o->name, o->help);
        if (o->choices != NULL)
            for (uint32_t c = 0; o->choices[c] != NULL; c++)
                add(&p, "%s%s%s", c == 0 ? "" : ", ", o->choices[c],
                    c == o->def ? " [default]" : "");
        else
            add(&p, "%.12g to %.12g, default %.12g", o->min, o->max, o->def);
        add(&p, ")\n");
    }
    return p.length;
}
