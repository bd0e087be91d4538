/* cli/size/prices.h - what a GPU costs for an hour: --gpu-cost 2.5, --gpu-cost H100=2.5,H200=3.8.
 *
 * The currency is the user's. Prices are above 0, to 1,000,000.
 */
#ifndef QUIRE_CLI_SIZE_PRICES_H
#define QUIRE_CLI_SIZE_PRICES_H

#include <stdint.h>

enum { PRICES_MAX = 32, PRICES_NAME_BYTES = 48 };

typedef struct prices {
    struct {
        char gpu[PRICES_NAME_BYTES]; /* "": any */
        double price;
    } list[PRICES_MAX];
    uint32_t num;
} prices;

/* NULL: none. 0, or -1 and a sentence. */
int prices_read(const char *text, prices *p);
/* The price of a GPU by its name, whose case does not matter; 0 if there are no prices. 0, or -1
 * and a sentence: there are prices, and none is for it. */
int prices_find(const prices *p, const char *name, double *price);

#endif
