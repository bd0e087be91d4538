/* cli/commands/commands.h - the commands of the program, one file cmd_NAME.c each.
 *
 *      int cmd_NAME(int argc, char **argv)         argv[0] is the command's name; an exit status:
 *                                                  0, 1 when its work failed, 2 for a wrong call
 *      const command *cmd_NAME_command(void)       its table of options, for help, completion and
 *                                                  man page; so options point to static variables
 *
 * In a file:
 *
 *      static struct { uint32_t block_size; bool json; } o = {.block_size = 16};
 *      static const option table[] = {...};
 *      static const char *arguments[1];
 *      static command cmd = {.name = "replay", .usage = "replay [OPTION]... TRACE", ...};
 *
 *      const command *cmd_replay_command(void)
 *      {
 *          return &cmd;
 *      }
 *
 *      int cmd_replay(int argc, char **argv)
 *      {
 *          int leave = command_parse(&cmd, argc, argv);
 *          if (leave != 0)
 *              return leave - 1;
 *          ...
 */
#ifndef QUIRE_CLI_COMMANDS_H
#define QUIRE_CLI_COMMANDS_H

#include "options/options.h"

int cmd_replay(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_curve(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_rerun(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_time(int argc, char **argv);
int cmd_view(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_tier(int argc, char **argv);

const command *cmd_replay_command(void);
const command *cmd_serve_command(void);
const command *cmd_events_command(void);
const command *cmd_sweep_command(void);
const command *cmd_curve_command(void);
const command *cmd_compare_command(void);
const command *cmd_rerun_command(void);
const command *cmd_generate_command(void);
const command *cmd_plan_command(void);
const command *cmd_time_command(void);
const command *cmd_view_command(void);
const command *cmd_bench_command(void);
const command *cmd_tier_command(void);

#endif
