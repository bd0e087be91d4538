#include "events_keys.h"
#include "options/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

int events_keys_make(const command *cmd, const char *path)
{
    char public_key[KEY_CHARACTERS + 1];
    char secret_key[KEY_CHARACTERS + 2];
    if (zmq_curve_keypair(public_key, secret_key) != 0)
        return command_failed(cmd, "--make-keys: this libzmq was built without CURVE");
    memcpy(secret_key + KEY_CHARACTERS, "\n", 2);
    int fd =
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* a key is never replaced */
    bool ok = fd >= 0 && write(fd, secret_key, KEY_CHARACTERS + 1) == KEY_CHARACTERS + 1;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    if (!ok) {
        command_error(cmd, "--make-keys: %s: %s", path, strerror(errno));
        if (fd >= 0)
            unlink(path); /* part of a key is no key */
        return 1;
    }
    printf("%s\n", public_key);
    return 0;
}
