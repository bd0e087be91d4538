#include "tiers_options.h"

#include <string.h>

const char *const tiers_modes[] = {"eager", "lazy", NULL};
const char *const tiers_cpu_policies[] = {"lookahead", "lru", NULL};
const char *const tiers_policies[] = {"lru", "arc", "s3fifo", "lookahead", NULL};
const char *const tiers_admissions[] = {"reused", "long", "all", NULL};

static const quire_offload_admit ADMISSIONS[] = {QUIRE_ADMIT_REUSED, QUIRE_ADMIT_LONG,
                                                 QUIRE_ADMIT_ALL};

enum { MAX_CPU_BLOCKS = 1000000000 };

/* A number of bytes as options read them, with the same sentence where it is none. */
static int read_size(const command *cmd, const char *name, const char *text, uint64_t *bytes)
{
    const option size = {name, OPTION_U64, bytes, "SIZE", "", .min = 1, .max = 1e18};
    return option_set(cmd, &size, text);
}

static int copy_place(const command *cmd, const char *name, const char *text, size_t length,
                      tiers_lower *lower)
{
    if (length == 0 || length >= sizeof lower->place)
        return command_error(cmd, "--%s %s: the path or address must have 1..%d characters", name,
                             text, TIERS_PLACE_BYTES - 1);
    memcpy(lower->place, text, length);
    lower->place[length] = '\0';
    return 0;
}

/* SIZE, or for a real one PATH:SIZE. */
static int resolve_file(const command *cmd, const tiers_options *o, tiers_lower *lower)
{
    const char *colon = strrchr(o->file, ':');
    lower->kind = TIERS_FILE;
    lower->bytes_per_s = o->file_gbps * 1e9;
    lower->latency_s = o->file_latency_us * 1e-6;
    if (o->settings.is_real && colon == NULL)
        return command_error(cmd,
                             "--file-tier %s: a real file needs a path: use --file-tier PATH:%s, "
                             "or omit --real-tiers",
                             o->file, o->file);
    if (!o->settings.is_real && colon != NULL)
        return command_error(
            cmd,
            "--file-tier %s: a simulated file has no path: use --file-tier %s, or add --real-tiers",
            o->file, colon + 1);
    if (colon != NULL &&
        copy_place(cmd, "file-tier", o->file, (size_t)(colon - o->file), lower) != 0)
        return 2;
    return read_size(cmd, "file-tier", colon != NULL ? colon + 1 : o->file, &lower->bytes);
}

/* SIZE, or for a real one HOST:PORT,... */
static int resolve_redis(const command *cmd, const tiers_options *o, tiers_lower *lower)
{
    const char *colon = strchr(o->redis, ':');
    lower->kind = TIERS_REDIS;
    lower->bytes_per_s = o->redis_gbps * 1e9;
    lower->latency_s = o->redis_latency_us * 1e-6;
    if (o->settings.is_real && colon == NULL)
        return command_error(cmd,
                             "--redis %s: a real server needs an address: use --redis HOST:PORT, "
                             "or omit --real-tiers",
                             o->redis);
    if (!o->settings.is_real && colon != NULL)
        return command_error(
            cmd,
            "--redis %s: a simulated server needs a size: use --redis 500G, or add --real-tiers",
            o->redis);
    if (colon != NULL)
        return copy_place(cmd, "redis", o->redis, strlen(o->redis), lower);
    return read_size(cmd, "redis", o->redis, &lower->bytes);
}

/* There is no simulated peer: what it has would have to be said. */
static int resolve_peer(const command *cmd, const tiers_options *o, tiers_lower *lower)
{
    lower->kind = TIERS_PEER;
    if (strchr(o->peer, ':') == NULL)
        return command_error(cmd,
                             "invalid value \"%s\" for --peer (expected HOST:PORT, [IPv6]:PORT or "
                             "unix:PATH)",
                             o->peer);
    return copy_place(cmd, "peer", o->peer, strlen(o->peer), lower);
}

/* ENDPOINT/BUCKET. There is no simulated one: --redis SIZE with another bandwidth and latency
 * is. */
static int resolve_object(const command *cmd, const tiers_options *o, tiers_lower *lower)
{
    lower->kind = TIERS_OBJECT;
    return copy_place(cmd, "object", o->object, strlen(o->object), lower);
}

static int check_object(const command *cmd, const tiers_options *o)
{
    const tiers_settings *s = &o->settings;
    const char *idle = s->object_region != NULL             ? "object-region"
                       : s->object_credentials_file != NULL ? "object-credentials-file"
                       : s->object_tls_ca_file != NULL      ? "object-tls-ca-file"
                       : s->object_trust_network            ? "object-trust-network"
                                                            : NULL;
    if (o->object == NULL && idle != NULL)
        return command_error(cmd, "--%s needs --object URL", idle);
    if (o->object == NULL)
        return 0;
    const char *bucket = strrchr(o->object, '/');
    bool is_url = strncmp(o->object, "http://", 7) == 0 || strncmp(o->object, "https://", 8) == 0;
    if (!is_url || bucket == NULL || bucket < o->object + 8 || bucket[1] == '\0')
        return command_error(
            cmd,
            "invalid value \"%s\" for --object (expected https://HOST[:PORT]/BUCKET "
            "or http://HOST[:PORT]/BUCKET)",
            o->object);
    if (!s->is_real)
        return command_error(cmd, "--object %s needs --real-tiers", o->object);
    return 0;
}

/* What both sides of a peer need. */
static int check_peers(const command *cmd, const tiers_options *o)
{
    char tls_name[64];
    const tls_sides sides = {"peer", o->peer != NULL, o->settings.peer_listen != NULL};
    const char *name = o->peer != NULL                   ? "peer"
                       : o->settings.peer_listen != NULL ? "peer-listen"
                                                         : NULL;
    const char *value = o->peer != NULL ? o->peer : o->settings.peer_listen;
    const char *idle = o->settings.peer_secret_file != NULL ? "peer-secret-file"
                       : o->settings.peer_trust_network
                           ? "peer-trust-network"
                           : tls_first_given(&o->settings.peer_tls, "peer", tls_name);
    if (name == NULL && idle != NULL)
        return command_error(cmd, "--%s needs --peer HOST:PORT", idle);
    if (name != NULL && !o->settings.is_real)
        return command_error(cmd, "--%s %s needs --real-tiers: peers exchange real blocks", name,
                             value);
    if (name != NULL && o->settings.peer_secret_file == NULL)
        return command_error(
            cmd, "--%s %s needs --peer-secret-file FILE (the same secret on both sides)", name,
            value);
    return tls_check(cmd, &o->settings.peer_tls, &sides);
}

/* A simulated Redis has no connections. */
static int check_redis(const command *cmd, const tiers_options *o)
{
    char name[64];
    const tls_sides sides = {"redis", true, false};
    bool is_given = tls_first_given(&o->settings.redis_tls, "redis", name) != NULL;
    if (is_given && (o->redis == NULL || !o->settings.is_real))
        return command_error(cmd, "--%s needs --real-tiers and --redis HOST:PORT", name);
    return tls_check(cmd, &o->settings.redis_tls, &sides);
}

/* A tier smaller than one block would never hold anything. */
static int check_sizes(const command *cmd, const tiers_settings *s, uint64_t block_bytes)
{
    for (uint32_t i = 0; i < s->num_lower; i++) {
        const tiers_lower *lower = &s->lower[i];
        if (lower->bytes == 0 || lower->bytes / block_bytes >= 1)
            continue;
        return command_error(cmd, "--%s: %llu bytes are smaller than one block (%llu bytes)",
                             lower->kind == TIERS_FILE ? "file-tier" : "redis",
                             (unsigned long long)lower->bytes, (unsigned long long)block_bytes);
    }
    return 0;
}

int tiers_resolve_cpu(const command *cmd, const tiers_options *o, uint64_t block_bytes,
                      uint32_t *num_blocks)
{
    const host_memory given = {.blocks_name = "cpu-blocks",
                               .bytes_name = "cpu-memory",
                               .blocks = o->cpu_blocks,
                               .bytes = o->cpu_memory,
                               .min_blocks = 2,
                               .max_blocks = MAX_CPU_BLOCKS};
    if (o->cpu_blocks == 1)
        return command_error(cmd, "invalid value \"1\" for --cpu-blocks (expected 2 or more: one "
                                  "block is the null block)");
    return host_memory_resolve(cmd, &given, block_bytes, num_blocks);
}

/* What makes no sense without something else, and what that is. */
static int check_presence(const command *cmd, const tiers_options *o, uint32_t cpu_blocks)
{
    const struct {
        const char *name;
        const char *value;
    } rows[] = {{"file-tier", o->file},
                {"redis", o->redis},
                {"object", o->object},
                {"peer", o->peer},
                {"peer-listen", o->settings.peer_listen}};
    size_t first = 0;
    while (first < sizeof rows / sizeof *rows && rows[first].value == NULL)
        first++;
    bool has_any = first < sizeof rows / sizeof *rows;
    if (cpu_blocks == 0 && has_any)
        return command_error(cmd, "--%s %s needs host memory: give --cpu-blocks or --cpu-memory",
                             rows[first].name, rows[first].value);
    if (o->settings.is_real && !has_any)
        return command_error(
            cmd,
            "--real-tiers needs --file-tier PATH:SIZE, --redis HOST:PORT, --object URL or --peer "
            "HOST:PORT");
    int status = check_peers(cmd, o);
    if (status == 0)
        status = check_redis(cmd, o);
    return status == 0 ? check_object(cmd, o) : status;
}

int tiers_resolve(const command *cmd, const tiers_options *o, uint64_t block_bytes,
                  tiers_settings *settings)
{
    uint32_t cpu_blocks;
    *settings = o->settings;
    int status = tiers_resolve_cpu(cmd, o, block_bytes, &cpu_blocks);
    if (status != 0)
        return status;
    settings->cpu_blocks = cpu_blocks;
    settings->has_lookahead = o->cpu_policy == 0;
    settings->bytes_per_s = o->link.gbps * 1e9;
    settings->latency_s = o->link.latency_us * 1e-6;
    settings->admit = ADMISSIONS[o->admit];
    status = check_presence(cmd, o, cpu_blocks);
    if (status == 0 && o->peer != NULL)
        status = resolve_peer(cmd, o, &settings->lower[settings->num_lower++]);
    if (status == 0 && o->file != NULL)
        status = resolve_file(cmd, o, &settings->lower[settings->num_lower++]);
    if (status == 0 && o->redis != NULL)
        status = resolve_redis(cmd, o, &settings->lower[settings->num_lower++]);
    if (status == 0 && o->object != NULL)
        status = resolve_object(cmd, o, &settings->lower[settings->num_lower++]);
    return status == 0 ? check_sizes(cmd, settings, block_bytes) : status;
}

uint32_t tiers_num_slots(const tiers_lower *lower, uint64_t block_bytes)
{
    uint64_t slots = lower->bytes / block_bytes;
    return slots < QUIRE_MAX_BLOCKS ? (uint32_t)slots : QUIRE_MAX_BLOCKS;
}

const char *tiers_label(tiers_kind kind)
{
    static const char *const LABELS[] = {"cpu", "file", "redis", "peer", "object"};
    return LABELS[kind];
}

uint32_t tiers_describe(const tiers_settings *s, uint64_t block_bytes, page_tier *tiers)
{
    static const char *const NAMES[] = {"CPU", "File", "Redis", "Peer", "Object"};
    if (s->cpu_blocks == 0)
        return 0;
    tiers[0] = (page_tier){.name = NAMES[TIERS_CPU], .total = s->cpu_blocks - 1};
    for (uint32_t i = 0; i < s->num_lower; i++)
        tiers[1 + i] = (page_tier){.name = NAMES[s->lower[i].kind],
                                   .total = tiers_num_slots(&s->lower[i], block_bytes)};
    return 1 + s->num_lower;
}
