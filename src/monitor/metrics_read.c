/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_read.c: lines of metrics.jsonl, read by jansson.
 */
#include "monitor/metrics_read.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"

struct tri_metrics_line {
    json_t *object;
};

int64_t tri_metrics_line_step(const tri_metrics_line *line)
{
    const json_t *step = json_object_get(line->object, "step");
    return json_is_integer(step) ? json_integer_value(step) : -1;
}

double tri_metrics_line_real(const tri_metrics_line *line, const char *key)
{
    const json_t *value = json_object_get(line->object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *tri_metrics_line_text(const tri_metrics_line *line, const char *key)
{
    return json_string_value(json_object_get(line->object, key));
}

void tri_metrics_trace_id_read(const char *path, char trace[TRI_TRACE_ID_NBYTES])
{
    tri_fs_map map;
    trace[0] = 0;
    if (!tri_fs_exists(path) || tri_fs_map_open(path, &map) != TRI_OK)
        return;
    const char *end = map.nbytes > 0 ? memchr(map.bytes, '\n', map.nbytes) : NULL;
    json_t *line = end ? json_loadb(map.bytes, (size_t)(end - (const char *)map.bytes), 0, NULL) : NULL;
    const char *found = json_string_value(json_object_get(line, "trace_id"));
    if (found && tri_trace_id_is(found))
        snprintf(trace, TRI_TRACE_ID_NBYTES, "%s", found);
    json_decref(line);
    tri_fs_map_close(&map);
}

tri_status tri_metrics_read(tri_metrics_tail *reader, tri_metrics_seen seen, void *arg)
{
    tri_fs_map map;
    if (!tri_fs_exists(reader->path))
        return TRI_OK;
    TRI_TRY(tri_fs_map_open(reader->path, &map));
    if (map.nbytes < reader->at)
        reader->at = 0;
    const char *text = map.bytes, *end;
    while (reader->at < map.nbytes && (end = memchr(text + reader->at, '\n', map.nbytes - reader->at))) {
        const char *start = text + reader->at;
        tri_metrics_line line = {json_loadb(start, (size_t)(end - start), 0, NULL)};
        reader->at = (uint64_t)(end + 1 - text);
        if (json_is_object(line.object))
            seen(arg, &line);
        json_decref(line.object);
    }
    tri_fs_map_close(&map);
    return TRI_OK;
}
