/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.c: `trireme ledger RUN`: were the samples of a run used as planned?
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "cli/command.h"
#include "train/features/ledger_audit.h"

static const char *json_wanted;
static const tri_flag flags[] = {{"--json", NULL, "one JSON object", &json_wanted}};

static void audit_print(const tri_ledger_verdict *at)
{
    const tri_ledger_plan *plan = &at->plan;
    printf("steps %" PRId64 " to %" PRId64 ", of %" PRId64 " of %" PRId64 " samples each in %" PRId64
           " shards, made by %" PRId64 " generation%s of workers\n",
           at->first, at->end, plan->batch, plan->count, plan->shards, at->generations,
           at->generations == 1 ? "" : "s");
    fputs(tri_string_text(&at->report), stdout);
    printf("each sample was used once in %" PRId64 " epochs", at->whole);
    if (at->end % at->steps_per_epoch != 0)
        printf("; of epoch %" PRId64 " so far %" PRId64 " samples, once", at->end / at->steps_per_epoch, at->used);
    if (!tri_ledger_is_whole(at))
        printf("; not so in %" PRId64 " epochs: %" PRId64 " steps are not in the ledger, %" PRId64
               " used other samples",
               at->broken, at->missing, at->wrong);
    puts("");
}

static tri_status audit_json(const tri_ledger_verdict *at)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_bool(&json, "whole", tri_ledger_is_whole(at));
    tri_json_int(&json, "first", at->first);
    tri_json_int(&json, "end", at->end);
    tri_json_int(&json, "generations", at->generations);
    tri_json_int(&json, "epochs", at->whole);
    tri_json_int(&json, "epochs_broken", at->broken);
    tri_json_int(&json, "steps_missing", at->missing);
    tri_json_int(&json, "steps_wrong", at->wrong);
    tri_json_text(&json, "report", tri_string_text(&at->report));
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

static int ledger_run(const char *run)
{
    tri_ledger_verdict verdict;
    tri_status status = tri_ledger_audit(run, &verdict);
    if (status == TRI_OK && json_wanted)
        status = audit_json(&verdict);
    else if (status == TRI_OK)
        audit_print(&verdict);
    int code = status != TRI_OK ? tri_command_fail(status) : tri_ledger_is_whole(&verdict) ? 0 : 1;
    tri_string_fini(&verdict.report);
    return code;
}

int cmd_ledger(int argc, char **argv)
{
    int count;
    tri_status status = tri_flags_parse(tri_command_of(cmd_ledger), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return 0;
    if (status == TRI_OK && count != 1)
        status = tri_fail(TRI_ECONFIG, "ledger: want the folder of one run, got %d", count);
    return status == TRI_OK ? ledger_run(argv[0]) : tri_command_fail(status);
}
