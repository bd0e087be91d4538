#include "tier/core/breaker.h"

#include <string.h>

static uint64_t draw_random(qr_breaker *breaker)
{
    uint64_t z = breaker->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void qr_breaker_init(qr_breaker *breaker, uint32_t max_strikes, uint64_t first_ns, uint64_t seed)
{
    memset(breaker, 0, sizeof *breaker);
    breaker->max_strikes = max_strikes;
    breaker->first_ns = first_ns;
    breaker->open_ns = first_ns;
    breaker->random = seed;
}

void qr_breaker_open(qr_breaker *breaker, uint64_t now_ns)
{
    breaker->strikes = 0;
    uint64_t about = breaker->open_ns - breaker->open_ns / 8;
    breaker->health = QUIRE_TIER_OPEN;
    breaker->epoch++;
    breaker->num_opened++;
    breaker->has_probe = false;
    breaker->until_ns = now_ns + about + draw_random(breaker) % (breaker->open_ns / 4 + 1);
    uint64_t most_ns = QR_BREAKER_MOST_TIMES * breaker->first_ns;
    breaker->open_ns = breaker->open_ns > most_ns / 2 ? most_ns : 2 * breaker->open_ns;
}

bool qr_breaker_would_let(const qr_breaker *breaker, uint64_t now_ns)
{
    if (breaker->health == QUIRE_TIER_OPEN)
        return now_ns >= breaker->until_ns;
    return breaker->health == QUIRE_TIER_CLOSED || !breaker->has_probe;
}

bool qr_breaker_let(qr_breaker *breaker, uint64_t now_ns)
{
    if (!qr_breaker_would_let(breaker, now_ns))
        return false;
    if (breaker->health == QUIRE_TIER_OPEN) {
        breaker->health = QUIRE_TIER_PROBING;
        breaker->epoch++;
    }
    breaker->has_probe = breaker->health == QUIRE_TIER_PROBING;
    return true;
}

void qr_breaker_take(qr_breaker *breaker, uint32_t epoch, qr_outcome outcome, uint64_t now_ns)
{
    if (epoch != breaker->epoch)
        return;
    breaker->has_probe = false;
    if (outcome == QR_OUTCOME_NONE)
        return;
    if (outcome == QR_OUTCOME_GOOD) {
        breaker->health = QUIRE_TIER_CLOSED;
        breaker->strikes = 0;
        breaker->open_ns = breaker->first_ns;
        return;
    }
    breaker->strikes++;
    if (breaker->health == QUIRE_TIER_PROBING || breaker->strikes >= breaker->max_strikes)
        qr_breaker_open(breaker, now_ns);
}
