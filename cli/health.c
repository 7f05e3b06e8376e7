/* SPDX-License-Identifier: Apache-2.0
 *
 * health.c: `trireme health`: does a run make steps? An exit code for probes and cron, from the time of the last line
 * of metrics.jsonl, which each step writes; any process that sees the run folder can ask, and disturbs nobody.
 */
#include <stdio.h>

#include "cli/command.h"
#include "monitor/health.h"

static const char *within_given;
static const tri_flag flags[] = {
    {"--within", "SECONDS", "how long ago the last step may be (default 600): longer than evaluations and saves take",
     &within_given},
};

static tri_status ask(const char *run, int64_t within_s, bool *healthy)
{
    tri_health health;
    double ago_s;
    TRI_TRY(tri_health_look(run, within_s, &health, &ago_s));
    *healthy = health == TRI_HEALTH_GOOD;
    if (health == TRI_HEALTH_NO_STEP)
        printf("%s: no step yet\n", run);
    else
        printf("%s: last step %.0f s ago%s\n", run, ago_s, *healthy ? "" : ", too long");
    return TRI_OK;
}

int cmd_health(int argc, char **argv)
{
    int64_t within_s = TRI_HEALTH_WITHIN_S;
    bool healthy = false;
    int count;
    tri_status status = tri_flags_parse(tri_command_of(cmd_health), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return 0;
    if (status == TRI_OK && count != 1)
        status = tri_fail(TRI_ECONFIG, "want one run folder, got %d", count);
    if (status == TRI_OK && within_given)
        status = tri_flag_int("--within", within_given, 1, 1000000, &within_s);
    if (status == TRI_OK)
        status = ask(argv[0], within_s, &healthy);
    if (status != TRI_OK)
        return tri_command_fail(status);
    return healthy ? 0 : 1;
}
