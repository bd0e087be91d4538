/* base/rules.h - rules: what a profile decides where vLLM's releases differ. A handle reads the
 * rules of its profile once, when it is created. Bugs that a profile reproduces are quirks
 * (base/quirks.h).
 */
#ifndef QR_BASE_RULES_H
#define QR_BASE_RULES_H

#include <quire/config.h>

typedef struct qr_rules {
    /* A freed block without a key goes to the head of the free queue (vLLM #42656). */
    bool reuses_empty_first;
    /* Extra keys are tuples that begin with a tag; LoRA's has the path (vLLM #51899, #59335). */
    bool tags_extra_keys;
    /* NONE_HASH without a seed is the hash of a fixed text with SHA-256, and the hash of random
     * digits with XXH3 (vLLM #51875). Otherwise it is 32 random bytes. */
    bool hashes_default_seed;
    /* Hashing that continues a request bisects for its first feature (vLLM #51694). Where features
     * overlap, this can pass over a feature that a search from the first one finds. */
    bool bisects_features;
} qr_rules;

const qr_rules *qr_rules_of(quire_profile profile);

#endif
