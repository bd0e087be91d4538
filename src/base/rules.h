/* base/rules.h - rules: what a profile decides where vLLM's releases differ. A handle reads the
 * rules of its profile once, when it is created. Bugs that a profile reproduces are quirks
 * (base/quirks.h).
 */
#ifndef QR_BASE_RULES_H
#define QR_BASE_RULES_H

#include <quire/config.h>

#include <stdbool.h>

typedef struct qr_rules {
    /* A freed block without a key goes to the head of the free queue (vLLM #42656). */
    bool reuses_empty_first;
    /* Waiting requests that hold blocks have a queue of their own, which is served first; a request
     * that is skipped keeps its place in its queue (vLLM #58947). A session that waits for input
     * takes a place of max_num_seqs (#46974). */
    bool holders_first;
    /* Outputs of steps that were in flight when a request was preempted are still delivered, and
     * the request is admitted again behind them; a reset drops them (vLLM #48245). */
    bool delivers_stale;
    /* Tokens of steps in flight may still be read: windows keep their blocks (vLLM #47728). */
    bool counts_in_flight;
    /* long_prefill_token_threshold is for engines with more than one request (vLLM #57951). */
    bool threshold_for_many;
    /* EOS, stop tokens and the length end a request below min_tokens too (vLLM #51299). */
    bool stops_below_min;
    /* Blocks for drafts are allocated at admission (vLLM #43733). */
    bool lookahead_at_admission;
    /* A request that is admitted for one token gets drafts (vLLM #45237). */
    bool pads_drafts;
    /* A session's input brings its max_tokens, and the computed frontier ends its turn (#58259). */
    bool input_sets_max_tokens;
    /* A connector is not used for a request that does not read the prefix cache. */
    bool skips_connector_too;
    /* Requests that a reset preempted are listed in the next step (vLLM #42117). */
    bool lists_reset;
    /* A load leaves the blocks that requests in the middle of their prompts need (vLLM #44560). */
    bool reserves_for_prefills;
    /* A request uses an item of the encoder cache through each feature that names it, until the
     * last of these is computed; one size for each identifier (vLLM #45347, #57696, #59942). */
    bool counts_inputs;
    /* After a load that failed in others' blocks the last token is computed again too. */
    bool recomputes_last;
    /* Mamba in align mode: a chunk ends at the first of the places where a state must be kept, and
     * before the encoder's limits are looked at (vLLM #47782, #51603). */
    bool aligns_to_stops;
    /* With a connector that loads, blocks of ended and preempted requests go back to the pool when
     * the steps in flight have ended (vLLM #45357). */
    bool fences_blocks;
    /* A connector gets the blocks of computed tokens alone (vLLM #46694). */
    bool cuts_sent_blocks;
    /* The first output of a request says how many of its tokens got keys (vLLM #48535). */
    bool counts_created;
    /* Steps may leave prompts out while requests decode (vLLM #44558). */
    bool throttles_prefills;
    /* The grammar decides by itself whether tokens are its own. */
    bool grammar_decides;
    /* Extra keys are tuples that begin with a tag; LoRA's has the path (vLLM #51899, #59335). */
    bool tags_extra_keys;
    /* NONE_HASH without a seed is the hash of a fixed text with SHA-256, and the hash of random
     * digits with XXH3 (vLLM #51875). Otherwise it is 32 random bytes. */
    bool hashes_default_seed;
    /* Hashing that continues a request bisects for its first feature (vLLM #51694). Where features
     * overlap, this can pass over a feature that a search from the first one finds. */
    bool bisects_features;

    /* ---- keys ---- */

    /* The key of a block of several hashes is the last of them, not all joined (#45939). */
    bool keys_by_last_hash;
    /* A full group's block gets one more key where the prompt's last hash ends inside it
     * (#46384). */
    bool keys_prompt_tails;
    /* Several groups: blocks get keys up to a multiple of all block sizes, since no hit ends
     * elsewhere (#42258). */
    bool caches_to_alignment;
    /* Window groups, and with aligns_to_stops Mamba groups: only blocks where a later request can
     * resume get keys, as prefix_cache_retention_interval says (#43447, #52216). */
    bool retains_boundaries;
    /* And the window's blocks where a request ends or is preempted. */
    bool retains_ends;

    /* ---- lookups ---- */

    /* Mamba in align mode with blocks of several hashes: hits may end at any hash, inside a block,
     * which is then copied; the state where a prompt ends gets a key (#46384). */
    bool takes_parts;

    /* EAGLE, several groups: the block that is looked up and dropped may be the prompt's last. */
    bool probes_last_block;
    /* A connector that says so is told the hit of the full groups alone (#44243). */
    bool diverges_for_connector;
    /* Several groups may all be equal. */
    bool takes_equal_groups;

    /* ---- allocation ---- */

    /* allocate_slots itself asks whether the whole sequence fits (#41064). */
    bool checks_whole_sequence;
    /* The watermark is for a request that waits while others are scheduled: the caller says so
     * (#44594). Else for every request without blocks, while others have some. */
    bool watermark_by_caller;
    /* Which hits are behind the window follows from all computed tokens; else from certain ones. */
    bool skips_by_computed;
    /* A load may bring no tokens, if there is a hit. */
    bool takes_bare_hits;
    /* Mamba states are given back as soon as the next one is computed; else drafts of the step
     * before are waited for (#47728). */
    bool frees_states_at_once;

    /* Mamba, align mode: states are given back past null blocks between them, each place once; a
     * step may need fewer blocks than the one before it (#39562, #52789). */
    bool retires_past_gaps;

    /* ---- the rest ---- */

    /* New blocks of all attention groups are listed to be zeroed; else those of plain full groups
     * (#44490). */
    bool zeroes_all_attention;
    /* No block that an asynchronous load fills is zeroed; else the last one is, if the load fills a
     * part of it. */
    bool zeroes_no_loads;
    /* Decode context parallelism makes the blocks of attention groups larger, and may go with Mamba
     * groups; prefill context parallelism changes no block size. Else both make all blocks larger,
     * and want one group. */
    bool shards_attention_only;
    /* Common prefix blocks are not counted: cascade attention is gone. */
    bool counts_no_common;
    /* A cache without groups has nothing to reset. */
    bool resets_groups_only;
    /* Planning places all layers in one allocation, by a layout; groups, pages and checks of memory
     * follow from it (#51718, #45207, #48776, #47272, #41069). */
    bool plans_by_layout;
    /* Layers of kinds TQ_FULL and SINK_FULL, Mamba mode ALL: gone, or unable to start (0.26 on). */
    bool has_no_old_kinds;
    /* Layers of kinds RSWA, CIRCULAR_BUFFER and HIDDEN_STATE. */
    bool has_new_kinds;
} qr_rules;

const qr_rules *qr_rules_of(quire_profile profile);

#endif
