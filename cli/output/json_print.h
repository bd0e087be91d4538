/* cli/output/json_print.h - text as a JSON string. */
#ifndef QUIRE_CLI_OUTPUT_JSON_PRINT_H
#define QUIRE_CLI_OUTPUT_JSON_PRINT_H

#include "base/json.h"

#include <stdio.h>

/* With its quotes; what JSON does not take as it is, escaped. No '<' comes out, so that no text can
 * end the element it is in. */
static inline void json_print_text(FILE *out, const char *text)
{
    char form[QR_JSON_CHAR];
    size_t used;
    fputc('"', out);
    for (size_t left = strlen(text); left > 0; left -= used, text += used)
        fwrite(form, 1, qr_json_char(text, left, form, &used), out);
    fputc('"', out);
}

#endif
