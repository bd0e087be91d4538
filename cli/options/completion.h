/* cli/options/completion.h - shell completion and the manual page, from the commands' tables of
 * options.
 *
 *      source <(quire completion bash)
 *      quire completion zsh > ~/.zfunc/_quire
 *      quire completion fish > ~/.config/fish/completions/quire.fish
 *      quire man > quire.1
 */
#ifndef QUIRE_CLI_OPTIONS_COMPLETION_H
#define QUIRE_CLI_OPTIONS_COMPLETION_H

#include "options.h"

/* To standard output; commands end with NULL. False for a shell that is not known. */
bool completion_print(const command *const *commands, const char *shell);
void man_print(const command *const *commands);

#endif
