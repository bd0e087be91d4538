#include "info.h"

#include "roots.h"

static void add_arrival(trace_info *info, const trace_request *r)
{
    uint64_t minute = (uint64_t)(r->time_s / INFO_MINUTE_S);
    info->num_arrivals++;
    info->last_s = r->time_s > info->last_s ? r->time_s : info->last_s;
    if (minute != info->minute)
        info->num_in_minute = 0;
    info->minute = minute;
    info->num_in_minute++;
    if (info->num_in_minute > info->most_in_minute)
        info->most_in_minute = info->num_in_minute;
}

/* A trace without contents has nothing to share, and needs no memory for it. */
static bool add_contents(trace_info *info, const trace_request *r)
{
    ideal_share share = {0};
    ideal_arrived(&info->ideal, r, &share);
    info->shared_tokens += share.tokens;
    info->blocks += share.trace_blocks;
    info->shared_blocks += share.blocks;
    prefix_tree_add(&info->tree, r);
    if (r->id_block_size == 0)
        return true;
    info->id_block_size = r->id_block_size;
    for (uint32_t i = 0; i < r->num_segments; i++) {
        uint64_t *number = number_map_at(&info->ids, r->prompt[i].content);
        if (number == NULL)
            return false;
        *number = 1;
    }
    return true;
}

bool info_add(trace_info *info, const trace_request *r, bool has_contents)
{
    info->num_requests++;
    info->has_contents = has_contents;
    info->num_priorities += r->priority != 0;
    info->num_pins += r->pin_s >= 0;
    bool ok = distribution_add(&info->prompts, r->num_prompt_tokens) &&
              distribution_add(&info->outputs, r->num_output_tokens);
    if (request_waits(r)) {
        info->num_waiting++;
        ok = ok && distribution_add(&info->thinks, r->think_s);
    } else {
        add_arrival(info, r);
    }
    if (r->session != 0) {
        uint64_t *turns = number_map_at(&info->sessions, r->session);
        ok = ok && turns != NULL;
        if (turns != NULL)
            ++*turns;
    }
    return ok && (!has_contents || add_contents(info, r));
}

bool info_end(trace_info *info)
{
    bool ok = true;
    for (size_t i = 0; i < info->sessions.num_places && ok; i++)
        if (info->sessions.places[i].number != 0)
            ok = distribution_add(&info->turns, (double)info->sessions.places[i].number);
    info->has_ideal = info->has_contents && !ideal_gave_up(&info->ideal);
    if (info->num_wanted > 0)
        info->num_prefixes = prefix_tree_largest(&info->tree, info->prefixes, info->num_wanted);
    return ok;
}

void info_free(trace_info *info)
{
    distribution_free(&info->prompts);
    distribution_free(&info->outputs);
    distribution_free(&info->thinks);
    distribution_free(&info->turns);
    number_map_free(&info->sessions);
    number_map_free(&info->ids);
    ideal_free(&info->ideal);
    prefix_tree_free(&info->tree);
}
