/* SPDX-License-Identifier: Apache-2.0
 *
 * health.c: the time of a file, and a line for probes.
 */
#include "monitor/health.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/runtime.h"

#define UNAVAILABLE 503

tri_status tri_health_look(const char *folder, int64_t within_s, tri_health *out, double *ago_s)
{
    char path[1300];
    int64_t changed_ns;
    snprintf(path, sizeof(path), "%.1200s/metrics.jsonl", folder);
    *out = TRI_HEALTH_NO_STEP;
    *ago_s = 0;
    if (!tri_fs_exists(path))
        return TRI_OK;
    TRI_TRY(tri_fs_changed(path, &changed_ns));
    *ago_s = (double)(tri_wall_ns() - changed_ns) / 1e9;
    *out = *ago_s <= (double)within_s ? TRI_HEALTH_GOOD : TRI_HEALTH_LATE;
    *ago_s = *ago_s > 0 ? *ago_s : 0;
    return TRI_OK;
}

tri_status tri_health_page(const char *folder, bool ready, tri_http_request *request, tri_string *out)
{
    const char *word = tri_http_word(request, "within");
    char *end = NULL;
    const long long within_s = word ? strtoll(word, &end, 10) : TRI_HEALTH_WITHIN_S;
    tri_health health;
    double ago_s;
    if (word && (end == word || *end || within_s < 1 || within_s > 1000000))
        return tri_fail(TRI_ECONFIG, "within: want seconds from 1 to 1000000\n");
    TRI_TRY(tri_health_look(folder, within_s, &health, &ago_s));
    if (health == TRI_HEALTH_LATE || (ready && health == TRI_HEALTH_NO_STEP))
        request->code = UNAVAILABLE;
    return health == TRI_HEALTH_NO_STEP ? tri_string_append(out, "no step yet\n")
                                        : tri_string_appendf(out, "last step %.0f s ago%s\n", ago_s,
                                                             health == TRI_HEALTH_LATE ? ", too long" : "");
}
