#include "sweep.h"
#include "output/distribution.h"
#include "output/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *sweep_value(const sweep *s, uint32_t point, uint32_t axis)
{
    uint32_t after = 1; /* points in one value of this axis */
    for (uint32_t i = axis + 1; i < s->num_axes; i++)
        after *= s->axes[i].list.num_values;
    const value_list *list = &s->axes[axis].list;
    return list->values[point / after % list->num_values];
}

bool sweep_varies(const sweep *s, uint32_t axis)
{
    return s->axes[axis].list.num_values > 1;
}

void sweep_free_points(sweep *s)
{
    for (uint32_t i = 0; s->points != NULL && i < s->num_points; i++) {
        json_decref(s->points[i].report);
        free(s->points[i].error);
    }
    free(s->points);
    s->points = NULL;
    s->num_points = 0;
}

void sweep_free(sweep *s)
{
    for (uint32_t i = 0; i < s->num_axes; i++)
        value_list_free(&s->axes[i].list);
    sweep_free_points(s);
    json_decref(s->trace_record);
    json_decref(s->made_by);
    *s = (sweep){0};
}

uint32_t sweep_default_jobs(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

uint32_t sweep_threads(const sweep *s, uint32_t num_jobs, uint32_t most)
{
    uint32_t each = num_jobs / s->num_points;
    return each < 1 ? 1 : each > most ? most : each;
}

static const json_t *find_value(const json_t *at, const char *path)
{
    char part[64];
    while (at != NULL && *path != '\0') {
        size_t length = strcspn(path, ".");
        if (length >= sizeof part)
            return NULL;
        memcpy(part, path, length);
        part[length] = '\0';
        at = json_object_get(at, part);
        path += length + (path[length] == '.');
    }
    return at;
}

/* Of a fleet of one worker the report is a replay's. */
static bool count_gpus(const json_t *report, double *number)
{
    const json_t *tp = find_value(report, "made_by.options.tp");
    const json_t *workers = find_value(report, "fleet.num_workers");
    *number = json_number_value(tp) * (workers != NULL ? json_number_value(workers) : 1);
    return json_is_number(tp);
}

bool sweep_number(const sweep *s, uint32_t point, const char *path, double *number)
{
    if (strcmp(path, "gpus") == 0)
        return count_gpus(s->points[point].report, number);
    const json_t *at = find_value(s->points[point].report, path);
    if (!json_is_number(at))
        return false;
    *number = json_number_value(at);
    return true;
}

/* ---- processes ------------------------------------------------------------- */

enum { LOOK_MS = 100 };

/* A point that runs: what it writes comes through files without names. Its end of the pipe says how
 * far it is, and is closed when it ends. */
typedef struct sweep_job {
    pid_t pid; /* 0: free */
    uint32_t point;
    double start_s;
    double share; /* of its replay that is done */
    int pipe;     /* our end */
    FILE *out;
    FILE *errors;
} sweep_job;

typedef struct sweep_runner {
    sweep *sweep;
    const sweep_settings *settings;
    sweep_job *jobs;
    struct pollfd *pipes; /* one for each job */
    double *lefts;        /* and here */
    uint32_t num_started;
    uint32_t num_done;
    double done_s;  /* what the points that ended took, in all */
    double shown_s; /* when progress was told last */
} sweep_runner;

static int tell_fd = -1; /* in the process of a point: its end of the pipe */

void sweep_tell(double share)
{
    ssize_t n = write(tell_fd, &share, sizeof share); /* a full pipe has newer news to come */
    (void)n;
}

/* Ctrl-C on a terminal goes to all processes; the parent says when points end. They also end when
 * the parent is gone, however it ended. */
static void follow_parent(pid_t parent)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

static void run_child(const sweep_runner *r, const sweep_job *job)
{
    dup2(fileno(job->errors), STDERR_FILENO);
    int status = r->settings->run(r->sweep, job->point, job->out);
    if (fflush(job->out) != 0)
        status = 1;
    fflush(stderr);
    _exit(status); /* what the parent has not written yet is not for the child to write */
}

static void close_job(sweep_job *job)
{
    if (job->pipe >= 0)
        close(job->pipe);
    if (job->out != NULL)
        fclose(job->out);
    if (job->errors != NULL)
        fclose(job->errors);
    job->pid = 0;
}

static bool fork_job(const sweep_runner *r, sweep_job *job)
{
    int fds[2];
    pid_t parent = getpid();
    if (pipe(fds) != 0)
        return false;
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    fflush(NULL);
    job->pipe = fds[0];
    job->pid = fork();
    if (job->pid == 0) {
        tell_fd = fds[1];
        follow_parent(parent);
        run_child(r, job);
    }
    close(fds[1]);
    return job->pid > 0;
}

static bool start_job(sweep_runner *r, sweep_job *job)
{
    *job = (sweep_job){.point = r->num_started,
                       .start_s = progress_clock(),
                       .pipe = -1,
                       .out = tmpfile(),
                       .errors = tmpfile()};
    if (job->out != NULL && job->errors != NULL && fork_job(r, job)) {
        r->num_started++;
        return true;
    }
    close_job(job);
    return false;
}

/* The first line of what it said, or what became of it. */
static char *describe_failure(FILE *errors, int status)
{
    char text[1024] = "";
    rewind(errors);
    if (fgets(text, sizeof text, errors) != NULL)
        text[strcspn(text, "\n")] = '\0';
    const char *name = strncmp(text, "quire ", 6) == 0 ? strstr(text, ": ") : NULL;
    if (name != NULL)
        return strdup(name + 2); /* who said it is known */
    if (text[0] == '\0' && WIFSIGNALED(status))
        snprintf(text, sizeof text, "ended by signal %d", WTERMSIG(status));
    else if (text[0] == '\0')
        snprintf(text, sizeof text, "ended with %d", WEXITSTATUS(status));
    return strdup(text);
}

static void end_job(sweep_runner *r, sweep_job *job)
{
    sweep_point *point = &r->sweep->points[job->point];
    int status = 0;
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        rewind(job->out);
        point->report = json_loadf(job->out, 0, NULL);
    }
    if (point->report == NULL && r->sweep->stopped == NULL)
        point->error = describe_failure(job->errors, status);
    close_job(job);
    r->num_done++;
    r->done_s += progress_clock() - job->start_s;
}

/* What came through the pipe; at its end the job has ended. */
static void hear_job(sweep_runner *r, sweep_job *job)
{
    double shares[64];
    ssize_t n;
    while ((n = read(job->pipe, shares, sizeof shares)) > 0)
        job->share = shares[(size_t)n / sizeof *shares - 1];
    if (n == 0)
        end_job(r, job);
}

/* Until a job says something, a signal comes, or a moment has passed. */
static void wait_for_jobs(sweep_runner *r)
{
    uint32_t num_jobs = r->settings->num_jobs;
    for (uint32_t i = 0; i < num_jobs; i++)
        r->pipes[i] =
            (struct pollfd){.fd = r->jobs[i].pid > 0 ? r->jobs[i].pipe : -1, .events = POLLIN};
    if (poll(r->pipes, num_jobs, LOOK_MS) > 0)
        for (uint32_t i = 0; i < num_jobs; i++)
            if (r->pipes[i].revents != 0)
                hear_job(r, &r->jobs[i]);
}

/* ---- progress -------------------------------------------------------------- */

/* If every point takes one unit: the units until the last one ends. lefts: what each of the jobs
 * has still to do of its point. The points that have not started go to the jobs in turns. */
static double units_left(double *lefts, uint32_t num_jobs, uint32_t num_waiting)
{
    uint32_t rounds = num_waiting / num_jobs;
    uint32_t rest = num_waiting % num_jobs;
    qsort(lefts, num_jobs, sizeof *lefts, compare_doubles);
    double last = lefts[num_jobs - 1] + rounds;
    double of_rest = rest > 0 ? lefts[rest - 1] + rounds + 1 : 0;
    return last > of_rest ? last : of_rest;
}

static void tell_progress(sweep_runner *r)
{
    uint32_t num_jobs = r->settings->num_jobs;
    uint32_t num_points = r->sweep->num_points;
    double now_s = progress_clock();
    double units = r->num_done;
    double busy_s = r->done_s;
    if (r->settings->progress == NULL || now_s < r->shown_s + LOOK_MS * 1e-3)
        return;
    r->shown_s = now_s;
    for (uint32_t i = 0; i < num_jobs; i++) {
        const sweep_job *job = &r->jobs[i];
        r->lefts[i] = job->pid > 0 ? 1 - job->share : 0;
        units += job->pid > 0 ? job->share : 0;
        busy_s += job->pid > 0 ? now_s - job->start_s : 0;
    }
    double left = units_left(r->lefts, num_jobs, num_points - r->num_started);
    sweep_progress p = {.num_done = r->num_done,
                        .num_points = num_points,
                        .share = units / num_points,
                        .left_s = units > 0 ? left * busy_s / units : -1};
    r->settings->progress(r->settings->progress_user, &p);
}

/* ---- the sweep ------------------------------------------------------------- */

/* A stopped sweep has the reports of the points that ended; the others say so. */
static void stop_jobs(sweep_runner *r)
{
    for (uint32_t i = 0; i < r->settings->num_jobs; i++)
        if (r->jobs[i].pid > 0)
            kill(r->jobs[i].pid, SIGTERM);
    for (uint32_t i = 0; i < r->settings->num_jobs; i++)
        if (r->jobs[i].pid > 0)
            end_job(r, &r->jobs[i]);
    for (uint32_t i = 0; i < r->sweep->num_points; i++) {
        sweep_point *point = &r->sweep->points[i];
        if (point->report == NULL && point->error == NULL)
            point->error = strdup(i < r->num_started ? "interrupted" : "interrupted: not started");
    }
}

static sweep_job *free_job(const sweep_runner *r)
{
    for (uint32_t i = 0; i < r->settings->num_jobs; i++)
        if (r->jobs[i].pid == 0)
            return &r->jobs[i];
    return NULL;
}

static int run_points(sweep_runner *r)
{
    sweep *s = r->sweep;
    bool can_start = true;
    while (r->num_done < r->num_started || (can_start && r->num_started < s->num_points)) {
        s->stopped = r->settings->stop != NULL ? r->settings->stop() : NULL;
        if (s->stopped != NULL) {
            stop_jobs(r);
            return 0;
        }
        sweep_job *job = free_job(r);
        if (job != NULL && can_start && r->num_started < s->num_points)
            can_start = start_job(r, job);
        else
            wait_for_jobs(r);
        tell_progress(r);
    }
    return can_start && r->num_done == s->num_points ? 0 : -1;
}

int sweep_run_points(sweep *s, const sweep_settings *settings)
{
    sweep_runner r = {.sweep = s, .settings = settings};
    r.jobs = calloc(settings->num_jobs, sizeof *r.jobs);
    r.pipes = calloc(settings->num_jobs, sizeof *r.pipes);
    r.lefts = calloc(settings->num_jobs, sizeof *r.lefts);
    bool has_memory = s->points != NULL && r.jobs != NULL && r.pipes != NULL && r.lefts != NULL;
    int status = has_memory ? run_points(&r) : -1;
    free(r.jobs);
    free(r.pipes);
    free(r.lefts);
    return status;
}

int sweep_run(sweep *s, const sweep_settings *settings)
{
    s->num_points = 1;
    for (uint32_t i = 0; i < s->num_axes; i++)
        s->num_points *= s->axes[i].list.num_values;
    s->points = calloc(s->num_points, sizeof *s->points);
    return sweep_run_points(s, settings);
}
