/* SPDX-License-Identifier: Apache-2.0
 *
 * monitor.c: the options of the section.
 */
#include "monitor/monitor.h"

#include <string.h>

#include "monitor/http.h"
#include "monitor/trace.h"

#define TRI_OPTION_STRUCT tri_monitor_config
static const tri_option rows[] = {TRI_MONITOR_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_monitor_options =
    TRI_OPTION_TABLE("monitor", tri_monitor_config, rows, "what is shown of a run");

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

tri_status tri_monitor_check(const tri_monitor_config *config)
{
    if (config->metrics[0] && strcmp(config->metrics, TRI_MONITOR_GATHERED) != 0)
        TRI_TRY_IN(tri_http_address_check(config->metrics), "monitor.metrics");
    tri_trace_window window;
    return config->trace[0] ? tri_fail_context(tri_trace_window_read(config->trace, &window), "monitor.trace") : TRI_OK;
}

bool tri_monitor_tensorboard_is_on(const tri_monitor_config *config)
{
    static const char *const no[] = {"false", "no", "off", "", NULL};
    return !is_one_of(config->tensorboard, no);
}

tri_status tri_monitor_tensorboard_folder(const tri_monitor_config *config, const char *run_folder, char **folder)
{
    static const char *const yes[] = {"true", "yes", "on", NULL};
    const char *name = strrchr(run_folder, '/');
    tri_string text = {0};
    TRI_TRY(is_one_of(config->tensorboard, yes)
                ? tri_string_append(&text, run_folder)
                : tri_string_appendf(&text, "%s/%s", config->tensorboard, name ? name + 1 : run_folder));
    *folder = tri_string_detach(&text);
    return *folder ? TRI_OK : TRI_ENOMEM;
}
