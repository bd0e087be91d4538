#include "pace.h"

enum { MAX_BEHIND_MS = 500 };

double pace_left_s(pace *p, double until_s, double real_s)
{
    if (p->speed <= 0) {
        p->simulated_s = until_s > p->simulated_s ? until_s : p->simulated_s;
        return 0;
    }
    if (!p->has_begun) {
        p->has_begun = true;
        p->real_s = real_s;
    }
    double left = p->real_s + (until_s - p->simulated_s) / p->speed - real_s;
    if (left < -MAX_BEHIND_MS * 1e-3) {
        p->real_s = real_s;
        p->simulated_s = until_s;
    }
    return left;
}

double pace_simulated_s(const pace *p, double real_s)
{
    if (p->speed <= 0 || !p->has_begun)
        return p->simulated_s;
    return p->simulated_s + (real_s - p->real_s) * p->speed;
}
