/* cli/commands/commands.h - the commands of the program, one file cmd_NAME.c each: its table of
 * options, which point to static variables, and what it does.
 */
#ifndef QUIRE_CLI_COMMANDS_H
#define QUIRE_CLI_COMMANDS_H

#include "options/options.h"

extern command cmd_replay;
extern command cmd_fleet;
extern command cmd_size;
extern command cmd_serve;
extern command cmd_events;
extern command cmd_sweep;
extern command cmd_curve;
extern command cmd_compare;
extern command cmd_rerun;
extern command cmd_generate;
extern command cmd_plan;
extern command cmd_time;
extern command cmd_view;
extern command cmd_bench;
extern command cmd_tier;
extern command cmd_verify;
extern command cmd_trace;
extern command cmd_trace_info;
extern command cmd_trace_check;
extern command cmd_trace_convert;
extern command cmd_trace_cut;
extern command cmd_trace_scale;
extern command cmd_trace_mix;
extern command cmd_trace_anonymise;

#endif
