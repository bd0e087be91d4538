/* cli/commands/cmd_view.c - `quire view`: step snapshots to a page. */
#include "commands.h"
#include "output/output.h"
#include "page/page.h"
#include "replay/snapshots.h"

#include <stdio.h>

static struct {
    const char *html;
} view_options = {.html = "quire-view.html"};

static const option view_table[] = {{"html", OPTION_TEXT, &view_options.html, "FILE",
                                     "file of the page; -: standard output",
                                     .def = "quire-view.html", .role = OPTION_OUTPUT},
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
    .reads_arguments = true,
};

const command *cmd_view_command(void)
{
    return &view_command;
}

static int write_page(const page *made)
{
    char message[OUTPUT_MESSAGE_BYTES] = "not enough memory";
    FILE *out = output_open(view_options.html, message);
    bool is_written = out != NULL && page_write(made, out, NULL) && outputs_commit(message) == 0;
    if (!is_written)
        command_error(&view_command, "%s", message);
    return is_written ? 0 : 1;
}

int cmd_view(int argc, char **argv)
{
    int leave = command_parse(&view_command, argc, argv);
    if (leave != 0)
        return leave - 1;
    if (view_command.num_arguments == 0)
        return command_error(&view_command, "expected one SNAPSHOTS file (- for standard input)");
    char message[SNAPSHOTS_MESSAGE_BYTES];
    page *made = snapshots_read(view_arguments[0], message);
    if (made == NULL) {
        fprintf(stderr, "quire view: %s\n", message);
        return 1;
    }
    int status = write_page(made);
    page_close(made);
    if (status == 0)
        fprintf(stderr, "%s\n", view_options.html);
    return status;
}
