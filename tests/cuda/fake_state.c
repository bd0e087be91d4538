/* cuda/fake_state.c - which memory is taken, what goes wrong when, and how tests ask for it. */
#include "fake_state.h"

#include "fake_stream.h"
#include "tier/device/cuda/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MEMORIES = 4096, FAKE_VERSION = 13000, NAME_BYTES = 96 };
enum { CAPTURE_UNSUPPORTED = 900, INVALID_CONTEXT = 201 };

typedef struct memory {
    uint64_t address;
    uint64_t bytes;
    bool is_pinned;
    bool is_ours; /* not memory that was only registered */
} memory;

static pthread_mutex_t state = PTHREAD_MUTEX_INITIALIZER;
static memory memories[MOST_MEMORIES];
static uint32_t num_memories;
static _Atomic uint64_t memories_version = 1; /* counts changes */
static uint64_t num_live_others;
static uint64_t strays;
static uint64_t misuses;
static bool is_captured;
static uint64_t calls_so_far;
static char failing_call[NAME_BYTES];
static uint64_t failing_after;
static int failing_result;
static int lost_result;
static uint64_t device_limit = UINT64_MAX;
static uint64_t pinned_limit = UINT64_MAX;
static int version = FAKE_VERSION;

/* ---- faults ---------------------------------------------------------------- */

/* Contexts that a thread has pushed: a key's value, since a leak checker stumbles over a thread's
 * own variables in a library that came by dlopen. */
static pthread_key_t depth_key;
static pthread_once_t depth_once = PTHREAD_ONCE_INIT;

static void make_depth_key(void)
{
    if (pthread_key_create(&depth_key, NULL) != 0)
        abort();
}

static uintptr_t get_depth(void)
{
    (void)pthread_once(&depth_once, make_depth_key);
    return (uintptr_t)pthread_getspecific(depth_key);
}

static void set_depth(uintptr_t depth)
{
    (void)pthread_setspecific(depth_key, (void *)depth);
}

static bool is_one_of(const char *call, const char *const *prefixes)
{
    for (; *prefixes != NULL; prefixes++)
        if (strncmp(call, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

/* What this call gives before it has done anything. */
int fake_begin(const char *call)
{
    static const char *const NEED_NO_CONTEXT[] = {"cuInit", "cuDriver", "cuDevice", "cuCtxP", NULL};
    static const char *const DISTURB_CAPTURES[] = {"cuEventQuery", "cuEventSync", "cuStreamQuery",
                                                   "cuStreamSync", NULL};
    int result = 0;
    pthread_mutex_lock(&state);
    calls_so_far++;
    if (get_depth() == 0 && !is_one_of(call, NEED_NO_CONTEXT)) {
        misuses++;
        result = INVALID_CONTEXT;
    }
    if (is_captured && is_one_of(call, DISTURB_CAPTURES))
        result = CAPTURE_UNSUPPORTED;
    if (failing_after > 0 && (failing_call[0] == '\0' || strcmp(failing_call, call) == 0) &&
        --failing_after == 0)
        result = failing_result;
    if (lost_result != 0 && strncmp(call, "cuCtxP", 6) != 0) /* it can still be made current */
        result = lost_result;
    pthread_mutex_unlock(&state);
    return result;
}

void fake_count_misuse(void)
{
    pthread_mutex_lock(&state);
    misuses++;
    pthread_mutex_unlock(&state);
}

void fake_push_context(void)
{
    set_depth(get_depth() + 1);
}

bool fake_pop_context(void)
{
    uintptr_t depth = get_depth();
    if (depth == 0) {
        fake_count_misuse();
        return false;
    }
    set_depth(depth - 1);
    return true;
}

/* ---- memory ---------------------------------------------------------------- */

void fake_count_live(int change)
{
    pthread_mutex_lock(&state);
    num_live_others += (uint64_t)(int64_t)change;
    pthread_mutex_unlock(&state);
}

static uint64_t bytes_taken(bool is_pinned)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < num_memories; i++)
        bytes += memories[i].is_pinned == is_pinned ? memories[i].bytes : 0;
    return bytes;
}

int fake_add_memory(uint64_t address, uint64_t bytes, bool is_pinned, bool is_ours)
{
    int result = 0;
    pthread_mutex_lock(&state);
    if (num_memories == MOST_MEMORIES ||
        bytes > (is_pinned ? pinned_limit : device_limit) - bytes_taken(is_pinned))
        result = QR_CU_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < num_memories; i++)
        if (address != 0 && address < memories[i].address + memories[i].bytes &&
            memories[i].address < address + bytes) /* as the driver says it */
            result = memories[i].is_ours ? QR_CU_INVALID_VALUE : QR_CU_ALREADY_REGISTERED;
    if (result == 0)
        memories[num_memories++] = (memory){address, bytes, is_pinned, is_ours};
    memories_version++;
    pthread_mutex_unlock(&state);
    return result;
}

int fake_remove_memory(uint64_t address, bool is_pinned, bool is_ours)
{
    int result = QR_CU_INVALID_VALUE;
    pthread_mutex_lock(&state);
    for (uint32_t i = 0; i < num_memories && result != 0; i++)
        if (memories[i].address == address && memories[i].is_pinned == is_pinned &&
            memories[i].is_ours == is_ours) {
            memories[i] = memories[--num_memories];
            memories_version++;
            result = 0;
        }
    pthread_mutex_unlock(&state);
    return result;
}

/* Where an address lies; NULL: nowhere. */
static const memory *find_memory(uint64_t address, size_t bytes)
{
    for (uint32_t i = 0; i < num_memories; i++)
        if (address >= memories[i].address &&
            address + bytes <= memories[i].address + memories[i].bytes)
            return &memories[i];
    return NULL;
}

bool fake_is_taken(uint64_t address, size_t bytes)
{
    pthread_mutex_lock(&state);
    bool is_taken = find_memory(address, bytes) != NULL;
    pthread_mutex_unlock(&state);
    return is_taken;
}

uint64_t fake_get_bytes(uint64_t address)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&state);
    for (uint32_t i = 0; i < num_memories; i++)
        bytes = memories[i].address == address ? memories[i].bytes : bytes;
    pthread_mutex_unlock(&state);
    return bytes;
}

int fake_get_version(void)
{
    pthread_mutex_lock(&state);
    int now = version;
    pthread_mutex_unlock(&state);
    return now;
}

void fake_get_room(size_t *free_bytes, size_t *total)
{
    pthread_mutex_lock(&state);
    *total = device_limit == UINT64_MAX ? (size_t)1 << 34 : device_limit;
    *free_bytes = *total - bytes_taken(false);
    pthread_mutex_unlock(&state);
}

/* Kernels ask for every vector, mostly in the same memory as before. */
void fake_touch(uint64_t address, size_t bytes)
{
    static _Thread_local memory last;
    static _Thread_local uint64_t last_version;
    if (last_version == memories_version && address >= last.address &&
        address + bytes <= last.address + last.bytes)
        return;
    pthread_mutex_lock(&state);
    const memory *found = find_memory(address, bytes);
    strays += found == NULL ? 1 : 0;
    last_version = found == NULL ? 0 : memories_version;
    if (found != NULL)
        last = *found;
    pthread_mutex_unlock(&state);
}

int fake_take(uint64_t *address, size_t bytes, bool is_pinned)
{
    void *all = bytes == 0 ? NULL : aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (all == NULL)
        return bytes == 0 ? QR_CU_INVALID_VALUE : QR_CU_OUT_OF_MEMORY;
    memset(all, 0xa5, bytes); /* nobody may believe that it is empty */
    int result = fake_add_memory((uintptr_t)all, bytes, is_pinned, true);
    if (result != 0)
        free(all);
    else
        *address = (uintptr_t)all;
    return result;
}

/* ---- for tests ------------------------------------------------------------- */

static void control_fail(const char *call, uint64_t nth, int result)
{
    pthread_mutex_lock(&state);
    failing_call[0] = '\0';
    if (call != NULL)
        (void)strncat(failing_call, call, sizeof failing_call - 1);
    failing_after = nth;
    failing_result = result;
    pthread_mutex_unlock(&state);
}

static void control_lose(int result)
{
    fake_stream_set_lost(result != 0);
    pthread_mutex_lock(&state);
    lost_result = result;
    pthread_mutex_unlock(&state);
}

static void control_limit(uint64_t device_bytes, uint64_t pinned_bytes)
{
    pthread_mutex_lock(&state);
    device_limit = device_bytes;
    pinned_limit = pinned_bytes;
    pthread_mutex_unlock(&state);
}

static void control_capture(bool is_on)
{
    pthread_mutex_lock(&state);
    is_captured = is_on;
    pthread_mutex_unlock(&state);
}

static void control_version(int wanted)
{
    pthread_mutex_lock(&state);
    version = wanted;
    pthread_mutex_unlock(&state);
}

static uint64_t control_num_calls(void)
{
    pthread_mutex_lock(&state);
    uint64_t n = calls_so_far;
    pthread_mutex_unlock(&state);
    return n;
}

static uint64_t control_num_live(void)
{
    pthread_mutex_lock(&state);
    uint64_t n = num_live_others + num_memories;
    pthread_mutex_unlock(&state);
    return n;
}

static uint64_t control_num_strays(void)
{
    pthread_mutex_lock(&state);
    uint64_t n = strays;
    pthread_mutex_unlock(&state);
    return n;
}

static uint64_t control_num_misuses(void)
{
    pthread_mutex_lock(&state);
    uint64_t n = misuses;
    pthread_mutex_unlock(&state);
    return n;
}

/* Also forgets what a lost context could not give back. */
static void control_reset(void)
{
    control_fail(NULL, 0, 0);
    control_lose(0);
    control_capture(false);
    control_limit(UINT64_MAX, UINT64_MAX);
    control_version(FAKE_VERSION);
    fake_stream_set_delay_us(0);
    fake_stream_wait_all();
    fake_event_bury();
    pthread_mutex_lock(&state);
    for (uint32_t i = 0; i < num_memories; i++)
        if (memories[i].is_ours)
            free((void *)(uintptr_t)memories[i].address);
    num_memories = 0;
    memories_version++;
    num_live_others = 0;
    strays = 0;
    misuses = 0;
    calls_so_far = 0;
    pthread_mutex_unlock(&state);
}

FAKE_EXPORT const fake_cuda_controls *fake_cuda_get_controls(void);
FAKE_EXPORT const fake_cuda_controls *fake_cuda_get_controls(void)
{
    static const fake_cuda_controls CONTROLS = {
        .reset = control_reset,
        .fail_at = control_fail,
        .num_calls = control_num_calls,
        .lose = control_lose,
        .limit = control_limit,
        .delay_us = fake_stream_set_delay_us,
        .set_version = control_version,
        .num_live = control_num_live,
        .num_strays = control_num_strays,
        .num_misuses = control_num_misuses,
        .capture = control_capture,
    };
    return &CONTROLS;
}
