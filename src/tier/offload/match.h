/* tier/offload/match.h - what a request finds in the CPU pool, behind what the engine has. */
#ifndef QR_TIER_OFFLOAD_MATCH_H
#define QR_TIER_OFFLOAD_MATCH_H

#include "tier/offload/offload.h"

/* quire_connector.get_num_new_matched_tokens. What was found is kept in o->match, in the default
 * profile with one user more for each block, until the next request is asked about or
 * qr_match_release. */
int qr_match_request(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                     uint32_t *is_async);
/* Its request gets what it was told: from now on all of the match's blocks have its own user. */
void qr_match_take_over(quire_offload *o, quire_req req);
void qr_match_release(quire_offload *o);

/* The hit behind the first num_local tokens, as spans of the CPU pool's cache; 0: none. */
uint32_t qr_match_find(quire_offload *o, const unsigned char *hashes, uint32_t num_hashes,
                       uint32_t num_tokens, uint32_t num_local, quire_block_span *spans);

#endif
