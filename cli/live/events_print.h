/* cli/live/events_print.h - KV events as lines.
 *
 *      12 14:03:07.123 stored   group 0 GPU  3 blocks of 16  9f3a.. to 12ab.. after 77aa..
 *      12 14:03:07.123 removed  group 0 GPU  510 blocks  4c01.. to 88e0..
 *      {"number":12,"time":1763215387.123,"delivery":"live","kind":"stored", ...}
 *
 * What comes from a publisher is not trusted: no byte of it can steer a terminal or break a line of
 * JSON.
 */
#ifndef QUIRE_CLI_LIVE_EVENTS_PRINT_H
#define QUIRE_CLI_LIVE_EVENTS_PRINT_H

#include <quire/events.h>

#include <stdbool.h>
#include <stdio.h>

/* All events of a delivery, or the one line that says what happened to them. For people, blocks
 * that were removed one after the other are one line. */
void events_print(FILE *out, const quire_delivery *delivery, bool as_json);
/* A hash as hexadecimal digits: 16, or two for each byte. */
void events_print_hash(FILE *out, const quire_wire_hash *hash);
/* Text of unknown origin: for a terminal, or as a JSON string (null where it is absent). */
void events_print_text(FILE *out, quire_bytes text);
void events_print_json_text(FILE *out, quire_bytes text);

#endif
