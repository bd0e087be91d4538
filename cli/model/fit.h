/* cli/model/fit.h - coefficients that are not negative, from rows with noise and outliers.
 *
 *      y = c[0] x[0] + c[1] x[1] + ... + c[n-1] x[n-1]        each c >= 0
 *
 * A step that another process has delayed says nothing of the engine: rows far from the prediction
 * count less and less, until they do not count at all. Errors are relative, so that short steps
 * count as much as long ones. At the end all coefficients are multiplied by one factor, so that the
 * sum of the predictions is that of the rows (but rows beyond FIT_FAR times their prediction):
 * ordinary noise makes steps longer on average, and latencies are sums of steps. Same rows, same
 * result.
 */
#ifndef QUIRE_CLI_MODEL_FIT_H
#define QUIRE_CLI_MODEL_FIT_H

#include <stdbool.h>
#include <stdint.h>

enum { FIT_MAX_TERMS = 8, FIT_FAR = 4 };

typedef struct fit_row {
    double x[FIT_MAX_TERMS]; /* not negative */
    double y;                /* above 0 */
} fit_row;

/* False: no rows, or no memory; c is all 0 then. */
bool fit_nonnegative(const fit_row *rows, uint32_t num_rows, uint32_t num_terms, double *c);
double fit_predict(const fit_row *row, uint32_t num_terms, const double *c);

/* The same for rows in the order of time, on a machine whose speed changes (other work, clock
 * rates): slow steps let requests pile up, and a plain fit would take the slowness for the cost of
 * requests. So what FIT_RUN rows after each other have in common, the median of y / prediction, is
 * divided out before the coefficients are fitted; the sum is that of the rows again. */
enum { FIT_RUN = 64 };
bool fit_level(const fit_row *rows, uint32_t num_rows, uint32_t num_terms, double *c);

/* How far predictions are from rows. */
typedef struct fit_errors {
    uint32_t num_rows;
    double median; /* of |predicted / y - 1| */
    double p90;
    double sum; /* of all predictions / sum of all y, - 1 */
} fit_errors;

fit_errors fit_compare(const fit_row *rows, uint32_t num_rows, uint32_t num_terms, const double *c);

#endif
