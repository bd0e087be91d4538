/* cli/options/replay_options.h - the options of `quire replay`, and of all that replays: `quire
 * sweep`.
 *
 *      static replay_options o = REPLAY_OPTIONS_INIT;
 *      static const option table[] = {REPLAY_OPTIONS(o), {0}};
 *      ...
 *      replay_setup setup;
 *      int status = replay_prepare(&cmd, &o, &setup);    0, or an exit status
 *      replay_run(&setup.settings, ...);
 *      replay_unprepare(&setup);
 */
#ifndef QUIRE_CLI_OPTIONS_REPLAY_OPTIONS_H
#define QUIRE_CLI_OPTIONS_REPLAY_OPTIONS_H

#include "engine.h"
#include "memory_options.h"
#include "output/made_by.h"
#include "replay/report.h"
#include "tiers_options.h"
#include "trace/files.h"

/* `settings` has what is passed on as it is given; replay_prepare fills in the rest. */
typedef struct replay_options {
    engine_options engine;
    const char *format;
    int hash_algo;
    swap_options swap;
    const char *slo;
    const char *retention; /* NULL: not given */
    bool is_adaptive;      /* --long-prefill-token-threshold-adaptive */
    tiers_options tiers;
    replay_settings settings;
} replay_options;

#define REPLAY_OPTIONS_INIT                                                                        \
    {                                                                                              \
        .engine = ENGINE_OPTIONS_INIT, .tiers = TIERS_OPTIONS_INIT, .settings = {                  \
            .sched = QUIRE_SCHED_CONFIG_INIT,                                                      \
            .speed = 1,                                                                            \
            .enable_prefix_caching = true,                                                         \
            .enable_chunked_prefill = true,                                                        \
            .reserve_full_sequence = true                                                          \
        }                                                                                          \
    }

extern const char *const replay_clocks[];
extern const char *const replay_policies[];
extern const char *const replay_victims[];
extern const char *const replay_hash_algos[];

/* Rows of a table of options; clang-format makes them unreadable. */
/* clang-format off */
#define REPLAY_OPTIONS(o) REPLAY_OPTIONS_BUT_SPEED(o, "speed")

/* The same, where --speed means something else. */
#define REPLAY_OPTIONS_BUT_SPEED(o, speed_name)                                                    \
    REPLAY_OPTIONS_WITH(                                                                           \
        o, speed_name,                                                                             \
        "count requests that keep ttft=2s,tpot=50ms,e2e=30s (any of the three): goodput", "none")

/* The same, where --slo means something else. */
#define REPLAY_OPTIONS_WITH(o, speed_name, slo_help, slo_def)                                      \
    TRACE_OPTIONS((o).settings.trace, (o).format,                                                  \
                  "skip invalid records and requests that cannot be served, and count them"),      \
    {"clock", OPTION_CHOICE, &(o).settings.clock, "KIND",                                          \
     "requests arrive at the trace's times, all at once, or one after the other",                  \
     .def = "trace", .choices = replay_clocks, .section = "Time"},                                 \
    {speed_name, OPTION_REAL, &(o).settings.speed, "FACTOR",                                       \
     "requests arrive this many times as fast as in the trace",                                    \
     .def = "1", .min = 1e-6, .max = 1e9},                                                         \
    {"max-steps", OPTION_U64, &(o).settings.max_steps, "N",                                        \
     "stop after N steps", .def = "no limit"},                                                     \
    {"slo", OPTION_TEXT, &(o).slo, "LIMITS", slo_help, .def = slo_def, .has_commas = true},        \
    {"scheduling-policy", OPTION_CHOICE, &(o).settings.sched.policy, "KIND",                       \
     "order in which requests are admitted", .def = "fcfs",                                        \
     .choices = replay_policies, .section = "Scheduler"},                                          \
    {"long-prefill-token-threshold", OPTION_U32, &(o).settings.sched.long_prefill_token_threshold, \
     "TOKENS",                                                                                     \
     "maximum prompt tokens of one request in a step", .def = "any"},                              \
    {"enable-chunked-prefill", OPTION_SWITCH, &(o).settings.enable_chunked_prefill, NULL,          \
     "compute prompts in chunks", .def = "on"},                                                    \
    {"enable-prefix-caching", OPTION_SWITCH, &(o).settings.enable_prefix_caching, NULL,            \
     "reuse cached prefixes", .def = "on"},                                                        \
    {"reserve-full-sequence", OPTION_SWITCH, &(o).settings.reserve_full_sequence, NULL,            \
     "admit a prompt only if all of it fits", .def = "on"},                                        \
    {"lookahead", OPTION_U32, &(o).settings.sched.lookahead, "N",                                  \
     "blocks that the next N waiting requests will find are evicted last", .def = "0",             \
     .max = 4096},                                                                                 \
    {"prefix-window", OPTION_U32, &(o).settings.sched.prefix_window, "N",                          \
     "look at the first N waiting requests, and admit the one with the longest cached prefix",     \
     .def = "0: the order of the queue", .max = 1024},                                             \
    {"prefix-patience", OPTION_U32, &(o).settings.sched.prefix_patience, "TIMES",                  \
     "with --prefix-window: a request waits for at most so many times the requests and tokens "    \
     "that its place in the queue makes it wait for",                                              \
     .def = "4", .max = 1000},                                                                     \
    {"pin-ttl", OPTION_REAL, &(o).settings.pin_ttl_s, "SECONDS",                                   \
     "keep the blocks of a session for this time after each turn but the last",                    \
     .def = "0: not", .max = 1e9},                                                                 \
    PRESSURE_OPTIONS((o).settings.pressure),                                                       \
    {"victim", OPTION_CHOICE, &(o).settings.sched.victim, "KIND",                                  \
     "which running request is preempted: the last, the least urgent, or the least recent",        \
     .def = "by the policy", .choices = replay_victims},                                           \
    SWAP_OPTIONS((o).swap),                                                                        \
    {"async-scheduling", OPTION_SWITCH, &(o).settings.async_scheduling, NULL,                      \
     "schedule a step while the one before is computed", .def = "off"},                            \
    {"prefix-caching-hash-algo", OPTION_CHOICE, &(o).hash_algo, "KIND",                            \
     "decisions do not depend on it", .def = "quire128", .choices = replay_hash_algos},            \
    ENGINE_PROFILE_OPTIONS((o).engine, (o).settings.sched.profile,                                 \
                           "vLLM 0.20.0 or 0.32.0 with its bugs, or without bugs"),                \
    {"prefix-cache-retention-interval", OPTION_TEXT, &(o).retention, "TOKENS|all",                 \
     "which blocks of windows later requests find: blocks at the end of a prompt (0), also "       \
     "blocks at each multiple of TOKENS, or all (not in vllm-0.20)",                               \
     .def = "0"},                                                                                  \
    {"max-num-active-seqs", OPTION_U32, &(o).settings.sched.max_num_active_seqs, "N",              \
     "vllm-0.32: maximum requests that run", .def = "--max-num-seqs", .max = 1 << 20},     \
    {"long-prefill-token-threshold-adaptive", OPTION_SWITCH, &(o).is_adaptive, NULL,               \
     "vllm-0.32: the threshold is at least the tokens of a step divided by the requests",          \
     .def = "off"},                                                                                \
    TIERS_OPTIONS((o).tiers), ENGINE_PLAN_OPTIONS((o).engine), ENGINE_MODEL_OPTIONS((o).engine)
/* clang-format on */

typedef struct replay_setup {
    replay_settings settings;
    char trace_names[TRACE_NAMES_BYTES];
    engine_setup engine;
    plan_result plan_result;
    quire_plan *plan;
} replay_setup;

/* The traces are the command's arguments. */
int replay_prepare(const command *cmd, const replay_options *o, replay_setup *setup);
void replay_unprepare(replay_setup *setup);
/* What a report is about; made_by stays the caller's. */
report_subject replay_subject(const replay_setup *setup, json_t *made_by);
/* The record of a command that was parsed and prepared (made_by.h), with what its options came to.
 * trace: of the record, to be taken over; NULL: made here. */
json_t *replay_made_by(const command *cmd, const replay_setup *setup, json_t *trace);

#endif
