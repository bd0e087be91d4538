#include "http/server_kit.h"

#include <dirent.h>
#include <unistd.h>

void server_open(server_kit *kit)
{
    memset(kit, 0, sizeof *kit);
    engine_open(&kit->engine, 11, true, 0);
    client_reply_init(&kit->reply);
    kit->config = (quire_http_config)QUIRE_HTTP_CONFIG_INIT;
    kit->config.monitor = kit->engine.monitor;
    kit->config.model_name = "tiny";
    kit->config.stuck_s = 3600; /* these engines rest when they like */
}

void server_start(server_kit *kit)
{
    if (quire_http_create(&kit->config, &kit->http) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    kit->port = quire_http_port(kit->http);
    assert_true(kit->port > 0);
}

void server_close(server_kit *kit)
{
    quire_http_destroy(kit->http);
    client_reply_free(&kit->reply);
    engine_close(&kit->engine);
}

int server_get(server_kit *kit, const char *path)
{
    char line[1024];
    snprintf(line, sizeof line, "GET %s", path);
    return client_get(kit->port, line, NULL, &kit->reply);
}

bool server_is_alive(server_kit *kit)
{
    return server_get(kit, "/healthz") == 200;
}

uint64_t server_rss_kib(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %lu", &pages), 1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

uint32_t server_num_files(void)
{
    uint32_t num = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        num++;
    closedir(folder);
    return num;
}
