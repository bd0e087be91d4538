#include "pools.h"

#include <stdlib.h>
#include <string.h>

const char *const pool_roles[] = {"serve", "prefill", "decode", NULL};

/* Others are of all engines: those that names of blocks and the size of their KV depend on too. */
static const char *const OWN[] = {"gpu",
                                  "tp",
                                  "gpu-memory",
                                  "gpu-flops",
                                  "gpu-bandwidth",
                                  "gpu-memory-utilization",
                                  "reserve-memory",
                                  "num-gpu-blocks",
                                  "max-model-len",
                                  "max-num-seqs",
                                  "max-num-batched-tokens",
                                  "long-prefill-token-threshold",
                                  "scheduling-policy",
                                  "quantization",
                                  "time-constants",
                                  "node-bandwidth",
                                  NULL};

static bool is_own(const char *name)
{
    for (uint32_t i = 0; OWN[i] != NULL; i++)
        if (strcmp(OWN[i], name) == 0)
            return true;
    return false;
}

static int read_role(const command *cmd, const char *word, pool_spec *spec)
{
    for (uint32_t i = 0; pool_roles[i] != NULL; i++)
        if (strcmp(pool_roles[i], word) == 0) {
            spec->role = (router_role)i;
            return 0;
        }
    return command_error(cmd,
                         "invalid role \"%s\" in --pool %s (expected serve, prefill or decode)",
                         word, spec->text);
}

static int read_number(const command *cmd, const char *word, pool_spec *spec)
{
    char *end = NULL;
    unsigned long n =
        word != NULL && word[0] >= '0' && word[0] <= '9' ? strtoul(word, &end, 10) : 0;
    if (end == NULL || *end != '\0' || n < 1 || n > FLEET_MAX_WORKERS)
        return command_error(cmd, "invalid number of engines \"%s\" in --pool %s (expected 1..%d)",
                             word != NULL ? word : "", spec->text, FLEET_MAX_WORKERS);
    spec->num_workers = (uint32_t)n;
    return 0;
}

/* "gpu=H100" */
static int read_option(const command *cmd, char *word, pool_spec *spec)
{
    char *equals = strchr(word, '=');
    if (equals == NULL)
        return command_error(cmd, "invalid option \"%s\" in --pool %s (expected OPTION=VALUE)",
                             word, spec->text);
    *equals = '\0';
    if (!is_own(word) || option_find(cmd, word) == NULL)
        return command_error(
            cmd,
            "--%s cannot be an option of one pool (--pool %s); a pool may have gpu, "
            "tp, num-gpu-blocks, max-num-seqs, max-num-batched-tokens, "
            "max-model-len, node-bandwidth and others of the GPU",
            word, spec->text);
    if (spec->num_options == POOL_MAX_OPTIONS)
        return command_error(cmd, "--pool %s: more than %d options", spec->text, POOL_MAX_OPTIONS);
    spec->options[spec->num_options++] = (pool_option){.name = word, .value = equals + 1};
    return 0;
}

static int read_spec(const command *cmd, pool_spec *spec)
{
    spec->words = strdup(spec->text);
    if (spec->words == NULL)
        return command_failed(cmd, "not enough memory");
    char *number = strchr(spec->words, ':');
    char *options = NULL;
    if (number != NULL) {
        *number++ = '\0';
        options = strchr(number, ':');
    }
    if (options != NULL)
        *options++ = '\0';
    int status = read_role(cmd, spec->words, spec);
    if (status == 0)
        status = read_number(cmd, number, spec);
    while (status == 0 && options != NULL) {
        char *word = options;
        options = strchr(word, ',');
        if (options != NULL)
            *options++ = '\0';
        status = read_option(cmd, word, spec);
    }
    return status;
}

static bool has_role(const pool_list *list, router_role role)
{
    for (uint32_t i = 0; i < list->num_specs; i++)
        if (list->specs[i].role == role)
            return true;
    return false;
}

bool pools_is_apart(const pool_list *list)
{
    return has_role(list, ROUTER_PREFILL);
}

int pools_read(const command *cmd, const option_list *texts, pool_list *list)
{
    uint64_t num_workers = 0;
    *list = (pool_list){0};
    for (uint32_t i = 0; i < texts->count; i++) {
        pool_spec *spec = &list->specs[list->num_specs++];
        spec->text = texts->texts[i];
        int status = read_spec(cmd, spec);
        if (status != 0)
            return status;
        num_workers += spec->num_workers;
    }
    bool has_prefill = has_role(list, ROUTER_PREFILL);
    bool has_decode = has_role(list, ROUTER_DECODE);
    if (num_workers > FLEET_MAX_WORKERS)
        return command_error(cmd, "--pool: %llu engines in all (expected 1..%d)",
                             (unsigned long long)num_workers, FLEET_MAX_WORKERS);
    if (has_prefill != has_decode)
        return command_error(cmd, "--pool %s needs --pool %s:N", has_prefill ? "prefill" : "decode",
                             has_prefill ? "decode" : "prefill");
    if (has_prefill && has_role(list, ROUTER_SERVE))
        return command_error(cmd, "--pool serve cannot be used with --pool prefill and --pool "
                                  "decode");
    list->num_workers = (uint32_t)num_workers;
    return 0;
}

void pools_free(pool_list *list)
{
    for (uint32_t i = 0; i < list->num_specs; i++)
        free(list->specs[i].words);
    list->num_specs = 0;
}
