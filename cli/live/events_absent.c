/* events_absent.c - what `quire events` does in a program that was built without its library. */
#include "events_run.h"

static int say_absent(const command *cmd)
{
    return command_failed(cmd, "this quire was built without it: it needs libzmq and msgpack-c "
                               "(Debian: libzmq3-dev libmsgpack-dev)");
}

int events_run(const command *cmd, const events_settings *settings)
{
    (void)settings;
    return say_absent(cmd);
}

int events_keys_make(const command *cmd, const char *path)
{
    (void)path;
    return say_absent(cmd);
}
