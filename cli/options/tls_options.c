#include "options/tls_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64 };

const char *tls_first_given(const tls_options *t, const char *prefix, char name[NAME_BYTES])
{
    const struct {
        bool is_given;
        const char *name;
    } rows[] = {{t->is_on, ""},
                {t->ca_file != NULL, "-ca-file"},
                {t->cert_file != NULL, "-cert-file"},
                {t->key_file != NULL, "-key-file"},
                {t->server_name != NULL, "-server-name"},
                {t->trust_any, "-trust-any"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].is_given)
            continue;
        snprintf(name, NAME_BYTES, "%s-tls%s", prefix, rows[i].name);
        return name;
    }
    return NULL;
}

/* A file that cannot be read is named now, not when the first connection is made. */
static int check_file(const command *cmd, const char *prefix, const char *what, const char *path)
{
    FILE *in = path == NULL ? NULL : fopen(path, "r");
    if (path != NULL && (in == NULL || fgetc(in) == EOF)) {
        const char *why = in == NULL || ferror(in) ? strerror(errno) : "the file is empty";
        if (in != NULL)
            fclose(in);
        return command_error(cmd, "--%s-tls-%s-file %s: %s", prefix, what, path, why);
    }
    if (in != NULL)
        fclose(in);
    return 0;
}

static int check_pair(const command *cmd, const tls_options *t, const tls_sides *sides)
{
    const char *p = sides->prefix;
    if (t->cert_file != NULL && t->key_file == NULL)
        return command_error(cmd, "--%s-tls-cert-file %s needs --%s-tls-key-file FILE", p,
                             t->cert_file, p);
    if (t->key_file != NULL && t->cert_file == NULL)
        return command_error(cmd, "--%s-tls-key-file %s needs --%s-tls-cert-file FILE", p,
                             t->key_file, p);
    if (sides->has_server && t->cert_file == NULL)
        return command_error(cmd,
                             "--%s-tls: a server needs --%s-tls-cert-file FILE and "
                             "--%s-tls-key-file FILE",
                             p, p, p);
    return 0;
}

/* What belongs to the side that connects. */
static int check_client(const command *cmd, const tls_options *t, const tls_sides *sides)
{
    const char *p = sides->prefix;
    if (!sides->has_client && t->server_name != NULL)
        return command_error(cmd,
                             "--%s-tls-server-name %s: only a client checks a server's name; "
                             "give --%s HOST:PORT",
                             p, t->server_name, p);
    if (!sides->has_client && t->trust_any)
        return command_error(cmd,
                             "--%s-tls-trust-any: only a client checks a server's certificate; "
                             "give --%s HOST:PORT",
                             p, p);
    if (t->trust_any && t->ca_file != NULL)
        return command_error(cmd,
                             "--%s-tls-trust-any and --%s-tls-ca-file %s: one accepts any "
                             "certificate, the other checks it; give one of them",
                             p, p, t->ca_file);
    if (t->trust_any && t->server_name != NULL)
        return command_error(cmd,
                             "--%s-tls-trust-any and --%s-tls-server-name %s: one accepts any "
                             "certificate, the other checks its name; give one of them",
                             p, p, t->server_name);
    return 0;
}

int tls_check(const command *cmd, const tls_options *t, const tls_sides *sides)
{
    char name[NAME_BYTES];
    if (!t->is_on && tls_first_given(t, sides->prefix, name) != NULL)
        return command_error(cmd, "--%s needs --%s-tls", name, sides->prefix);
    if (!t->is_on)
        return 0;
    int status = check_pair(cmd, t, sides);
    if (status == 0)
        status = check_client(cmd, t, sides);
    if (status == 0)
        status = check_file(cmd, sides->prefix, "ca", t->ca_file);
    if (status == 0)
        status = check_file(cmd, sides->prefix, "cert", t->cert_file);
    return status == 0 ? check_file(cmd, sides->prefix, "key", t->key_file) : status;
}

char *tls_explain(const char *prefix, const char *said, char *out, size_t bytes)
{
    static const char *const fields[] = {"tls_ca_file", "tls_cert_file", "tls_key_file",
                                         "tls_server_name", "tls_trust_any"};
    size_t n = 0;
    while (*said != '\0' && n + 1 < bytes) {
        size_t length = 0;
        for (size_t i = 0; i < sizeof fields / sizeof *fields && length == 0; i++)
            if (strncmp(said, fields[i], strlen(fields[i])) == 0)
                length = strlen(fields[i]);
        if (length == 0) {
            out[n++] = *said++;
            continue;
        }
        int added = snprintf(out + n, bytes - n, "--%s-%.*s", prefix, (int)length, said);
        size_t end = n + (size_t)added < bytes ? n + (size_t)added : bytes - 1;
        for (; n < end; n++)
            out[n] = (char)(out[n] == '_' ? '-' : out[n]);
        said += length;
    }
    out[n] = '\0';
    return out;
}
