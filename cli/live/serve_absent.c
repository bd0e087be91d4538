/* serve_absent.c - what `quire serve` does in a program that was built without its libraries. */
#include "engines.h"

static int is_absent(const command *cmd)
{
    return command_failed(cmd,
                          "this quire was built without it: it needs libmicrohttpd, libzmq and "
                          "msgpack-c (Debian: libmicrohttpd-dev libzmq3-dev libmsgpack-dev)");
}

int serve_run(const command *cmd, const serve_settings *settings, replay_setup *setup)
{
    (void)settings;
    (void)setup;
    return is_absent(cmd);
}

int engines_run(const command *cmd, const serve_settings *settings, const engines_settings *engines,
                replay_setup *setup)
{
    (void)settings;
    (void)engines;
    (void)setup;
    return is_absent(cmd);
}
