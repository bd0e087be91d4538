/* cli/options/tiers_options.h - the options of tiers, for all that replays.
 *
 *      TIERS_OPTIONS(o)        rows of a table of options
 *      tiers_resolve           what they come to; 0, or an exit status after a sentence
 */
#ifndef QUIRE_CLI_OPTIONS_TIERS_OPTIONS_H
#define QUIRE_CLI_OPTIONS_TIERS_OPTIONS_H

#include "memory_options.h"
#include "options.h"
#include "tiers/tiers.h"

/* `settings` has what is passed on as it is given; tiers_resolve fills in the rest. */
typedef struct tiers_options {
    uint32_t cpu_blocks;
    uint64_t cpu_memory;
    int cpu_policy;
    host_link link;
    const char *file;
    double file_gbps;
    double file_latency_us;
    const char *peer;
    const char *redis;
    double redis_gbps;
    double redis_latency_us;
    const char *object;
    int admit;
    tiers_settings settings;
} tiers_options;

#define TIERS_OPTIONS_INIT                                                                         \
    {                                                                                              \
        .settings = {.backlog = 256}, .link = HOST_LINK_INIT, .file_gbps = 7,                      \
        .file_latency_us = 100, .redis_gbps = 2, .redis_latency_us = 500                           \
    }

extern const char *const tiers_modes[];
extern const char *const tiers_cpu_policies[];
extern const char *const tiers_policies[];
extern const char *const tiers_admissions[];

/* clang-format off */
#define TIERS_CPU_OPTIONS(t)                                                                       \
    {"cpu-blocks", OPTION_U32, &(t).cpu_blocks, "N",                                               \
     "blocks of host memory behind the GPU", .def = "0: no tiers", .max = 1e9,                     \
     .section = "Tiers"},                                                                          \
    {"cpu-memory", OPTION_U64, &(t).cpu_memory, "BYTES",                                           \
     "the same in bytes, for each GPU", .def = "by --cpu-blocks", .max = 1e15},                    \
    HOST_LINK_OPTIONS((t).link)

#define TIERS_OPTIONS(t)                                                                           \
    TIERS_CPU_OPTIONS(t),                                                                          \
    {"offload", OPTION_CHOICE, &(t).settings.mode, "KIND",                                         \
     "blocks are copied there when computed, or shortly before they are evicted",                  \
     .def = "eager", .choices = tiers_modes},                                                      \
    {"cpu-policy", OPTION_CHOICE, &(t).cpu_policy, "KIND",                                         \
     "which blocks are evicted from host memory first: blocks that no waiting request needs,"      \
     " or the least recently used blocks",                                                         \
     .def = "lookahead", .choices = tiers_cpu_policies},                                           \
    {"backlog", OPTION_U32, &(t).settings.backlog, "N",                                            \
     "number of waiting requests that lookahead knows",                                            \
     .def = "256", .min = 1, .max = 65536},                                                        \
    {"file-tier", OPTION_TEXT, &(t).file, "SIZE",                                                  \
     "a file behind host memory; with --real-tiers PATH:SIZE", .def = "none"},                     \
    {"file-bandwidth", OPTION_REAL, &(t).file_gbps, "GB/S", "bandwidth of the disk", .def = "7",   \
     .min = 1e-6},                                                                                 \
    {"file-latency", OPTION_REAL, &(t).file_latency_us, "US",                                      \
     "latency of one read or write", .def = "100"},                                                \
    {"peer", OPTION_TEXT, &(t).peer, "HOST:PORT",                                                  \
     "host memory of a quire serve --peer-listen, asked before the other tiers; needs "            \
     "--real-tiers",                                                                               \
     .def = "none"},                                                                               \
    {"peer-secret-file", OPTION_TEXT, &(t).settings.peer_secret_file, "FILE",                      \
     "its first line, 16 characters or more, is the secret that both sides know",                  \
     .def = "none"},                                                                               \
    {"peer-trust-network", OPTION_SWITCH, &(t).settings.peer_trust_network, NULL,                  \
     "peers may be on other machines, without TLS", .def = "off"},                                 \
    TLS_OPTIONS((t).settings.peer_tls, "peer", "TLS, for --peer and for --peer-listen",            \
                "CAs that sign the other side's certificate (PEM); a server asks clients for one", \
                "certificate of this side (PEM); --peer-listen needs one"),                        \
    {"redis", OPTION_TEXT, &(t).redis, "SIZE",                                                     \
     "Redis behind that; with --real-tiers HOST:PORT[,HOST:PORT...]", .def = "none",               \
     .has_commas = true},                                                                          \
    {"redis-bandwidth", OPTION_REAL, &(t).redis_gbps, "GB/S",                                      \
     "bandwidth of the network", .def = "2",                                                       \
     .min = 1e-6},                                                                                 \
    {"redis-latency", OPTION_REAL, &(t).redis_latency_us, "US",                                    \
     "latency of one request to Redis", .def = "500"},                                             \
    {"redis-trust-network", OPTION_SWITCH, &(t).settings.trust_network, NULL,                      \
     "real servers may be on other machines, without TLS", .def = "off"},                          \
    {"redis-password-file", OPTION_TEXT, &(t).settings.password_file, "FILE",                      \
     "its first line is the password of real servers", .def = "none"},                             \
    TLS_OPTIONS((t).settings.redis_tls, "redis", "TLS to real servers",                            \
                "CAs that sign the servers' certificates (PEM)",                                   \
                "certificate of this side (PEM), for servers that ask for one"),                   \
    {"object", OPTION_TEXT, &(t).object, "URL",                                                    \
     "a bucket of an S3 store behind that, https://HOST[:PORT]/BUCKET; needs --real-tiers",        \
     .def = "none"},                                                                               \
    {"object-region", OPTION_TEXT, &(t).settings.object_region, "NAME",                            \
     "region of the bucket", .def = "AWS_REGION, or us-east-1"},                                   \
    {"object-credentials-file", OPTION_TEXT, &(t).settings.object_credentials_file, "FILE",        \
     "credentials in the format of the AWS tools", .def = "by the environment"},                   \
    {"object-tls-ca-file", OPTION_TEXT, &(t).settings.object_tls_ca_file, "FILE",                  \
     "CAs that sign the store's certificate (PEM)", .def = "the system's"},                        \
    {"object-trust-network", OPTION_SWITCH, &(t).settings.object_trust_network, NULL,              \
     "http:// may be on another machine", .def = "off"},                                           \
    {"tier-policy", OPTION_CHOICE, &(t).settings.policy, "KIND",                                   \
     "which blocks are evicted from file and Redis first",                                         \
     .def = "lru", .choices = tiers_policies},                                                     \
    {"admit", OPTION_CHOICE, &(t).admit, "KIND",                                                   \
     "what goes to file and Redis: what was a hit before, long prefixes, or all",                  \
     .def = "reused", .choices = tiers_admissions},                                                \
    {"tier-failures", OPTION_REAL, &(t).settings.failures, "SHARE",                                \
     "share of simulated copies and transfers that fail", .def = "0", .max = 1},                   \
    {"real-tiers", OPTION_SWITCH, &(t).settings.is_real, NULL,                                     \
     "use a real file, real servers or real peers: bytes are checked, and transfers take "         \
     "their real time",                                                                       \
     .def = "off"}
/* clang-format on */

/* Blocks of host memory, of --cpu-blocks or --cpu-memory. 0, or an exit status after a sentence. */
int tiers_resolve_cpu(const command *cmd, const tiers_options *o, uint64_t block_bytes,
                      uint32_t *num_blocks);
int tiers_resolve(const command *cmd, const tiers_options *o, uint64_t block_bytes,
                  tiers_settings *settings);

#endif
