#include <quire/tier_file.h>

#include "base/config.h"
#include "base/hooks.h"
#include "tier/file/private.h"
#include "tier/file/shared.h"

enum { MOST_THREADS = 64, MOST_DEPTH = 1024, MOST_BLOCK = 1 << 30 };

/* The first setting that is out of its range; NULL: none is. */
static const char *find_wrong(const quire_tier_file_config *config, uint32_t *value, uint32_t *most)
{
    const struct {
        const char *name;
        uint32_t value;
        uint32_t most;
    } settings[] = {{"is_shared", config->is_shared, 1},
                    {"if_other", config->if_other, QUIRE_TIER_FILE_ANEW},
                    {"policy", config->policy, QUIRE_SLOTS_LOOKAHEAD},
                    {"direct", config->direct, QUIRE_OFF},
                    {"uring", config->uring, QUIRE_OFF},
                    {"threads", config->threads, MOST_THREADS},
                    {"depth", config->depth, MOST_DEPTH},
                    {"block_bytes", config->block_bytes, MOST_BLOCK}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        *value = settings[i].value;
        *most = settings[i].most;
        if (*value > *most)
            return settings[i].name;
    }
    return NULL;
}

static int check_config(const quire_tier_file_config *config, char *message, size_t message_bytes)
{
    uint32_t value;
    uint32_t most;
    const char *path = config->path == NULL ? "" : config->path;
    const char *wrong = find_wrong(config, &value, &most);
    if (path[0] == 0)
        qr_say(message, message_bytes, "path is missing");
    else if (config->block_bytes == 0)
        qr_say(message, message_bytes, "%s: invalid block_bytes 0 (expected 1 or more)", path);
    else if (config->capacity_bytes == 0)
        qr_say(message, message_bytes, "%s: invalid capacity_bytes 0 (expected 1 or more)", path);
    else if (wrong != NULL)
        qr_say(message, message_bytes, "%s: invalid %s %u (expected at most %u)", path, wrong,
               value, most);
    else if (config->is_shared && (config->direct == QUIRE_ON || config->uring == QUIRE_ON))
        qr_say(message, message_bytes,
               "%s: a shared directory uses the page cache and threads; leave direct and uring at "
               "their defaults",
               path);
    else if (config->is_shared &&
             config->capacity_bytes < (uint64_t)config->block_bytes + QR_FILE_PAGE)
        qr_say(message, message_bytes,
               "%s: capacity_bytes (%llu) is smaller than one block (%u) and its header", path,
               (unsigned long long)config->capacity_bytes, config->block_bytes);
    else if (config->direct == QUIRE_ON && config->block_bytes % QR_FILE_PAGE != 0)
        qr_say(message, message_bytes,
               "%s: block_bytes %u is not a multiple of %d, which direct requires", path,
               config->block_bytes, QR_FILE_PAGE);
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
    if (status == QUIRE_OK && (with.ops != NULL || with.self != NULL))
        status = QUIRE_E_ARGUMENT;
    if (status != QUIRE_OK) {
        qr_say(message, message_bytes, "the config of a file tier: %s", quire_strerror(status));
        return status;
    }
    status = check_config(&own, message, message_bytes);
    if (status != QUIRE_OK)
        return status;
    with.size = sizeof with;
    if (own.is_shared != 0) {
        with.ops = &qr_file_shared_ops;
        with.self = qr_file_shared_create(&own, &with.hooks);
    } else {
        with.ops = &qr_file_private_ops;
        with.self = qr_file_private_create(&own, &with.hooks);
    }
    if (with.self != NULL)
        return quire_tier_open(&with, allocator, tier, message, message_bytes);
    qr_say(message, message_bytes, "%s: %s", own.path, quire_strerror(QUIRE_E_NOMEM));
    return QUIRE_E_NOMEM;
}
