#include "sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

void sweep_free(sweep *s)
{
    for (uint32_t i = 0; i < s->num_axes; i++)
        value_list_free(&s->axes[i].list);
    for (uint32_t i = 0; s->points != NULL && i < s->num_points; i++) {
        json_decref(s->points[i].report);
        free(s->points[i].error);
    }
    free(s->points);
    *s = (sweep){0};
}

bool sweep_number(const sweep *s, uint32_t point, const char *path, double *number)
{
    const json_t *at = s->points[point].report;
    char part[64];
    while (at != NULL && *path != '\0') {
        size_t length = strcspn(path, ".");
        if (length >= sizeof part)
            return false;
        memcpy(part, path, length);
        part[length] = '\0';
        at = json_object_get(at, part);
        path += length + (path[length] == '.');
    }
    if (!json_is_number(at))
        return false;
    *number = json_number_value(at);
    return true;
}

/* ---- processes ------------------------------------------------------------- */

/* A point that runs: what it writes comes through files without names. */
typedef struct sweep_job {
    pid_t pid; /* 0: free */
    uint32_t point;
    FILE *out;
    FILE *errors;
} sweep_job;

static void run_child(const sweep *s, const sweep_settings *settings, const sweep_job *job)
{
    dup2(fileno(job->errors), STDERR_FILENO);
    int status = settings->run(s, job->point, job->out);
    if (fflush(job->out) != 0)
        status = 1;
    fflush(stderr);
    _exit(status); /* what the parent has not written yet is not for the child to write */
}

static bool start_job(const sweep *s, const sweep_settings *settings, sweep_job *job,
                      uint32_t point)
{
    *job = (sweep_job){.point = point, .out = tmpfile(), .errors = tmpfile()};
    if (job->out != NULL && job->errors != NULL) {
        fflush(NULL);
        job->pid = fork();
        if (job->pid == 0)
            run_child(s, settings, job);
        if (job->pid > 0)
            return true;
    }
    job->pid = 0;
    if (job->out != NULL)
        fclose(job->out);
    if (job->errors != NULL)
        fclose(job->errors);
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

static void end_job(sweep *s, sweep_job *job, int status)
{
    sweep_point *point = &s->points[job->point];
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        rewind(job->out);
        point->report = json_loadf(job->out, 0, NULL);
    }
    if (point->report == NULL)
        point->error = describe_failure(job->errors, status);
    fclose(job->out);
    fclose(job->errors);
    job->pid = 0;
}

/* Waits for one of the jobs; false: there is none to wait for. */
static bool wait_for_one(sweep *s, sweep_job *jobs, uint32_t num_jobs)
{
    int status;
    pid_t pid;
    do
        pid = wait(&status);
    while (pid < 0 && errno == EINTR);
    for (uint32_t i = 0; pid > 0 && i < num_jobs; i++)
        if (jobs[i].pid == pid)
            end_job(s, &jobs[i], status);
    return pid > 0;
}

static sweep_job *free_job(sweep_job *jobs, uint32_t num_jobs)
{
    for (uint32_t i = 0; i < num_jobs; i++)
        if (jobs[i].pid == 0)
            return &jobs[i];
    return NULL;
}

int sweep_run(sweep *s, const sweep_settings *settings)
{
    uint32_t num_started = 0;
    uint32_t num_done = 0;
    bool can_start = true;
    sweep_job *jobs = calloc(settings->num_jobs, sizeof *jobs);
    s->num_points = 1;
    for (uint32_t i = 0; i < s->num_axes; i++)
        s->num_points *= s->axes[i].list.num_values;
    s->points = calloc(s->num_points, sizeof *s->points);
    if (jobs == NULL || s->points == NULL) {
        free(jobs);
        return -1;
    }
    while (num_done < num_started || (can_start && num_started < s->num_points)) {
        sweep_job *job = free_job(jobs, settings->num_jobs);
        if (job != NULL && can_start && num_started < s->num_points) {
            can_start = start_job(s, settings, job, num_started);
            num_started += can_start;
            continue;
        }
        if (!wait_for_one(s, jobs, settings->num_jobs))
            break;
        num_done++;
        if (settings->progress != NULL)
            settings->progress(num_done, s->num_points);
    }
    free(jobs);
    return can_start && num_done == s->num_points ? 0 : -1;
}
