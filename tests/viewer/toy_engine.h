/* viewer/toy_engine.h - a made-up run of any length: see make_page.c. */
#ifndef QUIRE_TESTS_VIEWER_TOY_ENGINE_H
#define QUIRE_TESTS_VIEWER_TOY_ENGINE_H

#include <stdint.h>

typedef struct toy_options {
    uint64_t num_steps;
    uint32_t num_blocks;
    uint32_t num_tiers;
    uint32_t max_rows; /* of the page */
    uint64_t seed;
    const char *page_path;
    const char *report_path;
    const char *snapshots_path; /* may be NULL, and so may the next */
    const char *requests_path;  /* a CSV line for each that ended */
} toy_options;

/* An exit status. */
int toy_run(const toy_options *options);

#endif
