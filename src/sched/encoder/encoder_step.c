#include "sched/encoder/encoder_step.h"

/* The walk over a request's features. */
typedef struct encoder_walk {
    const qr_encoder_ask *ask;
    uint32_t *inputs;
    qr_encoder_plan plan;
    uint64_t num_embeds; /* of the features in the plan */
} encoder_walk;

/* The first token past the step. */
static uint64_t walk_end(const encoder_walk *walk)
{
    return (uint64_t)walk->ask->num_computed_tokens + walk->plan.num_new_tokens;
}

static bool feature_is_planned(const encoder_walk *walk, const qr_feature *feature)
{
    const qr_encoder_ask *ask = walk->ask;
    for (uint32_t k = 0; k < walk->plan.num_inputs; k++)
        if (qr_feature_is_same(&ask->features[walk->inputs[k]], feature))
            return true;
    for (uint32_t k = 0; k < walk->plan.num_external; k++) {
        uint32_t input = walk->inputs[qr_encoder_external_at(ask->num_features, k)];
        if (qr_feature_is_same(&ask->features[input], feature))
            return true;
    }
    return false;
}

/* Whether the feature's item has another size, in the cache or in the plan. */
static bool has_other_size(const qr_encoder *encoder, const encoder_walk *walk,
                           const qr_feature *feature)
{
    const qr_encoder_ask *ask = walk->ask;
    uint32_t size = feature->num_embeds;
    uint32_t planned = QR_NIL;
    for (uint32_t k = 0; k < walk->plan.num_inputs + walk->plan.num_external; k++) {
        uint32_t place = k < walk->plan.num_inputs
                             ? k
                             : qr_encoder_external_at(ask->num_features, k - walk->plan.num_inputs);
        const qr_feature *other = &ask->features[walk->inputs[place]];
        if (qr_feature_is_same(other, feature))
            planned = other->num_embeds;
    }
    uint32_t cached = planned == QR_NIL ? qr_encoder_size_of(encoder, feature) : planned;
    return cached != QR_NIL && cached != size;
}

/* Whether the item will be there without encoding this feature. */
static bool feature_is_provided(qr_encoder *encoder, const encoder_walk *walk, uint32_t i)
{
    const qr_encoder_ask *ask = walk->ask;
    if (encoder->config.is_encoder_decoder)
        return false;
    return feature_is_planned(walk, &ask->features[i]) ||
           qr_encoder_check_and_update(encoder, ask->features, ask->num_features, i);
}

/* Whether the step would end inside a feature that it begins, though that is not allowed. */
static bool feature_is_split(const encoder_walk *walk, const qr_feature *feature)
{
    const qr_encoder_ask *ask = walk->ask;
    return ask->disable_chunked && ask->num_computed_tokens < feature->offset &&
           walk_end(walk) < (uint64_t)feature->offset + feature->length;
}

/* How many tokens there are before a feature, for a model that looks `shift` further. */
static uint32_t tokens_before_feature(const qr_encoder_ask *ask, const qr_feature *feature)
{
    uint64_t seen = (uint64_t)ask->num_computed_tokens + ask->shift;
    return seen < feature->offset ? (uint32_t)(feature->offset - seen) : 0;
}

/* Whether the step's tokens take embeddings from the feature. A feature that only the shift reaches
 * gives none; one that begins further on counts as if it did, which needs a shift above 1. */
static bool step_takes_embeds(const encoder_walk *walk, const qr_feature *feature)
{
    uint32_t computed = walk->ask->num_computed_tokens;
    uint64_t end = walk_end(walk) + (walk->ask->counts_inputs ? walk->ask->shift : 0);
    if (end <= feature->offset)
        return !feature->has_flags && end < feature->offset;
    uint32_t start = computed > feature->offset ? computed - feature->offset : 0;
    uint64_t last = end - feature->offset;
    uint32_t stop = last < feature->length ? (uint32_t)last : feature->length;
    return qr_feature_embeds_in_range(feature, walk->ask->flags, walk->ask->chain, start, stop) > 0;
}

static void plan_feature(encoder_walk *walk, uint32_t i)
{
    const qr_encoder_ask *ask = walk->ask;
    const quire_encoder_connector *c = ask->connector;
    qr_encoder_plan *plan = &walk->plan;
    uint32_t num_embeds = ask->features[i].num_embeds;
    walk->num_embeds += num_embeds;
    if (c != NULL && c->has_item != NULL && c->has_item(c->user, ask->req, i)) {
        walk->inputs[qr_encoder_external_at(ask->num_features, plan->num_external++)] = i;
        return;
    }
    walk->inputs[plan->num_inputs++] = i;
    plan->budget -= num_embeds;
}

qr_encoder_plan qr_encoder_schedule(qr_encoder *encoder, const qr_encoder_ask *ask,
                                    uint32_t *inputs)
{
    encoder_walk walk = {
        ask, inputs, {.num_new_tokens = ask->num_new_tokens, .budget = ask->budget}, 0};
    if (ask->num_new_tokens == 0)
        return walk.plan;
    for (uint32_t i = 0; i < ask->num_features; i++) {
        const qr_feature *feature = &ask->features[i];
        if (feature->offset >= walk_end(&walk) + ask->shift)
            break;
        walk.plan.end = (uint64_t)feature->offset + 1;
        if (qr_feature_is_computed(encoder, feature, ask->num_computed_tokens))
            continue;
        bool is_split = feature_is_split(&walk, feature);
        if (!(is_split && ask->counts_inputs)) { /* else it is as if it were not there */
            bool shares = ask->counts_inputs && !encoder->config.is_encoder_decoder;
            if (shares && has_other_size(encoder, &walk, feature))
                return (qr_encoder_plan){.budget = ask->budget, .has_other_size = true};
            if (feature_is_provided(encoder, &walk, i))
                continue;
        }
        if (is_split ||
            !qr_encoder_can_allocate(encoder, feature, walk.plan.budget, walk.num_embeds,
                                     walk.plan.num_inputs + walk.plan.num_external)) {
            walk.plan.num_new_tokens = tokens_before_feature(ask, feature);
            walk.plan.end = feature->offset;
            break;
        }
        if (step_takes_embeds(&walk, feature))
            plan_feature(&walk, i);
    }
    return walk.plan;
}
