#include "pressure_options.h"

int pressure_check(const command *cmd, const pressure_options *o)
{
    if (o->admit_below > 0 && o->preempt_above == 0)
        return command_error(cmd, "--admit-below %g needs --preempt-above", o->admit_below);
    double admit_below = pressure_admit_below(o);
    if (o->preempt_above > 0 && admit_below > o->preempt_above)
        return command_error(
            cmd,
            "invalid value \"%g\"%s for --admit-below (expected 0..%g, which is --preempt-above)",
            admit_below, o->admit_below > 0 ? "" : ", the default,", o->preempt_above);
    return 0;
}
