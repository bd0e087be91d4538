#include "tier/net/name.h"

#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef enum name_state { IDLE, ASKED, LOOKING, ANSWERED } name_state;

struct qr_name {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd;
    pthread_t thread;
    bool has_thread;
    bool is_closed;
    bool is_left; /* closed during a lookup: the thread frees all of this */
    name_state state;
    qr_address address;
    int count;
    qr_endpoint endpoints[QR_ADDRESS_MAX];
};

static void free_name(qr_name *name)
{
    close(name->fd);
    pthread_cond_destroy(&name->changed);
    pthread_mutex_destroy(&name->lock);
    qr_free(name);
}

static int look_up(const qr_address *address, qr_endpoint *endpoints)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int count = 0;
    if (getaddrinfo(address->host, NULL, &hints, &found) != 0)
        return 0;
    for (const struct addrinfo *a = found; a != NULL && count < QR_ADDRESS_MAX; a = a->ai_next) {
        qr_endpoint *e = &endpoints[count];
        if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) ||
            a->ai_addrlen > sizeof e->address)
            continue;
        memset(e, 0, sizeof *e);
        memcpy(&e->address, a->ai_addr, a->ai_addrlen);
        e->bytes = a->ai_addrlen;
        if (a->ai_family == AF_INET)
            ((struct sockaddr_in *)&e->address)->sin_port = htons(address->port);
        else
            ((struct sockaddr_in6 *)&e->address)->sin6_port = htons(address->port);
        count++;
    }
    freeaddrinfo(found);
    return count;
}

static void *run_lookups(void *argument)
{
    qr_name *name = argument;
    pthread_mutex_lock(&name->lock);
    while (!name->is_closed) {
        if (name->state != ASKED) {
            pthread_cond_wait(&name->changed, &name->lock);
            continue;
        }
        qr_address address = name->address;
        qr_endpoint endpoints[QR_ADDRESS_MAX];
        name->state = LOOKING;
        pthread_mutex_unlock(&name->lock);
        int count = look_up(&address, endpoints);
        pthread_mutex_lock(&name->lock);
        name->count = count;
        memcpy(name->endpoints, endpoints, (size_t)count * sizeof *endpoints);
        name->state = ANSWERED;
        uint64_t one = 1;
        (void)!write(name->fd, &one, sizeof one); /* a counter: there is always room */
    }
    bool is_left = name->is_left;
    pthread_mutex_unlock(&name->lock);
    if (is_left)
        free_name(name);
    return NULL;
}

qr_name *qr_name_open(void)
{
    qr_name *name = qr_alloc(1, sizeof *name);
    if (name == NULL)
        return NULL;
    name->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (name->fd < 0) {
        qr_free(name);
        return NULL;
    }
    pthread_mutex_init(&name->lock, NULL);
    pthread_cond_init(&name->changed, NULL);
    return name;
}

void qr_name_close(qr_name *name)
{
    if (name == NULL)
        return;
    if (!name->has_thread) {
        free_name(name);
        return;
    }
    pthread_t thread = name->thread;
    pthread_mutex_lock(&name->lock);
    name->is_closed = true;
    bool is_left = name->state == LOOKING;
    name->is_left = is_left;
    pthread_cond_signal(&name->changed);
    pthread_mutex_unlock(&name->lock);
    if (is_left) {
        pthread_detach(thread);
    } else {
        pthread_join(thread, NULL);
        free_name(name);
    }
}

int qr_name_fd(const qr_name *name)
{
    return name->fd;
}

bool qr_name_ask(qr_name *name, const qr_address *address)
{
    if (!name->has_thread)
        name->has_thread = qr_thread_start(&name->thread, "quire-names", run_lookups, name);
    if (!name->has_thread)
        return false;
    pthread_mutex_lock(&name->lock);
    bool is_free = name->state == IDLE;
    if (is_free) {
        name->address = *address;
        name->state = ASKED;
        pthread_cond_signal(&name->changed);
    }
    pthread_mutex_unlock(&name->lock);
    return is_free;
}

int qr_name_answer(qr_name *name, qr_address *asked, qr_endpoint *endpoints)
{
    int count = -1;
    uint64_t times;
    pthread_mutex_lock(&name->lock);
    if (name->state == ANSWERED) {
        (void)!read(name->fd, &times, sizeof times);
        *asked = name->address;
        count = name->count;
        memcpy(endpoints, name->endpoints, (size_t)count * sizeof *endpoints);
        name->state = IDLE;
    }
    pthread_mutex_unlock(&name->lock);
    return count;
}
