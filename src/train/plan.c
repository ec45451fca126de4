/* SPDX-License-Identifier: MIT */
#include "src/train/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static int fail_text(const char *text, const char *item, size_t len, const char *expected, sd_error *err)
{
    return sd_fail(err, SD_ERR_ARG, "speeds \"%s\": \"%.*s\"; expected %s, as in 1,2,3,4,5 or 1,2@40%%/1,2,3,4,5", text,
                   (int)len, item, expected);
}

/* "@40%" or "@400", behind the speeds; nothing for the last stage. */
static int parse_end(sd_stage *s, const char *text, const char *at, size_t len, bool last, sd_error *err)
{
    if (last) {
        return len == 0 ? SD_OK : fail_text(text, at, len, "no end for the last stage, which ends with the run", err);
    }
    char *end = NULL;
    s->until = len > 1 && *at == '@' ? strtod(at + 1, &end) : 0;
    s->is_share = end && *end == '%';
    if (!end || (size_t)(end - at) + s->is_share != len || !(s->until > 0) ||
        !(s->until < (s->is_share ? 100 : 1e15)) || (!s->is_share && floor(s->until) != s->until)) {
        return fail_text(text, at, len, "the end of a stage, a share of the steps (@40%) or a step (@400)", err);
    }
    return SD_OK;
}

static int parse_stage(sd_stage *s, const char *text, const char *item, size_t len, bool last, sd_error *err)
{
    *s = (sd_stage){0};
    const size_t speeds = strcspn(item, "@/");
    for (const char *at = item, *stop = item + speeds;;) {
        char *end;
        const size_t n = strcspn(at, ",@/");
        const double speed = n > 0 ? strtod(at, &end) : 0;
        if (n == 0 || end != at + n || !(speed >= 1) || !isfinite(speed)) {
            return fail_text(text, at, n, "a number of at least 1", err);
        }
        if (s->n_speeds == SD_MAX_SPEEDS) {
            return fail_text(text, item, speeds, "at most 16 speeds", err);
        }
        s->speeds[s->n_speeds++] = speed;
        if (at + n == stop) {
            break;
        }
        at += n + 1;
    }
    return parse_end(s, text, item + speeds, len - speeds, last, err);
}

int sd_stages_parse(sd_stages *stages, const char *text, sd_error *err)
{
    *stages = (sd_stages){0};
    for (const char *item = text;;) {
        const size_t len = strcspn(item, "/");
        if (stages->n == SD_MAX_STAGES) {
            return fail_text(text, item, len, "at most 8 stages", err);
        }
        int rc = parse_stage(&stages->stage[stages->n++], text, item, len, item[len] == '\0', err);
        if (rc != SD_OK || item[len] == '\0') {
            return rc;
        }
        item += len + 1;
    }
}

int sd_stages_place(sd_stages *stages, int64_t n_steps, sd_error *err)
{
    int64_t before = 0;
    for (int i = 0; i < stages->n; i++) {
        sd_stage *s = &stages->stage[i];
        const bool last = i == stages->n - 1;
        s->end = last ? n_steps : s->is_share ? (int64_t)(s->until / 100 * (double)n_steps + 0.5) : (int64_t)s->until;
        if (s->end <= before || s->end > n_steps) {
            return sd_fail(err, SD_ERR_ARG,
                           "stage %d of the speeds would be steps %lld .. %lld of %lld; expected at least "
                           "one step in each",
                           i + 1, (long long)before, (long long)s->end - 1, (long long)n_steps);
        }
        before = s->end;
    }
    return SD_OK;
}

int sd_stages_at(const sd_stages *stages, int64_t step)
{
    int i = 0;
    while (i + 1 < stages->n && step >= stages->stage[i].end) {
        i++;
    }
    return i;
}

int sd_stages_most_speeds(const sd_stages *stages)
{
    int most = 0;
    for (int i = 0; i < stages->n; i++) {
        most = stages->stage[i].n_speeds > most ? stages->stage[i].n_speeds : most;
    }
    return most;
}

int sd_stages_speeds(const sd_stages *stages, double *speeds)
{
    int n = 0;
    for (int i = 0; i < stages->n; i++) {
        for (int k = 0; k < stages->stage[i].n_speeds; k++) {
            const double speed = stages->stage[i].speeds[k];
            int at = n;
            while (at > 0 && speeds[at - 1] > speed) {
                at--;
            }
            if (at == 0 || speeds[at - 1] < speed) {
                memmove(speeds + at + 1, speeds + at, (size_t)(n - at) * sizeof *speeds);
                speeds[at] = speed;
                n++;
            }
        }
    }
    return n;
}

double sd_learning_rate(int64_t step, int64_t n_steps, int64_t warmup_steps, double peak, double least)
{
    if (step < warmup_steps) {
        return peak * (double)(step + 1) / (double)(warmup_steps + 1);
    }
    const double done = (double)(step - warmup_steps) / (double)(n_steps > warmup_steps ? n_steps - warmup_steps : 1);
    return least + (peak - least) * 0.5 * (1 + cos(pi * done));
}
