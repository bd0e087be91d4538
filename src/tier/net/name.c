#include "tier/net/name.h"

#include "base/memory.h"
#include "base/thread.h"

#include <netdb.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* LEFT: closed during a lookup; the thread frees all of it. */
typedef enum name_state { IDLE, LOOKING, ANSWERED, CLOSED, LEFT } name_state;

struct qr_name {
    _Atomic name_state state;
    qr_address address; /* LOOKING: these three are the thread's */
    int count;
    qr_endpoint endpoints[QR_ADDRESS_MAX];
    sem_t changed; /* to LOOKING or CLOSED */
    int fd;
    pthread_t thread;
    bool has_thread;
};

static void free_name(qr_name *name)
{
    close(name->fd);
    sem_destroy(&name->changed);
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

static name_state await_change(qr_name *name)
{
    while (sem_wait(&name->changed) != 0) /* interrupted */
        continue;
    return atomic_load(&name->state);
}

static void *run_lookups(void *argument)
{
    qr_name *name = argument;
    name_state state = await_change(name);
    while (state == LOOKING) {
        uint64_t one = 1;
        name->count = look_up(&name->address, name->endpoints);
        if (!atomic_compare_exchange_strong(&name->state, &state, ANSWERED))
            break;
        (void)!write(name->fd, &one, sizeof one); /* a counter: there is always room */
        state = await_change(name);
    }
    if (state == LEFT)
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
    (void)sem_init(&name->changed, 0, 0);
    return name;
}

void qr_name_close(qr_name *name)
{
    name_state looking = LOOKING;
    if (name == NULL)
        return;
    pthread_t thread = name->thread;
    if (atomic_compare_exchange_strong(&name->state, &looking, LEFT)) {
        pthread_detach(thread);
        return;
    }
    atomic_store(&name->state, CLOSED);
    if (name->has_thread) {
        sem_post(&name->changed);
        pthread_join(thread, NULL);
    }
    free_name(name);
}

int qr_name_fd(const qr_name *name)
{
    return name->fd;
}

bool qr_name_ask(qr_name *name, const qr_address *address)
{
    if (!name->has_thread)
        name->has_thread = qr_thread_start(&name->thread, "quire-names", run_lookups, name);
    if (!name->has_thread || atomic_load(&name->state) != IDLE)
        return false;
    name->address = *address;
    atomic_store(&name->state, LOOKING);
    sem_post(&name->changed);
    return true;
}

int qr_name_answer(qr_name *name, const qr_address **asked, const qr_endpoint **endpoints)
{
    uint64_t times;
    if (atomic_load(&name->state) != ANSWERED)
        return -1;
    (void)!read(name->fd, &times, sizeof times);
    *asked = &name->address;
    *endpoints = name->endpoints;
    atomic_store(&name->state, IDLE);
    return name->count;
}
