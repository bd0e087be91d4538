/* tier/file/file_kit.h - a file tier in a folder of its own, and blocks whose bytes follow from
 * their
 * keys: what comes back is either those bytes or no block.
 */
#ifndef FILE_KIT_H
#define FILE_KIT_H

#include <quire/tier_file.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

enum { KIT_BLOCK = 8192, KIT_MAX_IOS = 64, KIT_LOG = 16384 };

typedef struct file_kit {
    char folder[64];
    char path[96];
    char log[KIT_LOG]; /* all lines */
    quire_tier_file_config config;
    quire_tier_config common;
    quire_tier *tier;
    unsigned char *memory; /* KIT_MAX_IOS blocks, on a page */
    quire_tier_io ios[KIT_MAX_IOS];
    quire_tier_job job;
} file_kit;

/* A new folder; config for num_blocks blocks of block_bytes. */
void kit_begin(file_kit *kit, uint32_t num_blocks, uint32_t block_bytes);
void kit_end(file_kit *kit); /* closes, removes the folder */
int kit_open(file_kit *kit); /* also where there is one */
void kit_close(file_kit *kit);

uint64_t kit_capacity(uint32_t num_blocks, uint32_t block_bytes);
quire_tier_key kit_key(uint64_t number);
void kit_fill(void *memory, uint32_t bytes, uint64_t number);
bool kit_is_filled(const void *memory, uint32_t bytes, uint64_t number);

/* One job of n keys from first on; returns how many ended with status. Statuses are in kit->ios. */
uint32_t kit_run(file_kit *kit, quire_tier_op op, uint64_t first, uint32_t n,
                 quire_tier_status status);
void kit_submit(file_kit *kit, quire_tier_op op, uint64_t first, uint32_t n);
void kit_wait(file_kit *kit);
/* Loads them; those that are DONE must have their bytes, and others no bytes of theirs are asked.
 * Returns how many came. */
uint32_t kit_load_all(file_kit *kit, uint64_t first, uint32_t n);

/* Changes bytes of the file behind the tier's back. */
void kit_poke(const file_kit *kit, uint64_t offset, const void *bytes, size_t num_bytes);
void kit_peek(const file_kit *kit, uint64_t offset, void *bytes, size_t num_bytes);
uint32_t kit_open_files(void); /* of this process */

#endif
