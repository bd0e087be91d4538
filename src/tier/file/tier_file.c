#include <quire/tier_file.h>

#include "base/config.h"
#include "base/hooks.h"
#include "base/refuse.h"
#include "tier/file/private.h"

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

int qr_file_check_config(const void *callers)
{
    const quire_tier_file_config *config = callers;
    uint32_t value;
    uint32_t most;
    const char *path = config->path == NULL ? "" : config->path;
    const char *wrong = find_wrong(config, &value, &most);
    if (path[0] == 0)
        qr_say("path is missing");
    else if (config->block_bytes == 0)
        qr_say("%s: invalid block_bytes 0 (expected 1 or more)", path);
    else if (config->capacity_bytes == 0)
        qr_say("%s: invalid capacity_bytes 0 (expected 1 or more)", path);
    else if (wrong != NULL)
        qr_say("%s: invalid %s %u (expected at most %u)", path, wrong, value, most);
    else if (config->is_shared && (config->direct == QUIRE_ON || config->uring == QUIRE_ON))
        qr_say("%s: a shared directory uses the page cache and threads; leave direct and uring at "
               "their defaults",
               path);
    else if (config->is_shared &&
             config->capacity_bytes < (uint64_t)config->block_bytes + QR_FILE_PAGE)
        qr_say("%s: capacity_bytes (%llu) is smaller than one block (%u) and its header", path,
               (unsigned long long)config->capacity_bytes, config->block_bytes);
    else if (config->direct == QUIRE_ON && config->block_bytes % QR_FILE_PAGE != 0)
        qr_say("%s: block_bytes %u is not a multiple of %d, which direct requires", path,
               config->block_bytes, QR_FILE_PAGE);
    else
        return QUIRE_OK;
    return QUIRE_E_CONFIG;
}

QUIRE_API int quire_tier_file_open(const quire_tier_file_config *config,
                                   const quire_tier_config *common,
                                   const quire_allocator *allocator, quire_tier **tier)
{
    qr_refuse_clear();
    quire_tier_file_config own;
    bool is_shared = qr_config_read(&own, sizeof own, config) == QUIRE_OK && own.is_shared != 0;
    return qr_tier_open_with(is_shared ? &qr_file_shared_kind : &qr_file_private_kind, config,
                             common, allocator, tier, NULL);
}
