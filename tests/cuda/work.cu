/* cuda/work.cu - a slow step of an engine, in one CTA. */
#include "tier/device/cuda/cta.cuh"
#include "work.h"

KERNEL(quire_test_step, work_args, WORK_THREADS)
{
    SHARED unsigned wrong[WORK_THREADS];
    volatile unsigned *words = (volatile unsigned *)args.address;
    const unsigned long long start = read_timer_ns();
    while (read_timer_ns() - start < args.spin_ns)
        ;
    SYNC();
    EACH_THREAD (thread) {
        wrong[thread] = 0;
        for (unsigned i = thread; i < args.num_words; i += NUM_THREADS) {
            if (args.check != 0 && words[i] != args.expected)
                wrong[thread]++;
            if (args.write != 0)
                words[i] = args.written;
        }
    }
    SYNC();
    EACH_THREAD (thread)
        for (unsigned i = 0; thread == 0 && i < NUM_THREADS; i++)
            *(unsigned *)args.surprises += wrong[i];
}
