/* cli/page/store.h - what a page has collected: filled by page.c, written by write.c. */
#ifndef QUIRE_CLI_PAGE_STORE_H
#define QUIRE_CLI_PAGE_STORE_H

#include "page.h"

enum {
    PAGE_MAX_ROWS = 262144,
    PAGE_IDLE_SHARE = 8, /* when rows are merged, every 8th at most is idle time */
    PAGE_MAX_MARKS = 262144,
    PAGE_MAX_FRAMES = 400,
    PAGE_MAX_CELLS = 4096,
    PAGE_EXACT_CELL = 15, /* blocks of a cell up to which its counts are exact */
    PAGE_MAX_REQUESTS = 50000,
    PAGE_MAX_INTERVALS = 32, /* of one request */
    PAGE_BINS_PER_OCTAVE = 8,
    PAGE_NUM_BINS = 48 * PAGE_BINS_PER_OCTAVE /* from 1 us up to 8 years */
};

/* What a row has minimum, maximum and sum of; TIER_SERIES more for each tier. */
typedef enum page_series {
    SERIES_EMPTY,
    SERIES_CACHED,
    SERIES_ACTIVE,
    SERIES_RUNNING,
    SERIES_WAITING,
    SERIES_TOKENS,
    SERIES_PREFILL,
    SERIES_DECODE,
    SERIES_DURATION_US,
    NUM_SERIES
} page_series;

typedef enum page_tier_series {
    TIER_EMPTY, /* in the order of SERIES_EMPTY and its neighbours */
    TIER_CACHED,
    TIER_ACTIVE,
    TIER_IN,
    TIER_OUT,
    TIER_HITS,
    TIER_SERIES
} page_tier_series;

typedef struct page_stat {
    uint32_t min;
    uint32_t max;
    uint64_t sum;
} page_stat;

/* One point, or some that follow each other: num_points of them, idle times included.
 * min <= sum / num_points <= max of every stat. A row with num_steps == 0 is idle time. */
typedef struct page_row {
    uint64_t step; /* the first; of idle time: the step before it */
    uint64_t time_us;
    uint64_t num_points;
    uint64_t num_steps; /* of the points */
    uint64_t hit_tokens;
    uint64_t external_tokens;
    uint64_t query_tokens;
    page_stat stats[];
} page_row;

typedef struct page_mark {
    uint64_t step;
    uint64_t time_us;
    uint64_t num; /* preemptions */
} page_mark;

typedef struct page_frame {
    uint64_t step;
    unsigned char cells[PAGE_MAX_CELLS]; /* active << 4 | cached, see docs/page-data.md */
    uint64_t owners[PAGE_MAX_OWNERS];
} page_frame;

/* Every stride-th request of a kind, at most PAGE_MAX_REQUESTS. */
typedef struct page_sample {
    page_request *requests; /* preempted: own memory */
    uint32_t num;
    uint32_t capacity;
    uint64_t seen;
    uint64_t stride;
} page_sample;

typedef enum page_latency { LATENCY_QUEUE, LATENCY_TTFT, LATENCY_TPOT, LATENCY_E2E } page_latency;
enum { NUM_LATENCIES = 4 };

typedef struct page_histogram {
    uint64_t count;
    uint64_t bins[PAGE_NUM_BINS]; /* bin i: from 2^(i/8) us on; the first also what is less */
} page_histogram;

/* A pool, block by block, at some steps. */
typedef struct page_frames {
    page_frame *frames;
    uint32_t num_frames;
    uint32_t capacity;
    uint64_t stride;
    uint32_t num_blocks;
    uint32_t cell_blocks;
    bool has_owners;
} page_frames;

struct page {
    char *title;
    char *trace;
    char *model;
    char *gpu;
    uint32_t block_size;
    uint64_t bytes_per_block;
    json_t *options;
    page_tier tiers[PAGE_MAX_TIERS];
    uint32_t num_tiers;
    uint32_t num_series;

    unsigned char *rows; /* of row_bytes each */
    size_t row_bytes;
    uint32_t num_rows;
    uint32_t row_capacity;
    uint32_t max_rows;
    uint64_t points_per_row; /* at most */
    uint64_t idle_us;        /* idle time of this length or more has a row of its own */
    uint64_t num_steps;
    uint64_t last_step;
    uint64_t total_blocks; /* without the null block */
    double end_s;

    page_mark *marks;
    uint32_t num_marks;
    uint32_t mark_capacity;
    uint64_t steps_per_mark; /* 1: each mark is one step */
    uint64_t num_preemptions;

    page_frames frames[PAGE_NUM_POOLS];

    page_sample preempted;
    page_sample others;
    page_histogram latencies[NUM_LATENCIES];
    bool is_failed; /* no memory: page_write says so */
};

static inline page_row *page_row_at(const page *p, uint32_t index)
{
    return (page_row *)(void *)(p->rows + (size_t)index * p->row_bytes);
}

static inline uint64_t page_us(double s)
{
    return s > 0 ? (uint64_t)(s * 1e6 + 0.5) : 0;
}

#endif
