/* cli/cmd_view.c - `quire view`: step snapshots to a page. */
#include "commands.h"
#include "page.h"
#include "snapshots.h"

#include <stdio.h>

static struct {
    const char *html;
} view_options = {.html = "quire-view.html"};

static const option view_table[] = {{"html", OPTION_TEXT, &view_options.html, "FILE",
                                     "where the page goes; -: standard output",
                                     .def = "quire-view.html"},
                                    {0}};

static const char *view_arguments[1];

static command view_command = {
    .name = "view",
    .usage = "view [OPTION]... SNAPSHOTS",
    .summary = "makes a page of the step snapshots that replay --trace writes",
    .examples =
        "  quire replay day.jsonl --trace steps.jsonl      one line for each step\n"
        "  quire view steps.jsonl --html day.html          memory, queues, tokens over time\n"
        "  zstd -dc steps.jsonl.zst | quire view -         from standard input\n",
    .options = view_table,
    .arguments = view_arguments,
    .max_arguments = 1,
};

const command *cmd_view_command(void)
{
    return &view_command;
}

int cmd_view(int argc, char **argv)
{
    int leave = command_parse(&view_command, argc, argv);
    if (leave != 0)
        return leave - 1;
    if (view_command.num_arguments == 0)
        return command_error(&view_command, "which snapshots? (- for standard input)");
    char message[SNAPSHOTS_MESSAGE_BYTES];
    page *made = snapshots_read(view_arguments[0], message);
    if (made == NULL) {
        fprintf(stderr, "quire view: %s\n", message);
        return 1;
    }
    char why[PAGE_MESSAGE_BYTES];
    int failed = page_write(made, view_options.html, NULL, why);
    page_close(made);
    if (failed != 0) {
        fprintf(stderr, "quire view: %s\n", why);
        return 1;
    }
    fprintf(stderr, "%s\n", view_options.html);
    return 0;
}
