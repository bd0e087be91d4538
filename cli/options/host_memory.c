#include "host_memory.h"

static unsigned long long number(uint64_t n)
{
    return n;
}

int host_memory_resolve(const command *cmd, const host_memory *given, uint64_t block_bytes,
                        uint32_t *num_blocks)
{
    *num_blocks = given->blocks;
    if (given->bytes == 0)
        return 0;
    if (given->blocks > 0)
        return command_error(cmd, "--%s %u and --%s %llu are the same memory: give one of them",
                             given->blocks_name, given->blocks, given->bytes_name,
                             number(given->bytes));
    uint64_t blocks = given->bytes / block_bytes;
    if (blocks < given->min_blocks || blocks > given->max_blocks)
        return command_error(
            cmd,
            "invalid value \"%llu\" for --%s (expected %llu..%llu: %u to %u blocks of %llu bytes)",
            number(given->bytes), given->bytes_name, number(given->min_blocks * block_bytes),
            number(given->max_blocks * block_bytes), given->min_blocks, given->max_blocks,
            number(block_bytes));
    *num_blocks = (uint32_t)blocks;
    return 0;
}
