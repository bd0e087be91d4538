#include "http/health.h"

void qr_http_health_look(qr_http_health *health, const quire_monitor *monitor, uint64_t now_ns)
{
    uint64_t step = qr_http_last_step(monitor);
    if (step == atomic_load_explicit(&health->step, memory_order_relaxed) &&
        quire_monitor_get_num_unfinished(monitor) > 0)
        return;
    atomic_store_explicit(&health->fine_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&health->step, step, memory_order_release);
}

qr_http_state qr_http_health_ask(const qr_http_health *health, const quire_monitor *monitor,
                                 uint64_t now_ns)
{
    qr_http_state state = {.step = qr_http_last_step(monitor),
                           .num_unfinished = quire_monitor_get_num_unfinished(monitor)};
    uint64_t seen = atomic_load_explicit(&health->step, memory_order_acquire);
    uint64_t fine_ns = atomic_load_explicit(&health->fine_ns, memory_order_relaxed);
    bool is_fine = seen != state.step || state.num_unfinished == 0 || now_ns < fine_ns;
    state.quiet_ns = is_fine ? 0 : now_ns - fine_ns;
    state.is_stuck = !is_fine && state.quiet_ns >= health->stuck_ns;
    return state;
}
