/* cli/options/secret_file.h - tokens and keys, one a line, from files that only their owner may
 * read: on a
 * command line everybody on the machine would see them.
 */
#ifndef QUIRE_CLI_OPTIONS_SECRET_FILE_H
#define QUIRE_CLI_OPTIONS_SECRET_FILE_H

#include "options.h"

enum { SECRET_BYTES = 257, KEY_CHARACTERS = 40 };

/* The first line of a file, without blanks around it. 0, or an exit status after a sentence that
 * names the option. */
int secret_file_read(const command *cmd, const char *option_name, const char *path,
                     char secret[SECRET_BYTES]);
/* A CURVE key: the first line has its 40 characters. is_public: others may read the file. */
int secret_file_read_key(const command *cmd, const char *option_name, const char *path,
                         bool is_public, char key[KEY_CHARACTERS + 1]);
/* All keys of a file, one a line; *keys is to be freed. */
int secret_file_read_keys(const command *cmd, const char *option_name, const char *path,
                          char (**keys)[KEY_CHARACTERS + 1], uint32_t *num_keys);

#endif
