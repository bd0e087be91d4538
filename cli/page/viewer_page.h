/* cli/page/viewer_page.h - the page around the data; made from viewer/ by viewer/assemble.cmake. */
#ifndef QUIRE_CLI_PAGE_VIEWER_PAGE_H
#define QUIRE_CLI_PAGE_VIEWER_PAGE_H

#include <stddef.h>

extern const char viewer_head[]; /* ends where the JSON text begins */
extern const size_t viewer_head_bytes;
extern const char viewer_tail[];
extern const size_t viewer_tail_bytes;

extern const char sweep_viewer_head[]; /* the same of a sweep */
extern const size_t sweep_viewer_head_bytes;
extern const char sweep_viewer_tail[];
extern const size_t sweep_viewer_tail_bytes;

extern const char fleet_viewer_head[]; /* the same of a fleet */
extern const size_t fleet_viewer_head_bytes;
extern const char fleet_viewer_tail[];
extern const size_t fleet_viewer_tail_bytes;

#endif
