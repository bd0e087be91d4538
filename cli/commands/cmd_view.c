/* cli/commands/cmd_view.c - `quire view`: step snapshots to a page. */
#include "commands.h"
#include "output/failure.h"
#include "output/output.h"
#include "page/page.h"
#include "replay/snapshots.h"

#include <stdio.h>

static const char *html = "quire-view.html";

static const option table[] = {{"html", OPTION_TEXT, &html, "FILE",
                                "file of the page; -: standard output", .def = "quire-view.html",
                                .role = OPTION_OUTPUT},
                               {0}};

static int run_view(void)
{
    page *made = snapshots_read(cmd_view.arguments[0]);
    if (made == NULL)
        return command_failed(&cmd_view, "%s", failure());
    FILE *out = output_open(html);
    int status = out == NULL                   ? command_failed(&cmd_view, "%s", failure())
                 : page_write(made, out, NULL) ? outputs_commit_for(&cmd_view)
                                               : command_failed(&cmd_view, "not enough memory");
    page_close(made);
    if (status == 0)
        fprintf(stderr, "%s\n", html);
    return status;
}

command cmd_view = {
    .name = "view",
    .usage = "view [OPTION]... SNAPSHOTS",
    .summary = "makes a page of the step snapshots that replay --trace writes",
    .examples =
        "  quire replay day.jsonl --trace steps.jsonl      one line for each step\n"
        "  quire view steps.jsonl --html day.html          memory, queues, tokens over time\n"
        "  zstd -dc steps.jsonl.zst | quire view -         from standard input\n",
    .options = table,
    .max_arguments = 1,
    .reads_arguments = true,
    .missing = "expected one SNAPSHOTS file (- for standard input)",
    .run = run_view,
};
