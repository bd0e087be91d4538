#include "curve.h"
#include "lane.h"
#include "output/grown.h"
#include "trace/content.h"

#include <math.h>
#include <stdlib.h>

/* Student's t for 7 degrees of freedom: 95 % of means of 8 lie within so many standard errors. */
#define T_95 2.365

struct curve {
    curve_options options;
    curve_totals totals;
    uint32_t num_lanes;
    curve_lane lanes[CURVE_LANES];
    policy_log log;
    uint64_t *keys; /* of the request at hand */
    uint64_t *kept; /* those of one lane */
    uint8_t *lane_of;
    uint64_t keys_room;
    uint64_t kept_room;
    uint64_t lane_room;
};

curve *curve_open(const curve_options *options)
{
    curve *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->options = *options;
    c->num_lanes = options->sample < 1 ? CURVE_LANES : 1;
    for (uint32_t i = 0; i < c->num_lanes; i++)
        c->lanes[i].has_belady = options->has_belady;
    return c;
}

void curve_close(curve *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < c->num_lanes; i++)
        curve_lane_free(&c->lanes[i]);
    free(c->log.requests);
    free(c->log.keys);
    free(c->keys);
    free(c->kept);
    free(c->lane_of);
    free(c);
}

/* ---- identities ------------------------------------------------------------ */

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t mix_piece(uint64_t before, uint64_t content, uint32_t first, uint32_t num_tokens)
{
    uint64_t place = (uint64_t)first << 32 | num_tokens;
    uint64_t x =
        fold(before ^ UINT64_C(0x9e3779b97f4a7c15), content ^ UINT64_C(0xa0761d6478bd642f));
    return fold(x ^ place, UINT64_C(0xd6e8feb86659fd93)) + content;
}

/* Segments of the prompt, then what is generated. */
static trace_segment segment_at(const trace_request *request, uint32_t i)
{
    if (i < request->num_segments)
        return request->prompt[i];
    return (trace_segment){request->output_content, UINT32_MAX};
}

/* A block is the one before it and its own pieces: (content, first token, tokens). */
static void fill_keys(const curve *c, const trace_request *request, uint32_t num_full)
{
    uint64_t key = 1;
    uint32_t at = 0;
    uint32_t first = 0;
    trace_segment segment = segment_at(request, 0);
    for (uint32_t i = 0; i < num_full; i++) {
        uint32_t left = c->options.block_size;
        while (left > 0) {
            uint32_t there = segment.num_tokens - first;
            uint32_t n = left < there ? left : there;
            if (n > 0)
                key = mix_piece(key, segment.content, first, n);
            first += n;
            left -= n;
            if (first == segment.num_tokens) {
                segment = segment_at(request, ++at);
                first = 0;
            }
        }
        key = key != 0 ? key : 1;
        c->keys[i] = key;
    }
}

/* ---- requests -------------------------------------------------------------- */

/* The lane that keeps a block; CURVE_LANES: none does. */
static uint8_t choose_lane(const curve *c, uint64_t key)
{
    uint64_t x = fold(key ^ UINT64_C(0xe7037ed1a0b428db), UINT64_C(0x8ebc6af09c88c6e3));
    double at = (double)(x >> 11) * 0x1p-53 / c->options.sample;
    return at < 1 ? (uint8_t)(at * CURVE_LANES) : CURVE_LANES;
}

static bool add_sampled(curve *c, const curve_blocks *all)
{
    for (uint32_t i = 0; i < all->num_full; i++)
        c->lane_of[i] = choose_lane(c, all->keys[i]);
    for (uint32_t i = all->num_full; i < all->num_held; i++)
        c->lane_of[i] = choose_lane(c, content_of(1, c->totals.requests, i));
    for (uint32_t lane = 0; lane < CURVE_LANES; lane++) {
        curve_blocks some = {.keys = c->kept};
        for (uint32_t i = 0; i < all->num_held; i++) {
            if (c->lane_of[i] != lane)
                continue;
            if (i < all->num_full)
                c->kept[some.num_full++] = all->keys[i];
            some.num_lookups += i < all->num_lookups;
            some.num_held++;
        }
        if (some.num_held > 0 && !curve_lane_add(&c->lanes[lane], &some))
            return false;
    }
    return true;
}

bool curve_add(curve *c, const trace_request *request)
{
    uint64_t block_size = c->options.block_size;
    uint64_t prompt = request->num_prompt_tokens;
    uint64_t output = request->num_output_tokens > 0 ? request->num_output_tokens : 1;
    uint64_t computed = prompt + output - 1;
    curve_blocks blocks = {
        .num_lookups = prompt > 0 ? (uint32_t)((prompt - 1) / block_size) : 0,
        .num_full = (uint32_t)(computed / block_size),
        .num_held = (uint32_t)((computed + block_size - 1) / block_size),
    };
    if (!reserve(&c->keys, blocks.num_held, &c->keys_room, sizeof *c->keys) ||
        !reserve(&c->kept, blocks.num_held, &c->kept_room, sizeof *c->kept) ||
        !reserve(&c->lane_of, blocks.num_held, &c->lane_room, sizeof *c->lane_of))
        return false;
    fill_keys(c, request, blocks.num_full);
    blocks.keys = c->keys;
    if (c->num_lanes == 1 ? !curve_lane_add(&c->lanes[0], &blocks) : !add_sampled(c, &blocks))
        return false;
    if (c->options.has_policies && !policy_log_add(&c->log, &blocks))
        return false;
    curve_totals *t = &c->totals;
    t->requests++;
    t->prompt_tokens += prompt;
    t->query_blocks += (prompt + block_size - 1) / block_size;
    t->lookups += blocks.num_lookups;
    if (blocks.num_held > t->min_blocks)
        t->min_blocks = blocks.num_held;
    return true;
}

/* ---- the curve ------------------------------------------------------------- */

void curve_finish(curve *c)
{
    double distinct = 0;
    for (uint32_t i = 0; i < c->num_lanes; i++) {
        curve_lane_finish(&c->lanes[i]);
        distinct += (double)c->lanes[i].num_distinct;
    }
    c->totals.distinct_blocks = c->num_lanes == 1 ? distinct : rint(distinct / c->options.sample);
}

curve_totals curve_get_totals(const curve *c)
{
    return c->totals;
}

static double lane_rate(const curve *c)
{
    return c->num_lanes == 1 ? 1 : c->options.sample / CURVE_LANES;
}

/* A block with b elements above it in a lane has b / rate above it in all. */
static uint64_t lane_size(const curve *c, uint64_t num_blocks)
{
    return (uint64_t)ceil((double)num_blocks * lane_rate(c));
}

/* Hits of the lanes, as hits of all blocks. A few blocks may be looked up by nearly all requests; a
 * lane that keeps none of them has too few lookups, one that keeps one has too many. Such blocks
 * are found in any pool, so what a lane has too few or too many is put right as hits. */
static curve_value estimate(const curve *c, const uint64_t hits[CURVE_LANES])
{
    if (c->num_lanes == 1)
        return (curve_value){(double)hits[0], 0};
    double sum = 0;
    double squares = 0;
    for (uint32_t i = 0; i < CURVE_LANES; i++) {
        double found = (double)hits[i] - (double)c->lanes[i].num_lookups;
        double all = found / lane_rate(c) + (double)c->totals.lookups;
        sum += all;
        squares += all * all;
    }
    double mean = sum / CURVE_LANES;
    double variance = (squares - sum * mean) / (CURVE_LANES - 1);
    double error = T_95 * sqrt((variance > 0 ? variance : 0) / CURVE_LANES);
    return (curve_value){mean > 0 ? mean : 0, error};
}

curve_value curve_hits(const curve *c, uint64_t num_blocks)
{
    uint64_t hits[CURVE_LANES] = {0};
    for (uint32_t i = 0; i < c->num_lanes; i++)
        hits[i] = curve_lane_hits(&c->lanes[i], lane_size(c, num_blocks));
    return estimate(c, hits);
}

bool curve_belady(const curve *c, uint64_t num_blocks, curve_value *value)
{
    uint64_t hits[CURVE_LANES] = {0};
    for (uint32_t i = 0; i < c->num_lanes; i++)
        if (!belady_hits(&c->lanes[i].belady, lane_size(c, num_blocks), &hits[i]))
            return false;
    *value = estimate(c, hits);
    return true;
}

const policy_log *curve_get_log(const curve *c)
{
    return &c->log;
}

uint64_t curve_last_size(const curve *c)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < c->num_lanes; i++) {
        const curve_lane *lane = &c->lanes[i];
        uint64_t at = lane->hits_room;
        while (at > 1 && lane->hits[at - 2] == lane->hits[at - 1])
            at--;
        uint64_t size = (uint64_t)ceil((double)(at > 0 ? at - 1 : 0) / lane_rate(c));
        last = size > last ? size : last;
    }
    return last;
}
