/* A program of a stranger's that needs the libraries beside Quire too: a scheduler that is watched,
 * published over ZeroMQ and served over HTTP, on ports that the system chooses.
 */
#include <quire.h>
#include <quire/events.h>
#include <quire/http.h>

#include <stdio.h>

static int watch(quire_monitor *monitor)
{
    quire_publisher_config p = QUIRE_PUBLISHER_CONFIG_INIT;
    p.monitor = monitor;
    p.endpoint = "tcp://127.0.0.1:*";
    quire_publisher *publisher = NULL;
    int status = quire_publisher_create(&p, &publisher);
    quire_http_config h = QUIRE_HTTP_CONFIG_INIT;
    h.monitor = monitor;
    quire_http *http = NULL;
    if (status == QUIRE_OK)
        status = quire_http_create(&h, &http);
    if (status != QUIRE_OK)
        fprintf(stderr, "%s\n", quire_refusal());
    quire_http_destroy(http);
    quire_publisher_destroy(publisher);
    return status;
}

int main(void)
{
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = 16,
                                               .num_kv_heads = 1,
                                               .head_size = 1,
                                               .dtype = QUIRE_DTYPE_FLOAT32}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = 16;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = 64;
    config.monitor = &monitor;
    quire_hasher *hasher = NULL;
    quire_sched *sched = NULL;
    int status = quire_hasher_create(&hashing, NULL, &hasher);
    config.hasher = hasher;
    if (status == QUIRE_OK)
        status = quire_sched_create(&config, NULL, &sched);
    if (status == QUIRE_OK)
        status = watch(quire_sched_get_monitor(sched));
    quire_sched_destroy(sched);
    quire_hasher_destroy(hasher);
    return status == QUIRE_OK ? 0 : 1;
}
