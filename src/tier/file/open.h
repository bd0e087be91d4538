/* tier/file/open.h - the private file's way in: opened, locked, reserved.
 *
 *      directory ─► file (made 0600, never through a link) ─► lock ─► O_DIRECT where it works
 *
 * The lock belongs to the open file: it goes when the process does, however it ends, and a second
 * process is told who has it. */
#ifndef QR_TIER_FILE_OPEN_H
#define QR_TIER_FILE_OPEN_H

#include "tier/file/slab.h"

#include <sys/stat.h>

typedef struct qr_file_handle {
    const char *path;
    const quire_hooks *hooks;
    int fd;     /* -1: not open */
    int folder; /* -1 */
    bool is_direct;
    bool is_ours; /* made or emptied here: not left behind when opening fails */
    qr_file_disk disk;
} qr_file_handle;

/* handle: path and hooks are set. QUIRE_OK, QUIRE_BUSY, QUIRE_E_SYSTEM. */
int qr_file_handle_open(qr_file_handle *handle, quire_switch direct);
/* is_failed: what was made here goes. */
void qr_file_handle_close(qr_file_handle *handle, bool is_failed);

/* Whether others than this user could write there; then the message says so. */
bool qr_file_say_owner(const char *path, const struct stat *info);
/* "12.3 GiB" */
const char *qr_file_size_text(uint64_t bytes, char *text, size_t text_bytes);

/* The check of quire_tier_file_config; as qr_tier_kind has it. */
int qr_file_check_config(const void *callers);

#endif
