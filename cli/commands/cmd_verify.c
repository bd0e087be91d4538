/* cli/commands/cmd_verify.c - `quire verify`: the decisions of a recording, made again. */
#include "commands.h"
#include "output/failure.h"
#include "verify/verify.h"

#include <stdio.h>

static bool is_quiet;

static const option table[] = {
    {"quiet", OPTION_SWITCH, &is_quiet, NULL, "print only a difference", .def = "off"}, {0}};

static int run_verify(void)
{
    verify_result r;
    if (verify_recording(cmd_verify.arguments[0], &r) != 0)
        return command_failed(&cmd_verify, "%s", failure());
    if (!is_quiet || r.differs)
        printf("%llu steps, %llu requests, %s\n", (unsigned long long)r.num_steps,
               (unsigned long long)r.num_requests, r.differs ? "1 difference" : "0 differences");
    if (r.differs) {
        printf("%s\n", r.sentence);
        return COMMAND_FAILED;
    }
    if (!is_quiet)
        printf("%llu tokens scheduled, %llu admissions, %llu hit tokens, %llu preemptions, %llu "
               "requests ended\n",
               (unsigned long long)r.num_tokens, (unsigned long long)r.num_admitted,
               (unsigned long long)r.num_hit_tokens, (unsigned long long)r.num_preempted,
               (unsigned long long)r.num_ended);
    return 0;
}

command cmd_verify = {
    .name = "verify",
    .usage = "verify [OPTION]... RECORDING",
    .summary = "repeats the decisions of a recorded engine step by step",
    .examples = "  quire verify rec.0000.jsonl.zst            the first part finds the others\n"
                "  quire verify --quiet rec.0000.jsonl.zst    prints the first difference, if "
                "there is one\n",
    .options = table,
    .max_arguments = 1,
    .reads_arguments = true,
    .missing = "expected one RECORDING, its first part",
    .run = run_verify,
};
