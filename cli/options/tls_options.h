/* cli/tls_options.h - TLS of the connections to Redis and to peers: one set of options for each.
 *
 *      TLS_OPTIONS(t, "peer", ...)     rows of a table: --peer-tls, --peer-tls-ca-file, ...
 *      tls_check                       0, or an exit status after a sentence with the option
 *      tls_explain                     a sentence of the library with the names of the options
 *
 * The options have the names of the library's fields (quire_tier_peer_config.tls_ca_file).
 */
#ifndef QUIRE_CLI_OPTIONS_TLS_OPTIONS_H
#define QUIRE_CLI_OPTIONS_TLS_OPTIONS_H

#include "options.h"

#include <stddef.h>

typedef struct tls_options {
    bool is_on;
    const char *ca_file;
    const char *cert_file;
    const char *key_file;
    const char *server_name;
    bool trust_any;
} tls_options;

/* Who uses the options. */
typedef struct tls_sides {
    const char *prefix; /* "redis", "peer" */
    bool has_client;
    bool has_server;
} tls_sides;

/* clang-format off */
#define TLS_OPTIONS(t, prefix, on_help, ca_help, cert_help)                                        \
    {prefix "-tls", OPTION_SWITCH, &(t).is_on, NULL, on_help, .def = "off"},                       \
    {prefix "-tls-ca-file", OPTION_TEXT, &(t).ca_file, "FILE", ca_help,                            \
     .def = "the system's"},                                                                       \
    {prefix "-tls-cert-file", OPTION_TEXT, &(t).cert_file, "FILE", cert_help, .def = "none"},      \
    {prefix "-tls-key-file", OPTION_TEXT, &(t).key_file, "FILE",                                   \
     "the private key of that certificate (PEM)", .def = "none"},                                  \
    {prefix "-tls-server-name", OPTION_TEXT, &(t).server_name, "NAME",                             \
     "the name in the server's certificate", .def = "the host"},                                   \
    {prefix "-tls-trust-any", OPTION_SWITCH, &(t).trust_any, NULL,                                 \
     "accept any certificate: a server in between can read and write", .def = "off"}
/* clang-format on */

/* The first option that was given, without "--"; NULL: none. */
const char *tls_first_given(const tls_options *t, const char *prefix, char name[64]);
int tls_check(const command *cmd, const tls_options *t, const tls_sides *sides);
/* "tls_ca_file: ..." becomes "--peer-tls-ca-file: ...". Returns out. */
char *tls_explain(const char *prefix, const char *said, char *out, size_t bytes);

#endif
