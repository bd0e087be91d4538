/* watched.c - an engine that can be looked at: metrics for Prometheus, a page for people.
 *
 * With an argument it serves for so many seconds, at a port that the system or a second argument
 * chooses: `example_watched 60 8080`, then open the address that it prints. Without one it makes
 * the steps, asks itself for its metrics, and ends.
 */
#include <quire.h>
#include <quire/http.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK_SIZE = 16, MAX_RUNNING = 8 };

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static void add_request(quire_sched *sched, uint32_t n)
{
    quire_token prompt[200];
    for (quire_token i = 0; i < 200; i++)
        prompt[i] = i < 64 ? i : (quire_token)(n % 5) * 1000 + i; /* five different ends */
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {&n, sizeof n},
                                   .prompt = prompt,
                                   .num_prompt_tokens = 100 + n * 7 % 100,
                                   .max_tokens = 20 + n % 30};
    quire_req req;
    must(quire_sched_add(sched, &params, &req), "add");
}

static void make_step(quire_sched *sched)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[MAX_RUNNING];
    must(quire_sched_schedule(sched, &step), "schedule");
    for (uint32_t i = 0; i < step->num_reqs; i++)
        sampled[i] = (quire_token)(step->step % 1000);
    must(quire_sched_update(
             sched, step->step,
             &(quire_model_output){.size = sizeof(quire_model_output), .sampled = sampled},
             &outputs),
         "update");
}

/* The lines of some metrics, as GET /metrics has them. */
static void print_metrics(quire_monitor *monitor)
{
    static char text[1 << 18];
    const char *const wanted[] = {"vllm:prefix_cache_queries_total{",
                                  "vllm:prefix_cache_hits_total{", "vllm:generation_tokens_total{",
                                  "vllm:num_requests_running{", "quire_blocks{"};
    quire_metrics_format format = QUIRE_METRICS_FORMAT_INIT;
    size_t written;
    format.model_name = "toy";
    must(quire_monitor_write_metrics(monitor, &format, text, sizeof text, &written), "metrics");
    for (char *line = text; *line != 0;) {
        size_t len = strcspn(line, "\n");
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                printf("%.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
}

int main(int argc, char **argv)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BLOCK_SIZE,
                                               .num_kv_heads = 8,
                                               .head_size = 128,
                                               .dtype = QUIRE_DTYPE_BFLOAT16}};
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    quire_sched *sched;
    must(quire_hasher_create(&hashing, NULL, &config.hasher), "hasher");
    cache.num_blocks = 120;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = 256;
    config.max_num_seqs = MAX_RUNNING;
    config.monitor = &monitor;
    must(quire_sched_create(&config, NULL, &sched), "scheduler");

    quire_http *http;
    quire_http_config web = QUIRE_HTTP_CONFIG_INIT;
    web.monitor = quire_sched_get_monitor(sched);
    web.port = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    web.title = "A toy engine";
    web.model_name = "toy";
    must(quire_http_create(&web, &http), quire_refusal());

    double seconds = argc > 1 ? atof(argv[1]) : 0;
    if (seconds > 0) {
        printf("http://127.0.0.1:%u/\n", quire_http_port(http));
        (void)fflush(stdout); /* it is wanted now, in a pipe too */
    }
    uint32_t num_steps = seconds > 0 ? (uint32_t)(seconds * 20) : 400;
    uint32_t num_added = 0;
    for (uint32_t n = 0; n < num_steps; n++) {
        while (quire_sched_get_num_unfinished(sched) < 10 + n / 40 % 6)
            add_request(sched, num_added++);
        make_step(sched);
        if (seconds > 0)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    print_metrics(web.monitor);
    quire_http_destroy(http);
    quire_sched_destroy(sched);
    quire_hasher_destroy(config.hasher);
    return 0;
}
