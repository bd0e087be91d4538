/* tier/redis/tls_kit.h - certificates for a test, in a folder of its own. */
#ifndef REDIS_TLS_KIT_H
#define REDIS_TLS_KIT_H

#include <stdbool.h>
#include <stdint.h>

/* server.crt, server.key (of SERVER.test and 127.0.0.1), client.crt, client.key; each signs itself.
 * false: without the program openssl, or without libssl. */
bool tls_kit_open(const char *server);
/* A file of the folder; good for the next 32 calls. */
const char *tls_file(const char *name);
/* Whether openssl's client prints the text, when it connects to the port without a certificate. */
bool tls_client_prints(uint32_t port, const char *text);
void tls_kit_close(void);

#endif
