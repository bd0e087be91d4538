/* cli/fleet/routers/policy.h - a routing policy: which worker serves a request.
 *
 *      request ─┐
 *      workers ─┼─► choose ─► choice: one worker and its score, or wait, or refuse
 *      hits ────┘
 *
 * worker    one engine of the fleet, 0, 1, ... What the router believes of a worker may be old or
 *           wrong: cli/fleet/views decides what a router knows.
 * block     block_size tokens of a prompt. A block's name is a number that stands for the block and
 *           all blocks before it: two prompts have the same name where they share a prefix.
 * hit       the leading blocks of a prompt that the router believes a worker to have.
 * score     policies maximise a score or minimise a cost; is_cost says which.
 *
 * A policy is one function, choose. It has no state but what its open returns. It may be called
 * with the same policy several times: each router of a fleet has its own state.
 *
 * This header includes nothing of Quire: a policy of your own is one C file that defines
 * `const router_policy quire_router_policy`, compiled as a shared object:
 *
 *      cc -shared -fPIC -I cli/fleet/routers -o mine.so mine.c
 *      quire fleet --router ./mine.so:weight=2 ...
 */
#ifndef QUIRE_CLI_FLEET_ROUTERS_POLICY_H
#define QUIRE_CLI_FLEET_ROUTERS_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of these structs. A shared object with another version is refused. */
enum { ROUTER_POLICY_VERSION = 1 };

enum { ROUTER_MAX_WORKERS = 65535, ROUTER_MAX_OPTIONS = 32, ROUTER_MAX_TERMS = 8 };

/* No worker. */
#define ROUTER_NONE UINT32_MAX

/* What a worker is asked to do. Without pools for prefill and decode a worker serves all of a
 * request. */
typedef enum router_role { ROUTER_SERVE, ROUTER_PREFILL, ROUTER_DECODE } router_role;

typedef struct router_request {
    uint64_t number;            /* of the request in the fleet */
    double time_s;              /* now */
    double arrival_s;           /* at most time_s: later, if the request has waited in the router */
    uint64_t session;           /* 0: none */
    const uint64_t *blocks;     /* names of the full blocks of the prompt */
    uint32_t num_blocks;        /* num_prompt_tokens / block_size */
    uint32_t block_size;        /* tokens */
    uint32_t num_prompt_tokens; /* at least 1 */
    uint32_t num_output_tokens; /* expected; 0: not known */
    uint32_t lora;              /* 0: none */
    uint32_t service_class;     /* 0: none */
    int32_t priority;           /* smaller is more urgent, as in vLLM */
    uint32_t num_history_tokens; /* prompt tokens of the session's turn before; 0: the first turn */
} router_request;

/* What a worker reports of itself. */
typedef struct router_load {
    uint32_t waiting;        /* requests in its queue */
    uint32_t running;        /* requests in its steps */
    uint64_t prefill_tokens; /* of both, that are not computed yet */
    uint64_t context_tokens; /* of running requests, that are in its KV cache */
    uint32_t used_blocks;    /* KV blocks that requests use */
    double kv_usage;         /* used_blocks / all blocks, 0 to 1 */
} router_load;

/* What a router believes of a worker. */
typedef struct router_worker {
    bool is_ready; /* false: left, crashed, draining, or not started yet; never a candidate */
    router_role pool;
    uint32_t num_blocks;             /* of its KV cache */
    uint32_t max_num_batched_tokens; /* of its steps */
    double capacity;                 /* relative speed: 1 for all workers of an equal fleet */
    router_load load;                /* as of the last report */
    double load_time_s;              /* of the last report; -1: none yet */
    /* Counted by this router from its own decisions and the answers. */
    uint32_t in_flight;        /* requests sent and not ended */
    uint32_t in_prefill;       /* of them, without a first token */
    uint64_t prefill_tokens;   /* prompt tokens of in_prefill that were not believed cached */
    uint64_t in_flight_tokens; /* prompt and generated tokens of in_flight */
    uint64_t active_blocks;    /* different blocks that in_flight use; needs ROUTER_NEEDS_ACTIVE.
                                  Blocks of a request whose prompt another worker computes count
                                  for that request alone. */
    uint64_t known_blocks;     /* of the worker in the index; 0 without one */
    uint64_t num_routed;       /* requests sent, ever */
    double last_routed_s;      /* -1: never */
} router_worker;

/* The leading blocks of the prompt that a worker has in any tier. Each block counts once, for the
 * fastest tier that has it.
 *
 *      gpu + host + disk = the longest prefix in any tier;   leading <= gpu
 */
typedef struct router_hit {
    uint32_t gpu;
    uint32_t host;
    uint32_t disk;
    uint32_t leading; /* blocks before the first one that is not in GPU memory */
} router_hit;

/* How long work takes, by the fleet's time model. */
typedef struct router_costs {
    void *context;
    /* To compute num_new prompt tokens behind num_cached cached ones, on an idle worker. */
    double (*prefill_s)(void *context, uint32_t worker, uint32_t num_cached, uint32_t num_new);
    /* A decode step of num_running requests with context_tokens tokens in all. */
    double (*decode_s)(void *context, uint32_t worker, uint32_t num_running,
                       uint64_t context_tokens);
    /* To move a prefix of num_blocks blocks between two workers. */
    double (*transfer_s)(void *context, uint32_t from, uint32_t to, uint32_t num_blocks);
} router_costs;

/* All that a decision can depend on. Arrays by worker have num_workers elements. */
typedef struct router_ask {
    const router_request *request;
    router_role role;
    const uint32_t *candidates; /* workers that may be chosen, in increasing order; at least one */
    uint32_t num_candidates;
    const router_worker *workers;
    uint32_t num_workers;
    const router_hit *hits;      /* by worker; all zero without an index */
    const uint32_t *active_hits; /* by worker: leading blocks that its requests in flight use; NULL
                                     without ROUTER_NEEDS_ACTIVE */
    uint32_t shared_hit;         /* leading blocks in the tier that all workers share */
    const router_costs *costs;   /* never NULL */
    uint64_t *random;            /* state of router_random */
    uint32_t router;             /* which router of the fleet asks, and of how many */
    uint32_t num_routers;
    uint32_t prefill_worker; /* ROUTER_DECODE after a prefill was chosen; else ROUTER_NONE */
} router_ask;

typedef enum router_action { ROUTER_ROUTE, ROUTER_WAIT, ROUTER_REFUSE } router_action;

/* choose sets action and worker, and the numbers that explain the choice where it has them. It
 * starts as all zero with worker and runner_up ROUTER_NONE. */
typedef struct router_choice {
    router_action action;
    uint32_t worker;                /* a candidate, where action is ROUTER_ROUTE */
    double score;                   /* of the worker */
    double terms[ROUTER_MAX_TERMS]; /* of the score: names are in router_policy */
    uint32_t runner_up;             /* the next best candidate; ROUTER_NONE: not known */
    double runner_up_score;
    uint32_t num_ties;  /* other candidates with the same score */
    const char *reason; /* a static text: which rule of the policy decided; NULL: its only rule */
    double work;        /* whatever the policy counts; its events of the request have it too */
    double wait_order;  /* ROUTER_WAIT: the waiting request with the largest value is asked next */
} router_choice;

typedef enum router_event_kind {
    ROUTER_EVENT_ROUTED,      /* the request was sent to the worker */
    ROUTER_EVENT_FIRST_TOKEN, /* its first token; a prefill worker: its prompt is computed */
    ROUTER_EVENT_DONE,
    ROUTER_EVENT_ABORTED, /* it ended without an answer: refused, cancelled, or its worker left */
    ROUTER_EVENT_METRICS, /* the worker has reported its load */
    ROUTER_EVENT_JOINED,  /* the worker is ready */
    ROUTER_EVENT_LEFT     /* the worker left: its cache is lost */
} router_event_kind;

typedef struct router_event {
    router_event_kind kind;
    double time_s;
    uint32_t worker;
    const router_worker *seen;     /* what the router believes of the worker, after the event */
    const router_request *request; /* of the first kind only; else NULL */
    uint64_t number;               /* of the request; the first four kinds */
    router_role role;
    uint32_t num_cached_tokens; /* ROUTED: believed; FIRST_TOKEN: what the worker really found */
    uint32_t num_prompt_tokens; /* of the request */
    uint32_t num_output_tokens; /* DONE, ABORTED: generated */
    double routed_s;            /* when it was sent */
    double work;                /* of the choice */
    double first_token_s;       /* DONE: when it had its first token */
} router_event;

/* One option of a policy. Every value is a number; the value of a choice is its position. */
typedef struct router_option {
    const char *name;
    const char *help; /* plain words; a unit, if it has one */
    double def;
    double min;
    double max;
    bool is_whole;              /* whole numbers only */
    const char *const *choices; /* NULL at the end; NULL: a number */
} router_option;

/* What the router knows where the command line does not say. */
typedef enum router_index {
    ROUTER_INDEX_NONE,        /* hits are zero */
    ROUTER_INDEX_EVENTS,      /* from the workers' KV events */
    ROUTER_INDEX_APPROXIMATE, /* from the router's own decisions */
    ROUTER_INDEX_BOTH         /* the longer hit of both */
} router_index;

typedef struct router_knowledge {
    router_index index;
    double ttl_s;              /* of blocks of its own decisions; 0: no limit */
    uint64_t lru_tokens;       /* of its own decisions, for each worker; 0: no limit */
    double metrics_every_s;    /* reports of workers; 0: always up to date */
    uint32_t tokens_per_block; /* of its own decisions: rounded up to a multiple of the fleet's
                                  block size; 0: the fleet's block size */
    uint32_t max_blocks;       /* of a prompt that are looked up, after the rounding; 0: all */
} router_knowledge;

enum {
    ROUTER_NEEDS_ACTIVE = 1,        /* active_blocks and active_hits */
    ROUTER_NEEDS_REPORTS = 2,       /* load */
    ROUTER_NEEDS_REPORTS_APART = 4, /* load, but only with pools for prefill and decode */
    ROUTER_IS_BLIND = 8,            /* chooses without looking at workers or blocks */
    ROUTER_IS_ORACLE = 16           /* knows all: the command line cannot change what it knows */
};

typedef struct router_policy {
    uint32_t version; /* ROUTER_POLICY_VERSION */
    uint32_t needs;   /* ROUTER_NEEDS_... */
    const char *name;
    const char *summary;                 /* one line, plain words */
    bool is_cost;                        /* the smallest score is the best one */
    const char *terms[ROUTER_MAX_TERMS]; /* what terms of a choice are, "prefill", "decode" */
    const router_option *options;        /* name NULL at the end; NULL: none */
    router_knowledge knowledge;

    /* State for one router: values of the options, in their order. NULL: a policy without state.
     * Returns false, and a sentence in why, if values contradict each other or memory is short. */
    bool (*open)(const double *values, uint32_t max_workers, void **state, char why[256]);
    void (*close)(void *state);
    void (*choose)(void *state, const router_ask *ask, router_choice *choice);
    /* May be NULL. */
    void (*notify)(void *state, const router_event *event);
    /* With pools for prefill and decode, after a decode worker was chosen: whether a prefill worker
     * computes the prompt. NULL: it always does. */
    bool (*disaggregates)(void *state, const router_ask *ask, uint32_t decode_worker);
} router_policy;

/* The next random number, and one of 0 to n - 1: the same in every run with the same seed. */
static inline uint64_t router_random(const router_ask *ask)
{
    uint64_t z = *ask->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t router_random_below(const router_ask *ask, uint32_t n)
{
    return (uint32_t)(((router_random(ask) >> 32) * n) >> 32);
}

static inline double router_random_unit(const router_ask *ask)
{
    return (double)(router_random(ask) >> 11) * 0x1p-53;
}

/* Leading blocks in any tier. */
static inline uint32_t router_hit_blocks(const router_hit *hit)
{
    return hit->gpu + hit->host + hit->disk;
}

#endif
