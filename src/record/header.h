/* record/header.h - the header line of a part, and the last line of a recording. */
#ifndef QR_RECORD_HEADER_H
#define QR_RECORD_HEADER_H

#include "record/text.h"

#include <quire/record.h>

#include <stdint.h>

typedef struct qr_header {
    qr_record_text fields; /* of every part: ", "engine": ..." to the end of the line */
    unsigned char recording[16];
    double start_s;    /* time 0, since 1970 */
    uint64_t start_ns; /* the same, by the clock of lines */
} qr_header;

/* QUIRE_OK, QUIRE_E_CONFIG, QUIRE_E_RANDOM or QUIRE_E_NOMEM, with a sentence. */
int qr_header_init(qr_header *header, const quire_recorder_config *config);
void qr_header_free(qr_header *header);
void qr_header_put(const qr_header *header, qr_record_text *out, uint32_t part, uint64_t t_ns);
void qr_header_put_close(const qr_header *header, qr_record_text *out, uint64_t num_lines,
                         uint64_t num_lost, uint64_t t_ns);

#endif
