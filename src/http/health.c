#include "http/health.h"

void qr_http_health_look(qr_http_health *health, const quire_monitor *monitor, uint64_t now_ns)
{
    quire_monitor_step last;
    if (quire_monitor_last_step(monitor, &last) != QUIRE_OK)
        return;
    if (last.step == atomic_load_explicit(&health->step, memory_order_relaxed))
        return;
    atomic_store_explicit(&health->changed_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&health->step, last.step, memory_order_release);
}

qr_http_state qr_http_health_ask(const qr_http_health *health, const quire_monitor *monitor,
                                 uint64_t now_ns)
{
    qr_http_state state = {0};
    if (quire_monitor_last_step(monitor, &state.last) != QUIRE_OK)
        return state;
    state.has_step = true;
    uint64_t seen = atomic_load_explicit(&health->step, memory_order_acquire);
    uint64_t changed_ns = atomic_load_explicit(&health->changed_ns, memory_order_relaxed);
    if (seen == state.last.step && now_ns > changed_ns) /* else there was one just now */
        state.quiet_ns = now_ns - changed_ns;
    bool is_busy = state.last.num_running + state.last.num_waiting + state.last.num_skipped > 0;
    state.is_stuck = is_busy && state.quiet_ns >= health->stuck_ns;
    return state;
}
