/* cli/gpubench/scan.h - rates of all ways to copy, by size of piece and number of CTAs. */
#ifndef QUIRE_CLI_GPUBENCH_SCAN_H
#define QUIRE_CLI_GPUBENCH_SCAN_H

#include "rig.h"

/* Prints the tables as they come. */
void gpu_scan(gpu_rig *rig, FILE *out);

#endif
