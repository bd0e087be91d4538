#include "tls_kit.h"

#include <quire/tier_redis.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/quire_tls_XXXXXX";

/* A file in the folder; static texts, so that each has its own. */
const char *tls_file(const char *name)
{
    static char texts[32][64];
    static int next;
    next = (next + 1) % 32;
    (void)snprintf(texts[next], sizeof texts[next], "%s/%s", folder, name);
    return texts[next];
}

/* What it prints goes to the file. */
static bool run_openssl(const char *const *arguments, const char *file)
{
    pid_t pid = fork();
    if (pid == 0) {
        int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        int output = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        (void)dup2(nothing, STDIN_FILENO);
        (void)dup2(output, STDOUT_FILENO);
        (void)dup2(nothing, STDERR_FILENO);
        execvp("openssl", (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    int status = 1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A certificate that signs itself: it is its own CA. */
static bool make_certificate(const char *cert, const char *key, const char *names)
{
    const char *const arguments[] = {"openssl",
                                     "req",
                                     "-x509",
                                     "-newkey",
                                     "ec",
                                     "-pkeyopt",
                                     "ec_paramgen_curve:prime256v1",
                                     "-nodes",
                                     "-days",
                                     "2",
                                     "-subj",
                                     "/CN=quire test",
                                     "-addext",
                                     names,
                                     "-keyout",
                                     tls_file(key),
                                     "-out",
                                     tls_file(cert),
                                     NULL};
    return run_openssl(arguments, "/dev/null");
}

bool tls_client_prints(uint32_t port, const char *text)
{
    char address[32];
    char line[256];
    const char *const output = tls_file("client.txt");
    const char *const arguments[] = {"openssl", "s_client", "-connect", address, NULL};
    bool is_printed = false;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", port);
    (void)run_openssl(arguments, output); /* it has no certificate, and may fail */
    FILE *file = fopen(output, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        is_printed = is_printed || strstr(line, text) != NULL;
    if (file != NULL)
        (void)fclose(file);
    (void)unlink(output);
    return is_printed;
}

bool tls_kit_open(const char *server)
{
    char names[128];
    (void)snprintf(names, sizeof names, "subjectAltName=DNS:%s.test,IP:127.0.0.1", server);
    return quire_tier_redis_has_tls() != 0 && mkdtemp(folder) != NULL &&
           make_certificate("server.crt", "server.key", names) &&
           make_certificate("client.crt", "client.key", "subjectAltName=DNS:client.test");
}

void tls_kit_close(void)
{
    static const char *const files[] = {"server.crt", "server.key", "client.crt", "client.key"};
    for (int i = 0; i < 4; i++)
        (void)unlink(tls_file(files[i]));
    (void)rmdir(folder);
}
