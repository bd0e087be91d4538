/* cli/fleet/links_rates.c - rates that can change are computed again.
 *
 * A set of transfers is filled from 0 while all others keep their rates, then the others are
 * checked. It begins with the transfers that began, and with transfers whose bottleneck is a link
 * that changed.
 *
 *      fill     of the links of the set: what the others leave is divided by the number of
 *               transfers of the set; the link with the smallest share is the bottleneck of its
 *               transfers, which are done; the rest of the set shares what is left
 *      check    another transfer joins the set if it is faster than the set is on a bottleneck of
 *               the set, or if its own bottleneck is not full any more or has a faster transfer
 *
 * Both are repeated until none joins. Then each transfer has its bottleneck: in the set by the
 * filling, beside it because it was checked, or because nothing changed on its bottleneck. There is
 * only one max-min fair answer, so it is that of a filling of all.
 */
#include "links_inner.h"

/* Rates that differ by less are equal: they are quotients of the same sums in another order. */
#define TOLERANCE 1e-9

static bool is_more(double a, double b)
{
    return a > b + b * TOLERANCE;
}

static void join_set(links *l, uint32_t t)
{
    transfer *it = &l->transfers[t];
    if (it->is_in_set)
        return;
    it->is_in_set = true;
    l->set[l->num_set++] = t;
    for (uint32_t i = 0; i < it->num_route; i++) {
        if (l->links[it->route[i]].is_touched)
            continue;
        l->links[it->route[i]].is_touched = true;
        l->touched[l->num_touched++] = it->route[i];
    }
}

/* New transfers have no bottleneck. */
static void begin_set(links *l)
{
    l->num_set = 0;
    l->num_touched = 0;
    for (uint32_t i = 0; i < l->num_changed; i++) {
        uint32_t link = l->changed[i];
        for (uint32_t p = l->links[link].first; p != NONE;) {
            const transfer *it = &l->transfers[p / LINKS_MAX_ROUTE];
            if (it->bottleneck == link || it->bottleneck == NONE)
                join_set(l, p / LINKS_MAX_ROUTE);
            p = it->next[p % LINKS_MAX_ROUTE];
        }
        l->links[link].has_changed = false;
    }
    l->num_changed = 0;
}

static bool has_smaller_share(const links *l, uint32_t a, uint32_t b)
{
    double x = l->links[a].share;
    double y = l->links[b].share;
    return x < y || (x == y && a < b);
}

static void sift_share(links *l, uint32_t place)
{
    uint32_t link = l->shares[place];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= l->num_shares)
            break;
        if (child + 1 < l->num_shares &&
            has_smaller_share(l, l->shares[child + 1], l->shares[child]))
            child++;
        if (!has_smaller_share(l, l->shares[child], link))
            break;
        l->shares[place] = l->shares[child];
        place = child;
    }
    l->shares[place] = link;
}

static double share_of(const one_link *link)
{
    return fmax(link->left, 0) / link->num_open;
}

/* What the transfers that are not in the set leave to it. */
static void count_link(links *l, one_link *link)
{
    link->others_load = 0;
    link->others_max = 0;
    link->num_open = 0;
    link->set_level = -1;
    for (uint32_t p = link->first; p != NONE;) {
        const transfer *it = &l->transfers[p / LINKS_MAX_ROUTE];
        if (it->is_in_set) {
            link->num_open++;
        } else {
            link->others_load += it->rate;
            link->others_max = fmax(link->others_max, it->rate);
        }
        p = it->next[p % LINKS_MAX_ROUTE];
    }
    link->left = link->bandwidth - link->others_load;
}

/* The link is the bottleneck of its transfers of the set that have no rate yet. */
static void freeze(links *l, uint32_t at, double rate)
{
    one_link *link = &l->links[at];
    link->set_level = rate;
    for (uint32_t p = link->first; p != NONE;) {
        transfer *it = &l->transfers[p / LINKS_MAX_ROUTE];
        if (it->is_in_set && it->new_bottleneck == NONE) {
            it->new_rate = rate;
            it->new_bottleneck = at;
            for (uint32_t i = 0; i < it->num_route; i++) {
                l->links[it->route[i]].left -= rate;
                l->links[it->route[i]].num_open--;
            }
        }
        p = it->next[p % LINKS_MAX_ROUTE];
    }
}

/* Shares only grow while links are filled, so one that has grown goes back into the heap. */
static void fill_set(links *l)
{
    l->num_shares = 0;
    for (uint32_t i = 0; i < l->num_set; i++)
        l->transfers[l->set[i]].new_bottleneck = NONE;
    for (uint32_t i = 0; i < l->num_touched; i++) {
        one_link *link = &l->links[l->touched[i]];
        count_link(l, link);
        link->share = share_of(link);
        l->shares[l->num_shares++] = l->touched[i];
    }
    for (uint32_t i = l->num_shares; i-- > 0;)
        sift_share(l, i);
    while (l->num_shares > 0) {
        uint32_t at = l->shares[0];
        one_link *link = &l->links[at];
        double share = link->num_open > 0 ? share_of(link) : HUGE_VAL;
        if (link->num_open > 0 && share <= link->share) {
            freeze(l, at, share);
        } else if (link->num_open > 0) {
            link->share = share;
            sift_share(l, 0);
            continue;
        }
        l->shares[0] = l->shares[--l->num_shares];
        if (l->num_shares > 0)
            sift_share(l, 0);
    }
}

/* The fastest of the set on the link. */
static double fastest_of_set(const links *l, const one_link *link)
{
    double fastest = 0;
    for (uint32_t p = link->first; p != NONE;) {
        const transfer *it = &l->transfers[p / LINKS_MAX_ROUTE];
        if (it->is_in_set)
            fastest = fmax(fastest, it->new_rate);
        p = it->next[p % LINKS_MAX_ROUTE];
    }
    return fastest;
}

/* Transfers beside the set that its new rates concern join it. */
static void join_concerned(links *l, uint32_t at)
{
    one_link *link = &l->links[at];
    double fastest = fmax(link->others_max, fastest_of_set(l, link));
    bool is_full = !is_more(link->bandwidth, link->bandwidth - link->left);
    for (uint32_t p = link->first; p != NONE;) {
        const transfer *it = &l->transfers[p / LINKS_MAX_ROUTE];
        uint32_t next = it->next[p % LINKS_MAX_ROUTE];
        bool is_too_fast = link->set_level >= 0 && is_more(it->rate, link->set_level);
        bool is_free = it->bottleneck == at && (!is_full || is_more(fastest, it->rate));
        if (!it->is_in_set && (is_too_fast || is_free))
            join_set(l, p / LINKS_MAX_ROUTE);
        p = next;
    }
}

static void take_rates(links *l)
{
    for (uint32_t i = 0; i < l->num_touched; i++)
        l->links[l->touched[i]].is_touched = false;
    for (uint32_t i = 0; i < l->num_set; i++) {
        uint32_t t = l->set[i];
        transfer *it = &l->transfers[t];
        it->is_in_set = false;
        it->bottleneck = it->new_bottleneck;
        if (it->new_rate == it->rate)
            continue;
        it->left = links_left_at(it, l->now_s);
        it->since_s = l->now_s;
        it->rate = it->new_rate;
        links_set_event(l, t, it->rate > 0 ? l->now_s + it->left / it->rate : HUGE_VAL);
    }
}

void links_compute_rates(links *l)
{
    begin_set(l);
    uint32_t before;
    do {
        before = l->num_set;
        fill_set(l);
        uint32_t num_touched = l->num_touched;
        for (uint32_t i = 0; i < num_touched; i++)
            join_concerned(l, l->touched[i]);
    } while (l->num_set > before);
    take_rates(l);
}
