/* cmd_time.c - `quire time`: how long a step takes, predicted, measured, or fitted.
 *
 *      quire time --prefill 2048 --decode 64       one step, and where its time goes
 *      quire time --csv steps.csv                  predicted beside measured
 *      quire time --calibrate steps.csv            constants that fit the measured steps
 *      quire time --calibrate rec.0000.jsonl.zst   constants of a recorded engine
 */
#include "commands.h"
#include "model/calibrate.h"
#include "options/engine.h"
#include "output/failure.h"
#include "output/json_print.h"
#include "output/made_by.h"
#include "recording/calibration.h"
#include "trace/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    engine_options engine;
    uint32_t prefill;
    uint32_t prefill_context;
    uint32_t prefill_requests;
    uint32_t decode;
    uint32_t decode_context;
    const char *csv;
    const char *calibrate;
    const char *write_constants;
    bool json;
} o = {.engine = ENGINE_OPTIONS_INIT, .prefill_requests = 1, .decode_context = 1024};

static const option table[] = {
    {"prefill", OPTION_U32, &o.prefill, "TOKENS", "new prompt tokens of each request", .def = "0",
     .max = 1 << 22, .section = "The step"},
    {"prefill-context", OPTION_U32, &o.prefill_context, "TOKENS",
     "tokens of each request that are already computed", .def = "0", .max = 1 << 24},
    {"prefill-requests", OPTION_U32, &o.prefill_requests, "N", "requests with new prompt tokens",
     .def = "1", .min = 1, .max = 1 << 16},
    {"decode", OPTION_U32, &o.decode, "N", "requests with one new token", .def = "0",
     .max = 1 << 20},
    {"decode-context", OPTION_U32, &o.decode_context, "TOKENS",
     "tokens of each request, the new token included", .def = "1024", .min = 1, .max = 1 << 24},
    {"csv", OPTION_TEXT, &o.csv, "FILE",
     "steps with columns model, kind, tokens, batch, context and, where measured, ms",
     .section = "Steps from a file"},
    {"calibrate", OPTION_TEXT, &o.calibrate, "FILE",
     "the same columns, or a recording: fit constants to the measured times", .def = NULL},
    {"write-constants", OPTION_TEXT, &o.write_constants, "FILE",
     "write the fitted constants, for --time-constants", .role = OPTION_OUTPUT},
    {"json", OPTION_SWITCH, &o.json, NULL, "print JSON", .def = "off", .role = OPTION_OUTPUT},
    ENGINE_MODEL_OPTIONS(o.engine),
    {0}};

/* ---- one step ------------------------------------------------------------ */

static void print_parts(const step_parts *parts, double ms)
{
    const struct {
        const char *name;
        double ms;
    } rows[] = {{"matrices", parts->matrices}, {"attention", parts->attention},
                {"KV cache", parts->kv},       {"activations", parts->activations},
                {"fixed", parts->fixed},       {"engine", parts->engine}};
    printf("%s on %u x %s%s\n", o.engine.model, o.engine.plan.tp, o.engine.gpu,
           o.engine.plan.tp > 1 ? " (exchanges between GPUs are an estimate)" : "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("  %-12s %10.4f ms  %5.1f %%\n", rows[i].name, rows[i].ms,
               ms > 0 ? 100 * rows[i].ms / ms : 0);
    printf("  %-12s %10.4f ms   (matrices: compute %.4f, reading weights %.4f)\n", "step", ms,
           parts->compute, parts->weights);
}

/* A step is predicted whether or not the model fits; that it does not is said. */
static bool check_fit(const engine_setup *setup)
{
    plan_settings settings = {.tp = o.engine.plan.tp, .cache_dtype = setup->cache_dtype};
    plan_result plan;
    bool fits = plan_num_blocks(&setup->shape, &setup->gpu, &settings, &plan, NULL) == 0;
    if (!fits)
        command_error(&cmd_time, "note: %s", failure());
    return fits;
}

static int time_one_step(const engine_setup *setup)
{
    step_work work = {0};
    if (o.prefill == 0 && o.decode == 0)
        return command_error(&cmd_time,
                             "expected --prefill, --decode, --csv or --calibrate; see quire time "
                             "--help");
    for (uint32_t i = 0; o.prefill > 0 && i < o.prefill_requests; i++)
        step_work_add(&setup->time, &work, o.prefill, o.prefill_context);
    for (uint32_t i = 0; i < o.decode; i++)
        step_work_add(&setup->time, &work, 1, o.decode_context - 1);
    double ms = time_model_step_ms(&setup->time, &work);
    step_parts parts = time_model_parts(&setup->time, &work);
    bool fits = check_fit(setup);
    if (o.json) {
        printf("{\"ms\": %.6f, \"fits\": %s, \"compute_ms\": %.6f, \"weights_ms\": %.6f, "
               "\"matrices_ms\": %.6f, "
               "\"attention_ms\": %.6f, \"kv_ms\": %.6f, \"activations_ms\": %.6f, "
               "\"fixed_ms\": %.6f, \"engine_ms\": %.6f, \"made_by\": ",
               ms, fits ? "true" : "false", parts.compute, parts.weights, parts.matrices,
               parts.attention, parts.kv, parts.activations, parts.fixed, parts.engine);
        made_by_print(stdout, &cmd_time);
        printf("}\n");
    } else {
        print_parts(&parts, ms);
    }
    return 0;
}

/* ---- steps of a file ----------------------------------------------------- */

static void print_rows(const steps_file *file, const double *ms)
{
    printf("%-18s %-8s %8s %6s %8s %12s %12s %9s\n", "model", "kind", "tokens", "batch", "context",
           "measured ms", "predicted ms", "error");
    for (uint32_t i = 0; i < file->num_steps; i++) {
        const measured_step *step = &file->steps[i];
        printf("%-18s %-8s %8u %6u %8u ", file->shapes[step->shape].name,
               step->is_decode ? "decode" : "prefill", step->num_tokens, step->batch,
               step->context);
        if (step->ms > 0)
            printf("%12.4f %12.4f %+8.2f%%\n", step->ms, ms[i], 100 * (ms[i] / step->ms - 1));
        else
            printf("%12s %12.4f %9s\n", "-", ms[i], "-");
    }
}

static void print_errors(const steps_file *file, const double *ms)
{
    step_errors errors = steps_compare(file, ms);
    if (errors.num_steps > 0)
        printf("%u measured steps: median error %.2f %%, worst %.2f %% (line %u)\n",
               errors.num_steps, 100 * errors.median, 100 * errors.worst, errors.worst_line);
}

static void print_json_rows(const steps_file *file, const double *ms)
{
    step_errors errors = steps_compare(file, ms);
    printf("{\"steps\": [\n");
    for (uint32_t i = 0; i < file->num_steps; i++) {
        const measured_step *step = &file->steps[i];
        printf("  {\"model\": ");
        json_print_text(stdout, file->shapes[step->shape].name);
        printf(", \"line\": %u, \"kind\": \"%s\", \"tokens\": %u, \"batch\": %u, \"context\": %u, "
               "\"predicted_ms\": %.6f",
               step->line, step->is_decode ? "decode" : "prefill", step->num_tokens, step->batch,
               step->context, ms[i]);
        if (step->ms > 0)
            printf(", \"measured_ms\": %.6f, \"error\": %.6f", step->ms, ms[i] / step->ms - 1);
        printf("}%s\n", i + 1 < file->num_steps ? "," : "");
    }
    printf("], \"measured_steps\": %u, \"median_error\": %.6f, \"worst_error\": %.6f, "
           "\"made_by\": ",
           errors.num_steps, errors.median, errors.worst);
    made_by_print(stdout, &cmd_time);
    printf("}\n");
}

static int fit_constants(engine_setup *setup, const steps_file *file, double *ms)
{
    gpu_constants before = setup->gpu.constants;
    if (!calibrate(file, &setup->gpu, o.engine.plan.tp, setup->cache_dtype))
        return command_error(&cmd_time, "%s: contains no measured step", o.calibrate);
    printf("%-18s %12s %12s\n", "constant", "before", "fitted");
    for (uint32_t i = 0; gpu_constant_name(i); i++)
        printf("%-18s %12.5g %12.5g\n", gpu_constant_name(i), *gpu_constant(&before, i),
               *gpu_constant(&setup->gpu.constants, i));
    steps_predict(file, &setup->gpu, o.engine.plan.tp, setup->cache_dtype, ms);
    print_errors(file, ms);
    if (file->num_shapes == 1)
        printf("Steps of one model cannot separate the fixed cost of layers from the reading of "
               "weights:\nadd steps of a second model of another size.\n");
    if (o.write_constants &&
        !gpu_constants_write(o.write_constants, &setup->gpu.constants,
                             "constants of the time model, for --time-constants"))
        return command_failed(&cmd_time, "--write-constants: %s", failure());
    return 0;
}

/* ---- a recording ----------------------------------------------------------- */

static void print_fit(const char *name, const fit_errors *fitted, const fit_errors *held_out)
{
    printf("%-24s %9u %9.2f %% %9.2f %% %+9.2f %% %11u %9.2f %% %9.2f %% %+9.2f %%\n", name,
           fitted->num_rows, 100 * fitted->median, 100 * fitted->p90, 100 * fitted->sum,
           held_out->num_rows, 100 * held_out->median, 100 * held_out->p90, 100 * held_out->sum);
}

static void print_calibration(const recorded *m, const gpu_constants *fitted, const calibration *it)
{
    gpu_constants c = *fitted;
    printf("%s %s, %s: %u requests, %u steps in %.1f s; every fifth part of %.1f s is held out\n",
           m->header.engine, m->header.engine_version, m->header.model, m->num_requests,
           m->num_steps, m->end_s, it->window_s);
    printf("%-24s %9s %11s %11s %11s %11s %11s %11s %11s\n", "", "fitted", "median", "p90", "sum",
           "held out", "median", "p90", "sum");
    print_fit("time of a step", &it->steps, &it->steps_held_out);
    if (it->gaps.num_rows > 0)
        print_fit("between two steps", &it->gaps, &it->gaps_held_out);
    printf("before the first step: %s\n",
           it->num_arrivals > 0 ? "of requests that came to an idle engine"
                                : "too few requests came to an idle engine; of the fastest tenth");
    for (uint32_t i = 0; gpu_constant_name(i); i++)
        if (strcmp(gpu_constant_name(i), "step_ms") == 0 || i >= CALIBRATION_FIRST_CONSTANT)
            printf("%-18s %12.5g\n", gpu_constant_name(i), *gpu_constant(&c, i));
    if (m->num_lost > 0)
        printf("%llu lines were lost: nothing behind them was read\n",
               (unsigned long long)m->num_lost);
    if (m->is_cut)
        printf("The recording has no close line: its end may be missing.\n");
}

static void print_json_fit(const char *name, const fit_errors *e)
{
    printf("\"%s\": {\"rows\": %u, \"median_error\": %.6f, \"p90_error\": %.6f, "
           "\"sum_error\": %.6f}, ",
           name, e->num_rows, e->median, e->p90, e->sum);
}

static void print_json_calibration(const recorded *m, const gpu_constants *fitted,
                                   const calibration *it)
{
    gpu_constants c = *fitted;
    printf("{\"model\": ");
    json_print_text(stdout, m->header.model);
    printf(", \"steps\": %u, \"requests\": %u, ", m->num_steps, m->num_requests);
    print_json_fit("step_fit", &it->steps);
    print_json_fit("step_held_out", &it->steps_held_out);
    print_json_fit("gap_fit", &it->gaps);
    print_json_fit("gap_held_out", &it->gaps_held_out);
    printf("\"lost_lines\": %llu, \"constants\": {", (unsigned long long)m->num_lost);
    for (uint32_t i = 0; gpu_constant_name(i); i++)
        printf("%s\"%s\": %.9g", i > 0 ? ", " : "", gpu_constant_name(i), *gpu_constant(&c, i));
    printf("}, \"made_by\": ");
    made_by_print(stdout, &cmd_time);
    printf("}\n");
}

static int write_calibration(const recorded *m, gpu_constants *c)
{
    snprintf(c->model, sizeof c->model, "%s", m->header.model);
    if (o.write_constants &&
        !gpu_constants_write(o.write_constants, c,
                             "constants of the time model, fitted to a recording of this model"))
        return command_failed(&cmd_time, "--write-constants: %s", failure());
    return 0;
}

static int fit_recording(const engine_setup *setup)
{
    recorded m;
    calibration found;
    gpu_constants c = setup->gpu.constants;
    int status = recorded_read(o.calibrate, &setup->time, &m) != 0 ||
                 calibration_fit(&m, &setup->time, &c, &found) != 0;
    if (status != 0)
        status = command_failed(&cmd_time, "--calibrate %s: %s", o.calibrate, failure());
    else
        status = write_calibration(&m, &c);
    if (status == 0 && o.json)
        print_json_calibration(&m, &c, &found);
    else if (status == 0)
        print_calibration(&m, &c, &found);
    recorded_free(&m);
    return status;
}

/* ---- the command ----------------------------------------------------------- */

static int time_file(engine_setup *setup)
{
    steps_file file;
    int status = 0;
    if (steps_read(o.csv ? o.csv : o.calibrate, &setup->shape, &file) != 0)
        return command_error(&cmd_time, "%s", failure());
    double *ms = calloc(file.num_steps, sizeof *ms);
    if (!ms) {
        status = command_error(&cmd_time, "out of memory");
    } else if (o.calibrate) {
        status = fit_constants(setup, &file, ms);
    } else {
        steps_predict(&file, &setup->gpu, o.engine.plan.tp, setup->cache_dtype, ms);
        if (o.json) {
            print_json_rows(&file, ms);
        } else {
            print_rows(&file, ms);
            print_errors(&file, ms);
        }
    }
    free(ms);
    steps_free(&file);
    return status;
}

static int run_time(void)
{
    engine_setup setup;
    int status = engine_resolve(&cmd_time, &o.engine, &setup);
    if (status == 0)
        status = engine_check_time(&cmd_time, &setup);
    if (status != 0)
        return status;
    if (o.csv && o.calibrate)
        return command_error(&cmd_time, "--csv and --calibrate cannot be used together");
    if (o.calibrate && (trace_is_folder(o.calibrate) || recorded_is_one(o.calibrate)))
        return fit_recording(&setup);
    return o.csv || o.calibrate ? time_file(&setup) : time_one_step(&setup);
}

command cmd_time = {
    .name = "time",
    .usage = "time [OPTION]...",
    .summary = "predicts the time of a step on a GPU, compares with measured ones, or fits to them",
    .examples = "  quire time --model llama-3.1-70b --gpu H100 --tp 4 --decode 64\n"
                "      64 requests of 1,024 tokens, one new token each\n"
                "  quire time --prefill 2048 --decode 64 --decode-context 8192\n"
                "      a chunk of a prompt beside 64 long requests\n"
                "  quire time --csv steps.csv\n"
                "      predicted beside measured, the error, median and worst\n"
                "  quire time --calibrate steps.csv --write-constants mine.txt\n"
                "      constants of your own GPU; then: --time-constants mine.txt\n"
                "  quire time --calibrate rec.0000.jsonl.zst --write-constants mine.txt\n"
                "      constants of the engine that was recorded\n",
    .options = table,
    .run = run_time,
};
