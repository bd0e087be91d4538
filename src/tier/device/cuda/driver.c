#include "tier/device/cuda/driver.h"

#include "base/refuse.h"

#include <quire/error.h>
#include <stdio.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_VERSION = 11000 };

static const struct {
    const char *symbol;
    size_t offset; /* in qr_cuda_calls */
    bool is_optional;
} CALLS[] = {
#define QR_X(name, version, arguments) {#name #version, offsetof(qr_cuda_calls, name), false},
    QR_CUDA_CALLS(QR_X)
#undef QR_X
#define QR_X(name, version, arguments) {#name #version, offsetof(qr_cuda_calls, name), true},
        QR_CUDA_OPTIONAL_CALLS(QR_X)
#undef QR_X
};

/* The first that the library lacks; NULL when it has all. */
static const char *find_calls(qr_cuda_driver *driver)
{
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        void *call = dlsym(driver->library, CALLS[i].symbol);
        if (call == NULL && !CALLS[i].is_optional)
            return CALLS[i].symbol;
        memcpy((char *)&driver->calls + CALLS[i].offset, &call, sizeof call);
    }
    return NULL;
}

static int start_driver(qr_cuda_driver *driver, const char *path)
{
    char why[160];
    const char *missing = find_calls(driver);
    if (missing != NULL)
        return qr_fail(
            QUIRE_E_SYSTEM,
            "%s has no %s: not a CUDA driver, or older than 11.0; install a newer driver", path,
            missing);
    qr_cu_result result = driver->calls.cuInit(0);
    if (result == QR_CU_SUCCESS)
        result = driver->calls.cuDriverGetVersion(&driver->version);
    if (result != QR_CU_SUCCESS) {
        qr_cuda_describe(driver, result, why, sizeof why);
        return qr_fail(QUIRE_E_SYSTEM, "the CUDA driver does not start: %s; nvidia-smi may say why",
                       why);
    }
    if (driver->version < LEAST_VERSION)
        return qr_fail(
            QUIRE_E_SYSTEM,
            "CUDA driver %d.%d is too old (expected 11.0 or newer); install a newer driver",
            driver->version / 1000, driver->version % 1000 / 10);
    return QUIRE_OK;
}

int qr_cuda_driver_open(qr_cuda_driver *driver, const char *path)
{
    memset(driver, 0, sizeof *driver);
    if (path == NULL)
        path = getenv("QUIRE_CUDA_LIBRARY");
    if (path == NULL || path[0] == '\0')
        path = "libcuda.so.1";
    driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (driver->library == NULL) {
        const char *why = dlerror();
        return qr_fail(
            QUIRE_E_SYSTEM,
            "CUDA driver not found: %s; it comes with the GPU's driver, not with the toolkit",
            why != NULL ? why : path);
    }
    int status = start_driver(driver, path);
    if (status != QUIRE_OK)
        qr_cuda_driver_close(driver);
    return status;
}

void qr_cuda_driver_close(qr_cuda_driver *driver)
{
    if (driver->library != NULL)
        (void)dlclose(driver->library);
    memset(driver, 0, sizeof *driver);
}

void qr_cuda_describe(const qr_cuda_driver *driver, qr_cu_result result, char *text, size_t bytes)
{
    const char *name = NULL;
    const char *sentence = NULL;
    (void)driver->calls.cuGetErrorName(result, &name);
    (void)driver->calls.cuGetErrorString(result, &sentence);
    if (name == NULL)
        (void)snprintf(text, bytes, "CUDA error %d", result);
    else
        (void)snprintf(text, bytes, "%s (%s)", name, sentence != NULL ? sentence : "no text");
}
