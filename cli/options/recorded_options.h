/* cli/options/recorded_options.h - the scheduler of a recording, as options of a replay.
 *
 * `--compare-with RECORDING` replays with the configuration of the recording's header. An option
 * that was given and says something else is refused: the replay could not be compared.
 */
#ifndef QUIRE_CLI_OPTIONS_RECORDED_OPTIONS_H
#define QUIRE_CLI_OPTIONS_RECORDED_OPTIONS_H

#include "recording/recorded.h"
#include "replay_options.h"

/* Before replay_prepare: 0, or an exit status after a sentence on stderr. */
int recorded_options_apply(const command *cmd, replay_options *o, const recorded_header *header);
/* After it: whether model and constants can be those of the recording. The same. */
int recorded_options_check(const command *cmd, const replay_setup *setup,
                           const recorded_header *header);

#endif
