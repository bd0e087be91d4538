/* http/fuzz_server.c - any bytes on a connection to a real server. Whatever is answered begins as
 * HTTP does; now and then a good request shows that the server is well, and in the end no
 * connection is left. Alone or with libFuzzer, as http/fuzz_handler.c.
 */
#include "base/mutate.h"
#include "http/server_kit.h"

#include <sys/socket.h>
#include <unistd.h>

/* A request that is not whole gets no answer, and nobody waits for that long. */
enum { CHECK_EVERY = 100, PATIENCE_MS = 10 };

static server_kit kit;
static uint64_t num_runs;

static void open_server(void)
{
    server_open(&kit);
    kit.config.timeout_s = 1;
    engine_run(&kit.engine, 100);
    server_start(&kit);
}

/* Streams do not end by themselves: some bytes of one are enough. */
static void read_answer(int socket)
{
    static char answer[(1 << 16) + 1];
    size_t len = 0;
    long n = 0;
    while (len < sizeof answer - 1 &&
           (n = client_read_some(socket, answer + len, sizeof answer - 1 - len, PATIENCE_MS)) > 0) {
        len += (size_t)n;
        answer[len] = '\0';
        if (strstr(answer, "text/event-stream") != NULL)
            break;
    }
    MUTATE_EXPECT(len < 5 || memcmp(answer, "HTTP/", 5) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    if (kit.http == NULL)
        open_server();
    int socket = client_open(kit.port);
    MUTATE_EXPECT(socket >= 0);
    client_send(socket, (const char *)bytes, num_bytes);
    shutdown(socket, SHUT_WR);
    read_answer(socket);
    client_close(socket);
    if (num_runs++ % CHECK_EVERY == 0)
        MUTATE_EXPECT(server_is_alive(&kit));
    return 0;
}

#ifndef QUIRE_LIBFUZZER

#define HOST " HTTP/1.1\r\nHost: localhost\r\n"

static const char *const SAMPLES[] = {
    "GET /" HOST "\r\n",
    "GET /metrics" HOST "Accept: application/openmetrics-text\r\n\r\n",
    "GET /blocks?token=x" HOST "\r\nHEAD /blocks?limit=5" HOST "\r\n",
    "GET /snapshot?after=1&limit=5" HOST "\r\nGET /healthz" HOST "\r\n",
    "HEAD /healthz" HOST "Connection: keep-alive\r\n\r\n",
    "GET /events" HOST "Last-Event-ID: 50\r\n\r\n",
    "POST /x" HOST "Content-Length: 5\r\n\r\nhello",
    "GET /" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "GET /%41%zz?a=%00&b" HOST "Authorization: Bearer x\r\nCookie: a=b\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
};
static const char *const WORDS[] = {
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "GET ",
    "HEAD ",
    "OPTIONS * ",
    "/events",
    "/metrics",
    " ",
    ":",
    "%",
    "%00",
    "%2e",
    "?",
    "&",
    "=",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/2.0",
    "Host: localhost\r\n",
    "Host: evil\r\n",
    "Content-Length: ",
    "0",
    "18446744073709551616",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "Upgrade: h2c\r\n",
    "\xff",
    "\x01",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};

int main(int argc, char **argv)
{
    open_server();
    MUTATE_EXPECT(server_is_alive(&kit));
    uint32_t num_files = server_num_files();
    int status = mutate_strings(argc, argv, 500, SAMPLES, COUNT(SAMPLES), WORDS, COUNT(WORDS));
    uint64_t until = client_now_ms() + CLIENT_PATIENCE_MS;
    while (server_num_files() > num_files && client_now_ms() < until)
        usleep(10000);
    MUTATE_EXPECT(server_num_files() <= num_files);
    server_close(&kit);
    return status;
}

#endif
