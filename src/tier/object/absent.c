/* tier/object/absent.c - in the place of all other files here where there is no libcurl. */
#include <quire/tier_object.h>

#include "base/refuse.h"

#include <stddef.h>

static int refuse(void)
{
    return qr_fail(QUIRE_E_CONFIG, "libquire_tier was built without libcurl: the object store tier "
                                   "does not exist; install libcurl and build again");
}

QUIRE_API const quire_tier_ops *quire_tier_object_ops(void)
{
    return NULL;
}

QUIRE_API int quire_tier_object_create(const quire_tier_object_config *config, uint32_t max_jobs,
                                       const quire_hooks *hooks, quire_tier_object **object)
{
    (void)config;
    (void)max_jobs;
    (void)hooks;
    if (object == NULL)
        return QUIRE_E_ARGUMENT;
    *object = NULL;
    return refuse();
}

QUIRE_API int quire_tier_object_open(const quire_tier_object_config *config,
                                     const quire_tier_config *common,
                                     const quire_allocator *allocator, quire_tier **tier,
                                     quire_tier_object **object)
{
    (void)config;
    (void)common;
    (void)allocator;
    if (tier == NULL)
        return QUIRE_E_ARGUMENT;
    *tier = NULL;
    if (object != NULL)
        *object = NULL;
    return refuse();
}

QUIRE_API int quire_tier_object_get_stats(const quire_tier_object *object,
                                          quire_tier_object_stats *stats)
{
    (void)object;
    (void)stats;
    return QUIRE_E_ARGUMENT;
}

QUIRE_API int quire_tier_object_is_built(void)
{
    return 0;
}
