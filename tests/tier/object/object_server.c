/* tier/object/object_server.c - the server of fake.h as a program, for bench/tier/object.py.
 *
 *      object_server [CERT_FILE KEY_FILE]     with TLS, or without
 *
 * Prints its port. Takes lines "delay MS" (each reply waits so long) and answers "ok"; ends with
 * its input. */
#include "fake.h"

#include "base/unit.h"

#include <malloc.h>
#include <stdlib.h>

/* Memory of objects that are replaced is used again: no page is asked for twice. */
static void keep_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    (void)mallopt(M_ARENA_MAX, 1);
}

int main(int argc, char **argv)
{
    char line[64];
    keep_memory();
    object_fake *fake = object_fake_start(argc == 3 ? argv[1] : NULL, argc == 3 ? argv[2] : NULL);
    printf("%d\n", object_fake_port(fake));
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "delay ", 6) == 0)
            object_fake_set_delay(fake, (uint32_t)strtoul(line + 6, NULL, 10));
        printf("ok\n");
        (void)fflush(stdout);
    }
    object_fake_stop(fake);
    return 0;
}
