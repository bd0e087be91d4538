/* api/image_api.c - quire/image.h: argument checks, then one call inward. */
#include "sched/image/image.h"

#include <quire/image.h>

static bool is_scheduler(const quire_sched *sched)
{
    return sched != NULL && sched->magic == QR_SCHED_MAGIC;
}

int quire_sched_save(const quire_sched *sched, void *image, size_t bytes, size_t *written)
{
    if (!is_scheduler(sched) || written == NULL || (image == NULL && bytes > 0))
        return QUIRE_E_ARGUMENT;
    if (image == NULL) {
        *written = qr_sched_image_bytes(sched);
        return QUIRE_E_TOO_SMALL;
    }
    return sched->partners.is_inside ? QUIRE_E_ARGUMENT
                                     : qr_sched_save(sched, image, bytes, written);
}

/* A scheduler that was just made gets its state, or goes. */
static int load_or_destroy(quire_sched *made, const void *image, size_t image_bytes,
                           quire_sched **sched)
{
    int err = qr_sched_load(made, image, image_bytes);
    if (err != QUIRE_OK) {
        quire_sched_destroy(made);
        return err;
    }
    qr_sched_tell_levels(made);
    if (made->watch.monitor != NULL)
        made->watch.monitor->info.has_content =
            quire_pool_get_counts(made->cache->pool).num_keys > 0;
    *sched = made;
    return QUIRE_OK;
}

int quire_sched_restore(const quire_sched_config *config, const quire_allocator *allocator,
                        const void *image, size_t image_bytes, quire_sched **sched)
{
    if (image == NULL || sched == NULL)
        return QUIRE_E_ARGUMENT;
    quire_sched *made;
    int err = qr_image_check_frame(image, image_bytes);
    if (err == QUIRE_OK)
        err = quire_sched_create(config, allocator, &made);
    return err == QUIRE_OK ? load_or_destroy(made, image, image_bytes, sched) : err;
}
