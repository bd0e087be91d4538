#include "secret_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LINE_BYTES = 512, MAX_KEYS = 4096 };

static int wrong_file(const command *cmd, const char *option_name, const char *path,
                      const char *what)
{
    return command_error(cmd, "--%s: %s: %s", option_name, path, what);
}

/* *in is open, or a sentence is out. */
static int open_secret(const command *cmd, const char *option_name, const char *path,
                       bool is_public, FILE **in)
{
    struct stat about;
    *in = fopen(path, "r");
    if (*in == NULL)
        return wrong_file(cmd, option_name, path, strerror(errno));
    if (is_public || fstat(fileno(*in), &about) != 0 || (about.st_mode & 077) == 0)
        return 0;
    fclose(*in);
    return command_error(cmd, "--%s: %s is readable by other users; run chmod 600 %s", option_name,
                         path, path);
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL)
        text[--n] = '\0';
    return text;
}

static int read_first(const command *cmd, const char *option_name, const char *path, bool is_public,
                      char line[LINE_BYTES], char **text)
{
    FILE *in;
    int status = open_secret(cmd, option_name, path, is_public, &in);
    if (status != 0)
        return status;
    bool has_line = fgets(line, LINE_BYTES, in) != NULL;
    fclose(in);
    *text = has_line ? trim(line) : NULL;
    if (!has_line || (*text)[0] == '\0')
        return wrong_file(cmd, option_name, path, "the first line is empty");
    return 0;
}

int secret_file_read(const command *cmd, const char *option_name, const char *path,
                     char secret[SECRET_BYTES])
{
    char line[LINE_BYTES];
    char *text;
    int status = read_first(cmd, option_name, path, false, line, &text);
    if (status != 0)
        return status;
    if (strlen(text) >= SECRET_BYTES)
        return wrong_file(cmd, option_name, path, "the first line is longer than 256 characters");
    memcpy(secret, text, strlen(text) + 1);
    return 0;
}

static int take_key(const command *cmd, const char *option_name, const char *path, const char *text,
                    char key[KEY_CHARACTERS + 1])
{
    if (strlen(text) != KEY_CHARACTERS)
        return wrong_file(
            cmd, option_name, path,
            "invalid CURVE key (expected 40 characters; quire events --make-keys makes a pair)");
    memcpy(key, text, KEY_CHARACTERS + 1);
    return 0;
}

int secret_file_read_key(const command *cmd, const char *option_name, const char *path,
                         bool is_public, char key[KEY_CHARACTERS + 1])
{
    char line[LINE_BYTES];
    char *text;
    int status = read_first(cmd, option_name, path, is_public, line, &text);
    return status != 0 ? status : take_key(cmd, option_name, path, text, key);
}

int secret_file_read_keys(const command *cmd, const char *option_name, const char *path,
                          char (**keys)[KEY_CHARACTERS + 1], uint32_t *num_keys)
{
    FILE *in;
    char line[LINE_BYTES];
    *num_keys = 0;
    *keys = NULL;
    int status = open_secret(cmd, option_name, path, true, &in);
    if (status != 0)
        return status;
    *keys = calloc(MAX_KEYS, sizeof **keys);
    if (*keys == NULL)
        status = wrong_file(cmd, option_name, path, "not enough memory");
    while (status == 0 && fgets(line, sizeof line, in) != NULL) {
        const char *text = trim(line);
        if (text[0] == '\0' || text[0] == '#')
            continue;
        if (*num_keys == MAX_KEYS)
            status = wrong_file(cmd, option_name, path, "more than 4,096 keys");
        else
            status = take_key(cmd, option_name, path, text, (*keys)[(*num_keys)++]);
    }
    fclose(in);
    if (status == 0 && *num_keys == 0)
        status = wrong_file(cmd, option_name, path, "contains no keys");
    return status;
}
