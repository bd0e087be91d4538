/* cli/options/host_memory.h - memory of the host, given as blocks or as bytes, and the link to it.
 *
 *      --cpu-blocks 32768        or   --cpu-memory 64Gi         blocks that are offloaded
 *      --swap-blocks 4096        or   --swap-memory 8Gi         KV of preempted requests
 *
 * Bytes are those of one GPU: each GPU has its part of every block, and host memory of its own for
 * it. So N GPUs take N times as much, and the number of blocks is the same.
 */
#ifndef QUIRE_CLI_OPTIONS_HOST_MEMORY_H
#define QUIRE_CLI_OPTIONS_HOST_MEMORY_H

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

#endif
