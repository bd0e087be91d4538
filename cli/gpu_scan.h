/* cli/gpu_scan.h - rates of all ways to copy, by size of piece and number of CTAs. */
#ifndef QUIRE_CLI_GPU_SCAN_H
#define QUIRE_CLI_GPU_SCAN_H

#include "gpu_rig.h"

/* Prints the tables as they come. */
void gpu_scan(gpu_rig *rig, FILE *out);

#endif
