/* base/rules.h - rules: what a profile decides where vLLM's releases differ. A handle reads the rules
 * of its profile once, when it is created. Bugs that a profile reproduces are quirks (base/quirks.h).
 */
#ifndef QR_BASE_RULES_H
#define QR_BASE_RULES_H

#include <quire/config.h>

#include <stdbool.h>

typedef struct qr_rules {
    /* A freed block without a key goes to the head of the free queue (vLLM #42656). */
    bool reuses_empty_first;

    /* ---- keys ---- */

    /* The key of a block of several hashes is the last of them, not all joined (#45939). */
    bool keys_by_last_hash;
    /* A full group's block gets one more key where the prompt's last hash ends inside it (#46384). */
    bool keys_prompt_tails;
    /* Several groups: blocks get keys up to a multiple of all block sizes, since no hit ends
     * elsewhere (#42258). */
    bool caches_to_alignment;
    /* Window and Mamba groups: only blocks where a later request can resume get keys, as
     * prefix_cache_retention_interval says (#43447, #52216). */
    bool retains_boundaries;

    /* ---- lookups ---- */

    /* EAGLE, several groups: the block that is looked up and dropped may be the prompt's last. */
    bool probes_last_block;
    /* Several groups may all be equal. */
    bool takes_equal_groups;

    /* ---- allocation ---- */

    /* allocate_slots itself asks whether the whole sequence fits (#41064). */
    bool checks_whole_sequence;
    /* The watermark is for a request that waits while others are scheduled: the caller says so
     * (#44594). Else for every request without blocks, while others have some. */
    bool watermark_by_caller;
    /* Which hits are behind the window follows from all computed tokens; else from the certain ones.
     */
    bool skips_by_computed;
    /* A load may bring no tokens, if there is a hit. */
    bool takes_bare_hits;
    /* Mamba states are given back as soon as the next one is computed; else drafts of the step
     * before are waited for (#47728). */
    bool frees_states_at_once;

    /* ---- the rest ---- */

    /* New blocks of all attention groups are listed to be zeroed; else those of plain full groups
     * (#44490). */
    bool zeroes_all_attention;
    /* Decode context parallelism makes the blocks of attention groups larger, and may go with Mamba
     * groups; prefill context parallelism changes no block size. Else both make all blocks larger,
     * and want one group. */
    bool shards_attention_only;
    /* Common prefix blocks are not counted: cascade attention is gone. */
    bool counts_no_common;
    /* A cache without groups has nothing to reset. */
    bool resets_groups_only;
    /* Layers of kinds TQ_FULL and SINK_FULL, Mamba mode ALL: gone, or not able to start (0.26 on). */
    bool has_no_old_kinds;
} qr_rules;

const qr_rules *qr_rules_of(quire_profile profile);

#endif
