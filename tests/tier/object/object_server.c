/* tier/object/object_server.c - the server of fake.h as a program, for bench/tier/object.py: prints
 * its port, and ends with its input. */
#include "fake.h"

#include "base/unit.h"

#include <unistd.h>

int main(void)
{
    char byte;
    object_fake *fake = object_fake_start(NULL, NULL);
    printf("%d\n", object_fake_port(fake));
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    object_fake_stop(fake);
    return 0;
}
