#include "tier/net/secret.h"

#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL: it was read; else what is wrong. */
static const char *read_file(const char *path, char *password)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
    const char *wrong = NULL;
    ssize_t n = 0;
    if (fd < 0 || fstat(fd, &about) != 0)
        wrong = strerror(errno);
    else if (!S_ISREG(about.st_mode))
        wrong = "not a regular file";
    else if ((about.st_mode & 077) != 0)
        wrong = "other users can read it: chmod 600";
    else if ((n = read(fd, password, QR_SECRET_BYTES - 1)) <= 0)
        wrong = n < 0 ? strerror(errno) : "the file is empty";
    if (fd >= 0)
        close(fd);
    if (wrong != NULL)
        return wrong;
    password[n] = 0;
    password[strcspn(password, "\r\n")] = 0;
    return NULL;
}

static const char *ask_caller(const qr_secret *secret, char *password)
{
    memset(password, 0, QR_SECRET_BYTES);
    if (secret->get(secret->get_user, password, QR_SECRET_BYTES) != 0)
        return "the function failed";
    password[QR_SECRET_BYTES - 1] = 0;
    return password[0] == 0 ? "the function returned an empty string" : NULL;
}

/* The password of now replaces the one before. NULL, or what is wrong: the one before stays. */
static const char *refresh(qr_secret *secret)
{
    char password[QR_SECRET_BYTES];
    const char *wrong = NULL;
    if (secret->file != NULL)
        wrong = read_file(secret->file, password);
    else if (secret->get != NULL)
        wrong = ask_caller(secret, password);
    else
        return NULL;
    if (wrong == NULL)
        memcpy(secret->password, password, sizeof password);
    OPENSSL_cleanse(password, sizeof password);
    return wrong;
}

static bool copy_text(char *to, const char *text)
{
    return snprintf(to, QR_SECRET_BYTES, "%s", text == NULL ? "" : text) < QR_SECRET_BYTES;
}

int qr_secret_open(qr_secret *secret, const qr_secret_options *options)
{
    secret->is_used = options->text != NULL || options->file != NULL || options->get != NULL;
    secret->has_user = options->user != NULL;
    secret->get = options->get;
    secret->get_user = options->get_user;
    if (!copy_text(secret->user, options->user) || !copy_text(secret->password, options->text))
        return qr_fail(QUIRE_E_CONFIG, "user or %s is too long (expected at most %d characters)",
                       options->field, QR_SECRET_BYTES - 1);
    if (options->file != NULL) {
        secret->file = qr_alloc_text(options->file);
        if (secret->file == NULL)
            return QUIRE_E_NOMEM;
    }
    const char *wrong = refresh(secret);
    if (wrong == NULL && strlen(secret->password) < options->least)
        return qr_fail(QUIRE_E_CONFIG, "%s is too short (expected at least %u characters)",
                       options->field, options->least);
    if (wrong == NULL)
        return QUIRE_OK;
    if (secret->file != NULL)
        return qr_fail(QUIRE_E_CONFIG, "%s_file: %s: %s", options->field, secret->file, wrong);
    return qr_fail(QUIRE_E_CONFIG, "get_%s: %s", options->field, wrong);
}

const char *qr_secret_get(qr_secret *secret)
{
    (void)refresh(secret); /* else the one before is tried */
    return secret->password;
}

uint32_t qr_secret_write_auth(qr_secret *secret, char *at)
{
    (void)refresh(secret); /* else the one before is tried */
    size_t user_bytes = strlen(secret->user);
    size_t bytes = strlen(secret->password);
    int n = secret->has_user
                ? snprintf(at, QR_SECRET_AUTH, "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                           user_bytes, secret->user, bytes, secret->password)
                : snprintf(at, QR_SECRET_AUTH, "*2\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n", bytes,
                           secret->password);
    return (uint32_t)n;
}

void qr_secret_close(qr_secret *secret)
{
    qr_free(secret->file);
    OPENSSL_cleanse(secret, sizeof *secret);
}
