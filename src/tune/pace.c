/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "monitor/metrics.h"

tri_status tri_pace_add(tri_pace *pace, const tri_metrics_line *line)
{
    double seconds = 0;
#define PHASE_ADD(name) seconds += tri_metrics_line_real(line, #name);
    TRI_PHASE_LIST(PHASE_ADD)
#undef PHASE_ADD
    pace->seconds.each = sizeof(double);
    return isnan(seconds) || tri_vector_push(&pace->seconds, &seconds) ? TRI_OK : TRI_ENOMEM;
}

static int real_order(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

double tri_pace_median(const tri_pace *pace)
{
    const size_t count = pace->seconds.count, later = count - count / 2;
    double *sorted = count > 0 ? tri_alloc(later * sizeof(double)) : NULL;
    if (!sorted)
        return NAN;
    memcpy(sorted, tri_vector_at(&pace->seconds, count - later), later * sizeof(double));
    qsort(sorted, later, sizeof(double), real_order);
    const double median = sorted[later / 2];
    tri_free(sorted);
    return median;
}

void tri_pace_fini(tri_pace *pace)
{
    tri_vector_fini(&pace->seconds);
}
