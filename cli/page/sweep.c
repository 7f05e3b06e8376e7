/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.c: trials of a sweep, read from its database: its tuner may be at work beside.
 */
#include "cli/page/page.h"
#include "cli/tune/tune.h"

tri_status tri_page_trials(const tri_page_run *run, tri_string *out)
{
    tri_tune_work work = {0};
    tri_json json = tri_json_object(out);
    tri_status status = tri_tune_open(run->top.run, &work);
    if (status == TRI_OK)
        status = tri_tune_json(&work, &json);
    if (status == TRI_OK)
        status = tri_json_end(&json);
    tri_trials_close(&work.trials);
    tri_sweep_fini(&work.sweep);
    return status;
}
