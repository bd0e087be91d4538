/* cuda/work.h - what the tests let a GPU compute: slow steps that write and check blocks. */
#ifndef QUIRE_TESTS_CUDA_WORK_H
#define QUIRE_TESTS_CUDA_WORK_H

enum { WORK_THREADS = 256 };

/* Spins, then looks whether every word is `expected` (where check is not 0) and makes it `written`
 * (where write is not 0). */
typedef struct work_args {
    unsigned long long address;
    unsigned long long surprises; /* address of an unsigned: how many words were not as expected */
    unsigned long long spin_ns;
    unsigned num_words;
    unsigned check;
    unsigned expected;
    unsigned write;
    unsigned written;
    unsigned unused;
} work_args;

#endif
