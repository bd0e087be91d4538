#include "tier/object/credentials.h"

#include "base/memory.h"
#include "base/refuse.h"
#include "tier/net/address.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RENEW_BEFORE_S = 300 };

/* ---- texts ----------------------------------------------------------------- */

/* false: it does not fit, or could not stand in a header. */
static bool set_text(char *to, size_t room, const char *from, size_t bytes)
{
    if (bytes >= room)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (from[i] <= ' ' || from[i] > '~')
            return false;
    memcpy(to, from, bytes);
    to[bytes] = 0;
    return true;
}

static bool is_whole(const qr_credentials_set *set)
{
    return set->access_key[0] != 0 && set->secret_key[0] != 0;
}

/* ---- the AWS tools' file ---------------------------------------------------- */

typedef struct piece {
    const char *at;
    size_t n;
} piece;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static piece trim(const char *begin, const char *end)
{
    while (begin < end && is_blank(*begin))
        begin++;
    while (end > begin && is_blank(end[-1]))
        end--;
    return (piece){begin, (size_t)(end - begin)};
}

static bool is_piece(piece p, const char *text)
{
    return p.n == strlen(text) && memcmp(p.at, text, p.n) == 0;
}

static bool take_setting(qr_credentials_set *set, piece line)
{
    const char *equals = memchr(line.at, '=', line.n);
    if (equals == NULL)
        return true; /* not one of ours */
    piece name = trim(line.at, equals);
    piece value = trim(equals + 1, line.at + line.n);
    if (is_piece(name, "aws_access_key_id"))
        return set_text(set->access_key, sizeof set->access_key, value.at, value.n);
    if (is_piece(name, "aws_secret_access_key"))
        return set_text(set->secret_key, sizeof set->secret_key, value.at, value.n);
    if (is_piece(name, "aws_session_token"))
        return set_text(set->token, sizeof set->token, value.at, value.n);
    return true;
}

bool qr_credentials_read_file(const char *text, size_t bytes, const char *profile,
                              qr_credentials_set *set)
{
    const char *end = text + bytes;
    bool is_ours = false;
    memset(set, 0, sizeof *set);
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline == NULL ? end : newline;
        piece line = trim(text, stop);
        text = newline == NULL ? end : newline + 1;
        if (line.n == 0 || line.at[0] == '#' || line.at[0] == ';')
            continue;
        if (line.at[0] == '[' && line.at[line.n - 1] == ']')
            is_ours = is_piece(trim(line.at + 1, line.at + line.n - 1), profile);
        else if (is_ours && !take_setting(set, line))
            return false;
    }
    return is_whole(set);
}

/* ---- what a URI answers ------------------------------------------------------ */

typedef struct reader {
    const char *at;
    const char *end;
} reader;

static void skip_blanks(reader *r)
{
    while (r->at < r->end && (is_blank(*r->at) || *r->at == '\n'))
        r->at++;
}

static bool take_char(reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* A string with the escapes that its values may need. Returns its length, or -1. */
static int read_string(reader *r, char *to, size_t room)
{
    size_t n = 0;
    if (!take_char(r, '"'))
        return -1;
    while (r->at < r->end && *r->at != '"') {
        char c = *r->at++;
        if (c == '\\') {
            if (r->at == r->end || strchr("\"\\/", *r->at) == NULL || *r->at == 0)
                return -1;
            c = *r->at++;
        }
        if (n + 1 >= room || (unsigned char)c < ' ')
            return -1;
        to[n++] = c;
    }
    to[n] = 0;
    return take_char(r, '"') ? (int)n : -1;
}

static bool skip_word(reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && strchr(",}[]{\" \t\r\n", *r->at) == NULL)
        r->at++;
    return r->at > begin;
}

/* "2026-09-30T12:00:00Z", with parts of a second or without. */
static bool read_time(const char *text, int64_t *seconds)
{
    struct tm t = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &t);
    if (rest != NULL && *rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (rest == NULL || (strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0))
        return false;
    *seconds = timegm(&t);
    return *seconds > 0;
}

static bool take_member(reader *r, qr_credentials_set *set, char value[QR_CREDENTIALS_TOKEN])
{
    char name[64];
    if (read_string(r, name, sizeof name) < 0 || !take_char(r, ':'))
        return false;
    skip_blanks(r);
    if (r->at < r->end && *r->at != '"')
        return skip_word(r); /* a number, true, null */
    int n = read_string(r, value, QR_CREDENTIALS_TOKEN);
    if (n < 0)
        return false;
    if (strcmp(name, "AccessKeyId") == 0)
        return set_text(set->access_key, sizeof set->access_key, value, (size_t)n);
    if (strcmp(name, "SecretAccessKey") == 0)
        return set_text(set->secret_key, sizeof set->secret_key, value, (size_t)n);
    if (strcmp(name, "Token") == 0)
        return set_text(set->token, sizeof set->token, value, (size_t)n);
    return strcmp(name, "Expiration") != 0 || read_time(value, &set->expires_s);
}

bool qr_credentials_read_json(const char *text, size_t bytes, qr_credentials_set *set)
{
    char value[QR_CREDENTIALS_TOKEN];
    reader r = {text, text + bytes};
    bool is_read = take_char(&r, '{');
    memset(set, 0, sizeof *set);
    do
        is_read = is_read && take_member(&r, set, value);
    while (is_read && take_char(&r, ','));
    qr_memory_wipe(value, sizeof value);
    is_read = is_read && take_char(&r, '}');
    skip_blanks(&r);
    return is_read && r.at == r.end && is_whole(set);
}

/* ---- another generation ------------------------------------------------------ */

static bool use_next(qr_credentials *c)
{
    bool is_new = c->generation == 0 || memcmp(&c->now, &c->next, sizeof c->now) != 0;
    if (is_new) {
        c->now = c->next;
        c->generation++;
    }
    qr_memory_wipe(&c->next, sizeof c->next);
    return is_new;
}

/* NULL: c->next has them. */
static const char *read_open_file(qr_credentials *c, int fd, const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return "not a regular file";
    if ((about->st_mode & 077) != 0)
        return "other users can read it: chmod 600";
    ssize_t n = read(fd, c->body, sizeof c->body);
    if (n < 0)
        return strerror(errno);
    if (n == (ssize_t)sizeof c->body)
        return "longer than 16 KiB";
    bool is_read = qr_credentials_read_file(c->body, (size_t)n, c->profile, &c->next);
    qr_memory_wipe(c->body, (size_t)n);
    return is_read ? NULL
                   : "no such profile with valid aws_access_key_id and aws_secret_access_key";
}

static const char *read_file(qr_credentials *c)
{
    struct stat about;
    int fd = open(c->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
    if (fd < 0)
        return strerror(errno);
    const char *wrong = fstat(fd, &about) != 0 ? strerror(errno) : read_open_file(c, fd, &about);
    close(fd);
    if (wrong != NULL)
        return wrong;
    c->changed = about.st_mtim;
    c->file_bytes = about.st_size;
    c->inode = about.st_ino;
    return NULL;
}

static bool has_changed(const qr_credentials *c)
{
    struct stat about;
    return stat(c->file, &about) == 0 &&
           (about.st_mtim.tv_sec != c->changed.tv_sec ||
            about.st_mtim.tv_nsec != c->changed.tv_nsec || about.st_size != c->file_bytes ||
            about.st_ino != c->inode);
}

bool qr_credentials_reload(qr_credentials *c, bool is_forced)
{
    if (c->source != QR_CREDENTIALS_FILE || (!is_forced && !has_changed(c)))
        return false;
    return read_file(c) == NULL && use_next(c);
}

bool qr_credentials_is_due(const qr_credentials *c, int64_t now_s)
{
    return c->source == QR_CREDENTIALS_URI_SOURCE &&
           (c->generation == 0 ||
            (c->now.expires_s != 0 && c->now.expires_s - now_s < RENEW_BEFORE_S));
}

bool qr_credentials_take(qr_credentials *c, size_t bytes)
{
    bool is_read = qr_credentials_read_json(c->body, bytes, &c->next);
    qr_memory_wipe(c->body, sizeof c->body);
    if (is_read)
        (void)use_next(c);
    return is_read;
}

const char *qr_credentials_authorization(qr_credentials *c)
{
    if (c->token_file != NULL) {
        int fd = open(c->token_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t n = fd < 0 ? -1 : read(fd, c->uri_token, sizeof c->uri_token - 1);
        if (fd >= 0)
            close(fd);
        c->uri_token[n > 0 ? n : 0] = 0;
        c->uri_token[strcspn(c->uri_token, "\r\n")] = 0;
    }
    return c->uri_token[0] == 0 ? NULL : c->uri_token;
}

/* ---- opening ------------------------------------------------------------------ */

static int use_keys(qr_credentials *c, const char *access, const char *secret, const char *token,
                    const char *where)
{
    qr_credentials_set *set = &c->next;
    c->source = QR_CREDENTIALS_FIXED;
    token = token == NULL ? "" : token;
    if (!set_text(set->access_key, sizeof set->access_key, access, strlen(access)) ||
        !set_text(set->secret_key, sizeof set->secret_key, secret, strlen(secret)) ||
        !set_text(set->token, sizeof set->token, token, strlen(token)) || !is_whole(set))
        return qr_fail(QUIRE_E_CONFIG,
                       "%s: invalid access key, secret key or session token (expected printable "
                       "characters without blanks, 1..128, 1..128 and 0..%d)",
                       where, QR_CREDENTIALS_TOKEN - 1);
    (void)use_next(c);
    return QUIRE_OK;
}

static int use_file(qr_credentials *c, const char *file, const char *profile)
{
    c->source = QR_CREDENTIALS_FILE;
    profile = profile != NULL ? profile : getenv("AWS_PROFILE");
    profile = profile != NULL ? profile : "default";
    if (strlen(profile) >= sizeof c->profile)
        return qr_fail(QUIRE_E_CONFIG, "profile is too long (expected at most %zu characters)",
                       sizeof c->profile - 1);
    memcpy(c->profile, profile, strlen(profile) + 1);
    c->file = qr_alloc_text(file);
    if (c->file == NULL)
        return QUIRE_E_NOMEM;
    const char *wrong = read_file(c);
    if (wrong != NULL)
        return qr_fail(QUIRE_E_CONFIG, "credentials_file %s, profile %s: %s", file, profile, wrong);
    (void)use_next(c);
    return QUIRE_OK;
}

/* The secret is sent in the answer: without TLS only from this machine or from the machine's own
 * address for that. */
static bool is_safe_uri(const char *uri)
{
    static const char *const known[] = {"169.254.170.2", "169.254.170.23", "fd00:ec2::23"};
    qr_address address;
    if (strncmp(uri, "https://", 8) == 0)
        return true;
    if (strncmp(uri, "http://", 7) != 0 ||
        !qr_address_parse(&address, uri + 7, strcspn(uri + 7, "/?"), 80) || address.is_unix)
        return false;
    for (int i = 0; i < 3; i++)
        if (strcmp(address.host, known[i]) == 0)
            return true;
    return qr_address_is_local(&address);
}

static int use_uri(qr_credentials *c, const char *uri, const char *token_file)
{
    c->source = QR_CREDENTIALS_URI_SOURCE;
    if (!set_text(c->uri, sizeof c->uri, uri, strlen(uri)) || !is_safe_uri(uri))
        return qr_fail(QUIRE_E_CONFIG,
                       "invalid credentials_uri \"%s\" (expected https://..., or http:// to this "
                       "machine, 169.254.170.2 or 169.254.170.23; at most %d characters)",
                       uri, QR_CREDENTIALS_URI - 1);
    const char *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (token_file == NULL)
        token_file = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (token_file == NULL)
        (void)snprintf(c->uri_token, sizeof c->uri_token, "%s", token == NULL ? "" : token);
    else if ((c->token_file = qr_alloc_text(token_file)) == NULL)
        return QUIRE_E_NOMEM;
    return QUIRE_OK;
}

static int use_environment(qr_credentials *c, const quire_tier_object_config *config)
{
    char text[4096];
    const char *key = getenv("AWS_ACCESS_KEY_ID");
    const char *secret = getenv("AWS_SECRET_ACCESS_KEY");
    const char *file = getenv("AWS_SHARED_CREDENTIALS_FILE");
    const char *home = getenv("HOME");
    const char *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    if (key != NULL && secret != NULL)
        return use_keys(c, key, secret, getenv("AWS_SESSION_TOKEN"), "the environment");
    if (file == NULL && home != NULL &&
        snprintf(text, sizeof text, "%s/.aws/credentials", home) < (int)sizeof text)
        file = text;
    if (file != NULL && access(file, F_OK) == 0)
        return use_file(c, file, config->profile);
    if (full != NULL)
        return use_uri(c, full, config->credentials_token_file);
    if (relative != NULL &&
        snprintf(text, sizeof text, "http://169.254.170.2%s", relative) < (int)sizeof text)
        return use_uri(c, text, config->credentials_token_file);
    return qr_fail(QUIRE_E_CONFIG,
                   "no credentials: set access_key and secret_key, credentials_file or "
                   "credentials_uri, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
}

int qr_credentials_open(qr_credentials *c, const quire_tier_object_config *config)
{
    int num_sources = (config->access_key != NULL) + (config->credentials_file != NULL) +
                      (config->credentials_uri != NULL);
    if (num_sources > 1)
        return qr_fail(QUIRE_E_CONFIG,
                       "access_key, credentials_file and credentials_uri: set at most one");
    if ((config->access_key == NULL) != (config->secret_key == NULL) ||
        (config->access_key == NULL && config->session_token != NULL))
        return qr_fail(QUIRE_E_CONFIG,
                       "access_key and secret_key: set both or neither; session_token needs both");
    if (config->access_key != NULL)
        return use_keys(c, config->access_key, config->secret_key, config->session_token,
                        "access_key");
    if (config->credentials_file != NULL)
        return use_file(c, config->credentials_file, config->profile);
    if (config->credentials_uri != NULL)
        return use_uri(c, config->credentials_uri, config->credentials_token_file);
    return use_environment(c, config);
}

void qr_credentials_close(qr_credentials *c)
{
    qr_free(c->file);
    qr_free(c->token_file);
    qr_memory_wipe(c, sizeof *c);
}
