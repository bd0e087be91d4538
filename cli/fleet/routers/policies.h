/* cli/fleet/routers/policies.h - the policies of this program: one C file for each family. */
#ifndef QUIRE_CLI_FLEET_ROUTERS_POLICIES_H
#define QUIRE_CLI_FLEET_ROUTERS_POLICIES_H

#include "policy.h"

/* simple.c */
extern const router_policy policy_round_robin;
extern const router_policy policy_random;
extern const router_policy policy_least_loaded;
extern const router_policy policy_power_of_two;
extern const router_policy policy_session;
/* dynamo.c */
extern const router_policy policy_dynamo_kv;
/* llm_d.c */
extern const router_policy policy_llm_d;
extern const router_policy policy_llm_d_precise;
/* sgl.c */
extern const router_policy policy_sgl_cache_aware;
extern const router_policy policy_lmetric;
/* vllm.c, smetric.c */
extern const router_policy policy_vllm_kv_aware;
extern const router_policy policy_vllm_dp;
extern const router_policy policy_smetric;
/* affinity.c */
extern const router_policy policy_production_loadaware;
extern const router_policy policy_ray_prefix;
/* aibrix.c */
extern const router_policy policy_aibrix_prefix;
extern const router_policy policy_conductor;
/* preble.c */
extern const router_policy policy_preble;
/* oracle.c */
extern const router_policy policy_oracle;

#endif
