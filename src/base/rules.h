/* base/rules.h - rules: what a profile decides where vLLM's releases differ. A handle reads the rules
 * of its profile once, when it is created. Bugs that a profile reproduces are quirks (base/quirks.h).
 */
#ifndef QR_BASE_RULES_H
#define QR_BASE_RULES_H

#include <quire/config.h>

typedef struct qr_rules {
    /* A freed block without a key goes to the head of the free queue (vLLM #42656). */
    bool reuses_empty_first;
} qr_rules;

const qr_rules *qr_rules_of(quire_profile profile);

#endif
