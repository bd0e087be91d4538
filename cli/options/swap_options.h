/* cli/options/swap_options.h - host memory in which the KV of preempted requests is kept.
 *
 *      SWAP_OPTIONS(o)       rows of a table of options
 *      swap_resolve          what they come to; 0, or an exit status after a sentence
 *
 * The scheduler swaps a request of n blocks and m tokens if
 *
 *      2 * (setup_ns + n * block_ns) < m * token_ns
 *
 * The three times are told to the scheduler: by default what the link and the time model say. In a
 * replay a copy takes the link's time, whatever the scheduler was told.
 */
#ifndef QUIRE_CLI_OPTIONS_SWAP_OPTIONS_H
#define QUIRE_CLI_OPTIONS_SWAP_OPTIONS_H

#include "host_memory.h"
#include "model/time_model.h"

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
     "time to start the copies of a request, for the choice between swap and recompute",    \
     .def = "by --cpu-latency", .min = 0.001, .max = 4294967},                                     \
    {"swap-cost", OPTION_REAL, &(s).swap_us, "US",                                                 \
     "time to move a block one way, for the choice between swap and recompute",             \
     .def = "by --cpu-bandwidth", .min = 0.001, .max = 4294967},                                   \
    {"recompute-cost", OPTION_REAL, &(s).recompute_us, "US",                                       \
     "time to compute a token, for the choice between swap and recompute",                  \
     .def = "by the time model", .min = 0.001, .max = 4294967}
/* clang-format on */

int swap_resolve(const command *cmd, const swap_options *o, const host_link *link,
                 const time_model *time, uint64_t block_bytes, swap_settings *settings);

#endif
