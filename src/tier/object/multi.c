/* tier/object/multi.c - libcurl's sockets and its timer in a turn of the tier's thread.
 *
 *      client's epoll ── sockets_fd, an epoll inside of it ── libcurl's sockets
 *
 * libcurl says which sockets it waits for and when it wants to be called; nothing here waits. */
#include "tier/object/object.h"

#include "base/bits.h"
#include "base/hooks.h"
#include "base/refuse.h"
#include "base/thread.h"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = QR_AT_A_TIME(64, 1), NS_PER_MS = 1000000, ROUNDS = 4 };

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
    const quire_tier_object *object = user;
    struct epoll_event event = {.data.fd = fd};
    (void)easy;
    (void)known;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(object->sockets_fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    event.events |= (what & CURL_POLL_IN) != 0 ? EPOLLIN : 0u;
    event.events |= (what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0u;
    if (epoll_ctl(object->sockets_fd, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return epoll_ctl(object->sockets_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -1;
}

static int set_timer(CURLM *multi, long timeout_ms, void *user)
{
    quire_tier_object *object = user;
    (void)multi;
    object->timer_ns =
        timeout_ms < 0 ? UINT64_MAX : qr_now_ns(NULL) + (uint64_t)timeout_ms * NS_PER_MS;
    return 0;
}

int qr_multi_open(quire_tier_object *object)
{
    object->timer_ns = UINT64_MAX;
    object->sockets_fd = epoll_create1(EPOLL_CLOEXEC);
    if (object->sockets_fd < 0 ||
        !qr_socket_watch(object->net.epoll_fd, object->sockets_fd, &object->sockets))
        return QUIRE_E_SYSTEM;
    object->multi = curl_multi_init();
    if (object->multi == NULL)
        return QUIRE_E_NOMEM;
    long most = (long)object->num_lanes;
    bool is_set =
        curl_multi_setopt(object->multi, CURLMOPT_SOCKETFUNCTION, watch_socket) == CURLM_OK &&
        curl_multi_setopt(object->multi, CURLMOPT_SOCKETDATA, object) == CURLM_OK &&
        curl_multi_setopt(object->multi, CURLMOPT_TIMERFUNCTION, set_timer) == CURLM_OK &&
        curl_multi_setopt(object->multi, CURLMOPT_TIMERDATA, object) == CURLM_OK &&
        curl_multi_setopt(object->multi, CURLMOPT_MAXCONNECTS, most) == CURLM_OK &&
        curl_multi_setopt(object->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING) == CURLM_OK;
    return is_set ? QUIRE_OK : QUIRE_E_NOMEM;
}

void qr_multi_close(quire_tier_object *object)
{
    if (object->multi != NULL)
        (void)curl_multi_cleanup(object->multi);
    if (object->sockets_fd >= 0)
        close(object->sockets_fd);
}

/* ---- signals ---------------------------------------------------------------- */

/* TLS in libcurl may raise SIGPIPE, and libcurl may start a thread that looks up a name: without
 * signals, also on a thread that is not the tier's. */
static void end_without_signals(const sigset_t *before)
{
    sigset_t pipe;
    sigset_t pending;
    struct timespec now = {0};
    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE);
    if (sigismember(before, SIGPIPE) == 0 && sigpending(&pending) == 0 &&
        sigismember(&pending, SIGPIPE) == 1)
        (void)sigtimedwait(&pipe, NULL, &now);
    qr_signals_restore(before);
}

/* ---- driving ----------------------------------------------------------------- */

static void act_on_sockets(quire_tier_object *object)
{
    struct epoll_event events[EVENTS];
    int running;
    int n = epoll_wait(object->sockets_fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        unsigned what = events[i].events;
        int bits = ((what & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                   ((what & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                   ((what & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        (void)curl_multi_socket_action(object->multi, events[i].data.fd, bits, &running);
    }
}

static void act_on_timer(quire_tier_object *object)
{
    int running;
    if (qr_now_ns(NULL) < object->timer_ns)
        return;
    object->timer_ns = UINT64_MAX; /* libcurl sets it again */
    (void)curl_multi_socket_action(object->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

static void take_ended(quire_tier_object *object)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(object->multi, &left)) != NULL) {
        char *user = NULL;
        CURL *easy = message->easy_handle;
        CURLcode result = message->data.result; /* the message does not outlive the handle's stay */
        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
        if (easy == object->renewal.easy)
            qr_renew_take(object, result);
        else
            qr_answer_take((qr_lane *)(void *)user, result);
        act_on_timer(
            object); /* a PUT begins with the hash of its block: others are sent meanwhile */
        act_on_sockets(object);
    }
}

void qr_multi_drive(quire_tier_object *object)
{
    sigset_t before;
    if (object->num_taken == 0 && !object->renewal.is_running &&
        qr_now_ns(NULL) < object->timer_ns && !object->sockets.can_read)
        return;
    object->sockets.can_read = false;
    qr_signals_block(&before);
    act_on_sockets(object);
    for (int i = 0; i < ROUNDS && qr_now_ns(NULL) >= object->timer_ns; i++)
        act_on_timer(object);
    take_ended(object);
    end_without_signals(&before);
}

uint64_t qr_multi_next_time(const quire_tier_object *object)
{
    uint64_t now = qr_now_ns(NULL);
    if (object->timer_ns == UINT64_MAX)
        return UINT64_MAX;
    return object->net.now_ns + (object->timer_ns > now ? object->timer_ns - now : 0);
}
