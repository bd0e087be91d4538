/* cli/output/json_print.h - text as a JSON string. */
#ifndef QUIRE_CLI_OUTPUT_JSON_PRINT_H
#define QUIRE_CLI_OUTPUT_JSON_PRINT_H

#include <stdio.h>

/* With its quotes; what JSON does not take as it is, escaped. */
static inline void json_print_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fprintf(out, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    fputc('"', out);
}

#endif
