#include "tier/net/tls.h"

#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"

#ifndef QUIRE_NO_TLS

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>

struct qr_tls {
    SSL_CTX *context;
    BIO_METHOD *method;
    bool trusts_any;
    bool is_server;
    char server_name[256];
};

bool qr_tls_is_built(void)
{
    return true;
}

/* ---- bytes to and from the socket: OpenSSL's own raises SIGPIPE ----------------- */

static int socket_of(BIO *bio)
{
    return (int)(intptr_t)BIO_get_data(bio);
}

static bool comes_later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static int write_bytes(BIO *bio, const char *bytes, int n)
{
    BIO_clear_retry_flags(bio);
    ssize_t sent = send(socket_of(bio), bytes, (size_t)n, MSG_NOSIGNAL);
    if (sent < 0 && comes_later())
        BIO_set_retry_write(bio);
    return (int)sent;
}

static int read_bytes(BIO *bio, char *bytes, int n)
{
    BIO_clear_retry_flags(bio);
    ssize_t got = recv(socket_of(bio), bytes, (size_t)n, 0);
    if (got < 0 && comes_later())
        BIO_set_retry_read(bio);
    return (int)got;
}

static long control_bio(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *make_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quire");
    if (method == NULL)
        return NULL;
    if (BIO_meth_set_write(method, write_bytes) != 1 ||
        BIO_meth_set_read(method, read_bytes) != 1 || BIO_meth_set_ctrl(method, control_bio) != 1) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- what all connections share -------------------------------------------- */

static int load_ca(const qr_tls *tls, const qr_tls_options *options)
{
    if (options->ca_file == NULL) {
        bool is_fine = tls->is_server || SSL_CTX_set_default_verify_paths(tls->context) == 1;
        return is_fine ? QUIRE_OK : QUIRE_E_SYSTEM;
    }
    STACK_OF(X509_NAME) *names = NULL;
    if (SSL_CTX_load_verify_locations(tls->context, options->ca_file, NULL) != 1 ||
        (tls->is_server && (names = SSL_load_client_CA_file(options->ca_file)) == NULL))
        return qr_fail(QUIRE_E_CONFIG, "tls_ca_file: cannot read %s, or it is not PEM",
                       options->ca_file);
    if (names != NULL)
        SSL_CTX_set_client_CA_list(tls->context, names);
    return QUIRE_OK;
}

static int load_files(const qr_tls *tls, const qr_tls_options *options)
{
    int status = load_ca(tls, options);
    if (status != QUIRE_OK)
        return status;
    bool has_both = options->cert_file != NULL && options->key_file != NULL;
    if (!has_both && (tls->is_server || options->cert_file != options->key_file))
        return qr_fail(QUIRE_E_CONFIG, "tls_cert_file and tls_key_file: set both%s",
                       tls->is_server ? "; a server requires them" : " or neither");
    if (has_both &&
        (SSL_CTX_use_certificate_chain_file(tls->context, options->cert_file) != 1 ||
         SSL_CTX_use_PrivateKey_file(tls->context, options->key_file, SSL_FILETYPE_PEM) != 1 ||
         SSL_CTX_check_private_key(tls->context) != 1))
        return qr_fail(
            QUIRE_E_CONFIG,
            "tls_cert_file %s and tls_key_file %s: cannot read them as PEM, or they do not match",
            options->cert_file, options->key_file);
    return QUIRE_OK;
}

static int verify_mode(const qr_tls_options *options)
{
    if (options->is_server)
        return options->ca_file == NULL ? SSL_VERIFY_NONE
                                        : SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    return options->trusts_any ? SSL_VERIFY_NONE : SSL_VERIFY_PEER;
}

int qr_tls_open(const qr_tls_options *options, qr_tls **out)
{
    qr_tls *tls = qr_alloc(1, sizeof *tls);
    if (tls == NULL)
        return QUIRE_E_NOMEM;
    tls->trusts_any = options->trusts_any;
    tls->is_server = options->is_server;
    const char *name = options->server_name == NULL ? "" : options->server_name;
    if (strlen(name) >= sizeof tls->server_name) {
        qr_tls_close(tls);
        return qr_fail(QUIRE_E_CONFIG, "tls_server_name is too long");
    }
    memcpy(tls->server_name, name, strlen(name) + 1);
    tls->context = SSL_CTX_new(tls->is_server ? TLS_server_method() : TLS_client_method());
    tls->method = make_method();
    int status = tls->context == NULL || tls->method == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
    if (status == QUIRE_OK) {
        SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
        SSL_CTX_set_mode(tls->context,
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        if (tls->is_server) /* nothing of a client outlives its connection */
            SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_verify(tls->context, verify_mode(options), NULL);
        status = load_files(tls, options);
    }
    ERR_clear_error();
    if (status != QUIRE_OK) {
        qr_tls_close(tls);
        return status;
    }
    *out = tls;
    return QUIRE_OK;
}

void qr_tls_close(qr_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    qr_free(tls);
}

/* ---- one connection -------------------------------------------------------- */

/* The name must be in the certificate, an address as an address. */
static bool set_name(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, name) == 1)
        return true;
    ERR_clear_error();
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

void *qr_tls_attach(qr_tls *tls, int fd, const char *host)
{
    SSL *ssl = SSL_new(tls->context);
    BIO *bio = ssl == NULL ? NULL : BIO_new(tls->method);
    const char *name = tls->server_name[0] != 0 ? tls->server_name : host;
    bool has_name = !tls->is_server && !tls->trusts_any;
    if (bio == NULL || (has_name && !set_name(ssl, name))) {
        BIO_free(bio);
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (tls->is_server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

void qr_tls_detach(void *session)
{
    SSL_free(session);
}

/* What the other side said, or how what it sent is no TLS. Static. */
static const char *explain(unsigned long code)
{
    switch (ERR_GET_REASON(code)) {
    case SSL_R_WRONG_VERSION_NUMBER:
        return "the other side does not speak TLS";
#ifdef SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "the other side asks for a certificate: set tls_cert_file and tls_key_file";
#endif
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
        return NULL; /* closed, as without TLS */
#endif
    default:
        return ERR_reason_error_string(code);
    }
}

/* What came back, as the callers know it; the error queue is of the thread, and left empty. */
static int outcome(SSL *ssl, int result)
{
    int error = result > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, result);
    if (error == SSL_ERROR_SSL && SSL_get_app_data(ssl) == NULL)
        SSL_set_app_data(ssl, (char *)(uintptr_t)explain(ERR_peek_error()));
    ERR_clear_error();
    if (result > 0)
        return result;
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

int qr_tls_greet(void *session)
{
    static const char NO_TLS[] =
        "closed during the TLS handshake: the other side may not speak TLS";
    ERR_clear_error();
    int greeted = outcome(session, SSL_do_handshake(session));
    if (greeted < 0 && SSL_get_app_data((SSL *)session) == NULL)
        SSL_set_app_data((SSL *)session, (char *)(uintptr_t)NO_TLS);
    return greeted;
}

ssize_t qr_tls_send(void *session, const void *bytes, size_t n)
{
    ERR_clear_error();
    int sent = outcome(session, SSL_write(session, bytes, n > INT_MAX ? INT_MAX : (int)n));
    char byte;
    if (sent < 0) /* the other side may have said why before it closed */
        (void)outcome(session, SSL_peek(session, &byte, 1));
    return sent;
}

ssize_t qr_tls_receive(void *session, void *bytes, size_t n)
{
    ERR_clear_error();
    return outcome(session, SSL_read(session, bytes, n > INT_MAX ? INT_MAX : (int)n));
}

const char *qr_tls_reason(void *session)
{
    long verified = SSL_get_verify_result(session);
    bool is_checked = SSL_get_verify_mode(session) != SSL_VERIFY_NONE;
    return is_checked && verified != X509_V_OK ? X509_verify_cert_error_string(verified)
                                               : SSL_get_app_data((SSL *)session);
}

#else

bool qr_tls_is_built(void)
{
    return false;
}

int qr_tls_open(const qr_tls_options *options, qr_tls **out)
{
    (void)options;
    (void)out;
    return qr_fail(QUIRE_E_CONFIG, "tls: this library was built without libssl");
}

#endif
