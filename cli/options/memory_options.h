/* cli/options/memory_options.h - host memory, swap, and how full the pool may get.
 *
 *      --cpu-blocks 32768        or   --cpu-memory 64Gi         blocks that are offloaded
 *      --swap-blocks 4096        or   --swap-memory 8Gi         KV of preempted requests
 *
 * Bytes are those of one GPU: each GPU has its part of every block, and host memory of its own for
 * it. So N GPUs take N times as much, and the number of blocks is the same.
 *
 * The scheduler swaps a request of n blocks and m tokens if
 *
 *      2 * (setup_ns + n * block_ns) < m * token_ns
 *
 * The three times are told to the scheduler: by default what the link and the time model say. In a
 * replay a copy takes the link's time, whatever the scheduler was told.
 */
#ifndef QUIRE_CLI_OPTIONS_MEMORY_OPTIONS_H
#define QUIRE_CLI_OPTIONS_MEMORY_OPTIONS_H

#include "model/time_model.h"
#include "options.h"

/* Between a GPU and the host, in each direction. */
typedef struct host_link {
    double gbps;
    double latency_us; /* of one copy, whatever its size */
} host_link;

#define HOST_LINK_INIT                                                                             \
    {                                                                                              \
        .gbps = 55, .latency_us = 10                                                               \
    }

/* clang-format off */
#define HOST_LINK_OPTIONS(l)                                                                       \
    {"cpu-bandwidth", OPTION_REAL, &(l).gbps, "GB/S",                                              \
     "bandwidth between a GPU and the host, in each direction", .def = "55", .min = 1e-6},         \
    {"cpu-latency", OPTION_REAL, &(l).latency_us, "US", "latency of one copy", .def = "10"}
/* clang-format on */

/* Two options for the same memory. */
typedef struct host_memory {
    const char *blocks_name;
    const char *bytes_name;
    uint32_t blocks; /* 0: not given */
    uint64_t bytes;  /* 0: not given */
    uint32_t min_blocks;
    uint32_t max_blocks;
} host_memory;

/* *num_blocks: 0 if neither is given. 0, or an exit status after a sentence. */
int host_memory_resolve(const command *cmd, const host_memory *given, uint64_t block_bytes,
                        uint32_t *num_blocks);

/* ---- swap ---- */

typedef struct swap_options {
    uint32_t blocks;
    uint64_t memory;
    double setup_us; /* 0: from the link; so is the next */
    double swap_us;
    double recompute_us; /* 0: from the time model */
} swap_options;

typedef struct swap_settings {
    uint32_t num_blocks; /* 0: no swapping; so are all others then */
    uint64_t setup_ns;   /* to begin the copies of a request, as the scheduler is told */
    uint64_t block_ns;   /* to move a block one way, as the scheduler is told */
    uint64_t token_ns;   /* to compute a token, as the scheduler is told */
    double bytes_per_s;  /* of the link */
    double latency_s;
} swap_settings;

enum { SWAP_MAX_BLOCKS = 1 << 28 }; /* the library's limit */

/* clang-format off */
#define SWAP_OPTIONS(s)                                                                            \
    {"swap-blocks", OPTION_U32, &(s).blocks, "N",                                                  \
     "blocks of host memory for the KV of preempted requests", .def = "0: they are computed again",\
     .max = SWAP_MAX_BLOCKS},                                                                      \
    {"swap-memory", OPTION_U64, &(s).memory, "BYTES",                                              \
     "the same in bytes, for each GPU", .def = "by --swap-blocks", .max = 1e15},                   \
    {"swap-setup-cost", OPTION_REAL, &(s).setup_us, "US",                                          \
     "time to start the copies of a request, for the choice between swap and recompute",           \
     .def = "by --cpu-latency", .min = 0.001, .max = 4294967},                                     \
    {"swap-cost", OPTION_REAL, &(s).swap_us, "US",                                                 \
     "time to move a block one way, for the choice between swap and recompute",                    \
     .def = "by --cpu-bandwidth", .min = 0.001, .max = 4294967},                                   \
    {"recompute-cost", OPTION_REAL, &(s).recompute_us, "US",                                       \
     "time to compute a token, for the choice between swap and recompute",                         \
     .def = "by the time model", .min = 0.001, .max = 4294967}
/* clang-format on */

int swap_resolve(const command *cmd, const swap_options *o, const host_link *link,
                 const time_model *time, uint64_t block_bytes, swap_settings *settings);

/* ---- pressure: watermark, and the two marks ---- */

typedef struct pressure_options {
    double watermark;
    double admit_below;   /* 0: the default */
    double preempt_above; /* 0: no memory pressure */
} pressure_options;

#define PRESSURE_ADMIT_BELOW 0.8 /* the library's default */

/* clang-format off */
#define PRESSURE_OPTIONS(p)                                                                        \
    {"watermark", OPTION_REAL, &(p).watermark, "PART",                                             \
     "part of the pool that a new request must leave free", .def = "0", .max = 1},                 \
    {"admit-below", OPTION_REAL, &(p).admit_below, "PART",                                         \
     "with --preempt-above: admit only while less than this part of the pool is used",             \
     .def = "0.8", .max = 1},                                                                      \
    {"preempt-above", OPTION_REAL, &(p).preempt_above, "PART",                                     \
     "preempt while more than this part of the pool is used (memory pressure)",                    \
     .def = "0: not", .max = 1}
/* clang-format on */

static inline double pressure_admit_below(const pressure_options *o)
{
    return o->admit_below > 0 ? o->admit_below : PRESSURE_ADMIT_BELOW;
}

/* 0, or an exit status after a sentence. */
int pressure_check(const command *cmd, const pressure_options *o);

#endif
