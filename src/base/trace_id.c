/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_id.c: https://www.w3.org/TR/trace-context/, section 3.2.
 */
#include "base/trace_id.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/runtime.h"

#define TRACE_AT 3 /* in TRACEPARENT, behind "00-" */
#define SPAN_AT  36
#define FLAGS_AT 53
#define ENDS_AT  55

/* Lower-case hex digits, not all 0 unless `zero` may be. */
static bool is_hex(const char *text, size_t count, bool zero)
{
    bool any = zero;
    for (size_t i = 0; i < count; i++) {
        if (!text[i] || !strchr("0123456789abcdef", text[i]))
            return false;
        any = any || text[i] != '0';
    }
    return any;
}

void tri_trace_id_make(char trace[TRI_TRACE_ID_NBYTES])
{
    uint64_t halves[2];
    do
        tri_entropy(halves, sizeof(halves));
    while (halves[0] == 0 && halves[1] == 0);
    snprintf(trace, TRI_TRACE_ID_NBYTES, "%016llx%016llx", (unsigned long long)halves[0],
             (unsigned long long)halves[1]);
}

bool tri_trace_id_is(const char *text)
{
    return is_hex(text, TRI_TRACE_ID_NBYTES - 1, false) && text[TRI_TRACE_ID_NBYTES - 1] == 0;
}

void tri_span_id_make(const char *trace, int rank, int64_t generation, int64_t step, char span[TRI_SPAN_ID_NBYTES])
{
    uint64_t id = tri_rng_stream(trace, (uint64_t)rank + 1, (uint64_t)generation);
    if (step >= 0) {
        snprintf(span, TRI_SPAN_ID_NBYTES, "%016llx", (unsigned long long)id);
        id = tri_rng_stream(span, (uint64_t)step, 1);
    }
    snprintf(span, TRI_SPAN_ID_NBYTES, "%016llx", (unsigned long long)(id ? id : 1));
}

bool tri_traceparent_read(const char *text, char trace[TRI_TRACE_ID_NBYTES])
{
    size_t nbytes = strlen(text);
    trace[0] = 0;
    if (nbytes < ENDS_AT || text[TRACE_AT - 1] != '-' || text[SPAN_AT - 1] != '-' || text[FLAGS_AT - 1] != '-')
        return false;
    bool later = memcmp(text, "00", 2) != 0;
    if (memcmp(text, "ff", 2) == 0 || (nbytes > ENDS_AT && (!later || text[ENDS_AT] != '-')))
        return false;
    if (!is_hex(text, 2, true) || !is_hex(text + TRACE_AT, SPAN_AT - TRACE_AT - 1, false) ||
        !is_hex(text + SPAN_AT, FLAGS_AT - SPAN_AT - 1, false) || !is_hex(text + FLAGS_AT, 2, true))
        return false;
    snprintf(trace, TRI_TRACE_ID_NBYTES, "%.32s", text + TRACE_AT);
    return true;
}

void tri_traceparent_make(const char *trace, const char *span, char text[TRI_TRACEPARENT_NBYTES])
{
    snprintf(text, TRI_TRACEPARENT_NBYTES, "00-%.32s-%.16s-01", trace, span);
}
