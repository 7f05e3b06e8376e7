/* SPDX-License-Identifier: Apache-2.0
 *
 * say.h: in which form this program and those that it starts say what they do, and by which ids that is found.
 */
#ifndef TRI_CLI_SAY_H
#define TRI_CLI_SAY_H

#include <stdbool.h>

#include "base/status.h"
#include "monitor/monitor.h"

/* By TRIREME_LOG: text or json. */
tri_status tri_say_begin(void);
/* monitor.log of a run: auto leaves it. Processes that are started from now on follow. */
tri_status tri_say_form(tri_monitor_log form);
/* The trace id of the run in this folder: TRACEPARENT's; of a resumed one, its own; else, where this process starts
 * others, a new one, which they get in TRACEPARENT. */
tri_status tri_say_ids(const char *run_folder, bool resumes, bool starts_others);

#endif
