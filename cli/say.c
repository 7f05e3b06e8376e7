/* SPDX-License-Identifier: Apache-2.0
 *
 * say.c: TRIREME_LOG and TRACEPARENT, read and handed on.
 */
#include "cli/say.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "monitor/metrics_read.h"

#define FORM "TRIREME_LOG"
#define ID   "TRACEPARENT"

static tri_status hand_on(const char *name, const char *value)
{
    return setenv(name, value, 1) == 0 ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_say_begin(void)
{
    tri_log_format format;
    const char *given = getenv(FORM);
    if (!given || !given[0])
        return TRI_OK;
    if (!tri_log_format_read(given, &format))
        return tri_fail(TRI_ECONFIG, FORM ": want text or json, got '%.60s'", given);
    tri_log_format_set(format);
    return TRI_OK;
}

tri_status tri_say_form(tri_monitor_log form)
{
    if (form == TRI_MONITOR_LOG_AUTO)
        return TRI_OK;
    tri_log_format_set(form == TRI_MONITOR_LOG_JSON ? TRI_LOG_JSON : TRI_LOG_TEXT);
    return hand_on(FORM, tri_monitor_log_word(form));
}

tri_status tri_say_ids(const char *run_folder, bool resumes, bool starts_others)
{
    char path[1300], span[TRI_SPAN_ID_NBYTES], parent[TRI_TRACEPARENT_NBYTES];
    const char *given = getenv(ID);
    tri_log_who who = tri_log_who_now();
    snprintf(path, sizeof(path), "%.1200s/metrics.jsonl", run_folder);
    if (given && given[0] && !tri_traceparent_read(given, who.trace_id))
        tri_log(TRI_LOG_WARN, ID ": want 00-(32 hex digits)-(16)-(2), got '%.80s': the run has a trace id of its own",
                given);
    if (!who.trace_id[0] && resumes)
        tri_metrics_trace_id_read(path, who.trace_id);
    if (!who.trace_id[0] && starts_others)
        tri_trace_id_make(who.trace_id);
    if (!who.trace_id[0])
        return TRI_OK;
    tri_span_id_make(who.trace_id, -1, 0, -1, span);
    snprintf(who.span_id, sizeof(who.span_id), "%s", span);
    tri_log_who_set(&who);
    tri_traceparent_make(who.trace_id, span, parent);
    return starts_others ? hand_on(ID, parent) : TRI_OK;
}
