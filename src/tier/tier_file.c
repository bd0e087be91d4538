#include <quire/tier_file.h>

#include "base/config.h"
#include "tier/file_private.h"
#include "tier/file_shared.h"
#include "tier/system.h"

static int check_config(const quire_tier_file_config *config, char *message, size_t message_bytes)
{
    if (config->path == NULL || config->path[0] == 0)
        qr_tier_say(message, message_bytes, "a file tier needs a path");
    else if (config->block_bytes == 0)
        qr_tier_say(message, message_bytes, "%s: block_bytes is 0; how large are blocks?",
                    config->path);
    else if (config->capacity_bytes == 0)
        qr_tier_say(message, message_bytes, "%s: capacity_bytes is 0; how much may be stored?",
                    config->path);
    else if (config->is_shared > 1 || config->if_other > QUIRE_TIER_FILE_ANEW ||
             config->policy > QUIRE_SLOTS_LOOKAHEAD || config->direct > QUIRE_OFF ||
             config->uring > QUIRE_OFF || config->threads > 64 || config->depth > 1024)
        qr_tier_say(message, message_bytes, "%s: a setting is out of its range", config->path);
    else if (config->is_shared && (config->direct == QUIRE_ON || config->uring == QUIRE_ON))
        qr_tier_say(
            message, message_bytes,
            "%s: a shared directory goes through the page cache, by threads; do not ask for "
            "direct or uring",
            config->path);
    else if (config->direct == QUIRE_ON && config->block_bytes % QR_FILE_PAGE != 0)
        qr_tier_say(message, message_bytes,
                    "%s: blocks of %u bytes are no whole pages of %d, which direct needs",
                    config->path, config->block_bytes, QR_FILE_PAGE);
    else
        return QUIRE_OK;
    return QUIRE_E_CONFIG;
}

QUIRE_API int quire_tier_file_open(const quire_tier_file_config *config,
                                   const quire_tier_config *common,
                                   const quire_allocator *allocator, quire_tier **tier,
                                   char *message, size_t message_bytes)
{
    quire_tier_file_config own;
    quire_tier_config with = QUIRE_TIER_CONFIG_INIT;
    if (tier == NULL)
        return QUIRE_E_ARGUMENT;
    *tier = NULL;
    int status = qr_config_read(&own, sizeof own, config);
    if (status == QUIRE_OK && common != NULL)
        status = qr_config_read(&with, sizeof with, common);
    if (status == QUIRE_OK)
        status = check_config(&own, message, message_bytes);
    if (status != QUIRE_OK)
        return status;
    if (with.ops != NULL || with.self != NULL)
        return QUIRE_E_ARGUMENT;
    with.size = sizeof with;
    if (own.is_shared != 0) {
        with.ops = &qr_file_shared_ops;
        with.self = qr_file_shared_create(&own, &with.hooks);
    } else {
        with.ops = &qr_file_private_ops;
        with.self = qr_file_private_create(&own, &with.hooks);
    }
    return with.self == NULL ? QUIRE_E_NOMEM
                             : quire_tier_open(&with, allocator, tier, message, message_bytes);
}
