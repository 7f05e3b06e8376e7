/* SPDX-License-Identifier: Apache-2.0
 *
 * flight.c: writes the flight record.
 *
 * The others have the news already: nobody waits for this file. It is put in place whole, without waiting for the disk.
 */
#include "comm/flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "comm/call.h"
#include "net/host.h"

#define SYSTEM_FOLDER "/tmp"
#define NO_RECORD     "none"

/* A configuration that cannot be is no riddle. */
bool tri_flight_path(const tri_comm *comm, char path[TRI_FLIGHT_PATH_NBYTES])
{
    const char *folder = comm->flight_folder;
    if (!comm->board || comm->world == 1 || comm->first_cause == TRI_ECONFIG || strcmp(folder, NO_RECORD) == 0 ||
        (!folder[0] && tri_net_is_local(comm->net)))
        return false;
    snprintf(path, TRI_FLIGHT_PATH_NBYTES, "%s/trireme-flight-%08" PRIx32 "-rank-%d.json",
             folder[0] ? folder : SYSTEM_FOLDER, tri_net_job(comm->net), comm->rank);
    return true;
}

static tri_status head_print(const tri_comm *comm, size_t kept, uint64_t calls, tri_string *out)
{
    char host[TRI_HOST_NAME_NBYTES], job[16];
    tri_host_name(host);
    snprintf(job, sizeof(job), "%08" PRIx32, tri_net_job(comm->net));
    tri_json json = tri_json_object(out);
    tri_json_int(&json, "trireme_flight", TRI_FLIGHT_VERSION);
    tri_json_text(&json, "job", job);
    tri_json_int(&json, "rank", comm->rank);
    tri_json_int(&json, "world", comm->world);
    tri_json_text(&json, "host", host);
    tri_json_int(&json, "written_ns", tri_wall_ns());
    tri_json_text(&json, "status", tri_status_name(comm->failed));
    tri_json_int(&json, "origin", comm->origin);
    tri_json_text(&json, "cause", comm->cause);
    tri_json_int(&json, "calls", (int64_t)calls);
    tri_json_int(&json, "kept", (int64_t)kept);
    return tri_json_end(&json);
}

static const char *name_find(const tri_comm *comm, uint64_t hash)
{
    for (size_t i = 0; hash != 0 && i < TRI_COMM_NAMES_KEPT; i++) {
        if (comm->names[i].hash == hash)
            return comm->names[i].text;
    }
    return "";
}

static tri_status call_print(const tri_comm *comm, const tri_board_call *call, int64_t to_wall_ns, tri_string *out)
{
    char hash[20];
    tri_json json = tri_json_object(out);
    tri_json_int(&json, "number", (int64_t)call->number);
    tri_json_int(&json, "group", call->frame.group);
    tri_json_int(&json, "sequence", (int64_t)call->frame.sequence);
    tri_json_text(&json, "op", tri_comm_op_name((tri_comm_op)call->frame.op));
    tri_json_text(&json, "dtype", tri_dtype_name((tri_dtype)call->frame.dtype));
    tri_json_int(&json, "count", (int64_t)call->frame.count);
    tri_json_int(&json, "reduce", call->frame.reduce);
    tri_json_text(&json, "name", name_find(comm, call->frame.name));
    snprintf(hash, sizeof(hash), "%016" PRIx64, call->frame.name);
    tri_json_text(&json, "hash", hash);
    snprintf(hash, sizeof(hash), "%016" PRIx64, call->members);
    tri_json_text(&json, "members", hash);
    tri_json_int(&json, "begin_ns", call->begin_ns + to_wall_ns);
    tri_json_int(&json, "end_ns", call->runs ? 0 : call->end_ns + to_wall_ns);
    tri_json_text(&json, "status", call->runs ? "" : tri_status_name(call->status));
    return tri_json_end(&json);
}

static tri_status record_print(const tri_comm *comm, tri_string *out)
{
    size_t limit = (size_t)comm->board->mask + 1;
    tri_board_call *calls = tri_alloc_zero(limit, sizeof(*calls));
    if (!calls)
        return TRI_ENOMEM;
    size_t kept = tri_board_copy(comm->board, calls, limit);
    int64_t to_wall_ns = tri_wall_ns() - tri_now_ns();
    tri_status status = head_print(comm, kept, kept > 0 ? calls[kept - 1].number : 0, out);
    for (size_t i = 0; status == TRI_OK && i < kept; i++) {
        status = tri_string_append(out, "\n");
        if (status == TRI_OK)
            status = call_print(comm, &calls[i], to_wall_ns, out);
    }
    if (status == TRI_OK)
        status = tri_string_append(out, "\n");
    tri_free(calls);
    return status;
}

void tri_flight_write(tri_comm *comm)
{
    char path[TRI_FLIGHT_PATH_NBYTES], message[TRI_ERROR_NBYTES];
    tri_string text = {0};
    if (comm->flight_written || !tri_flight_path(comm, path))
        return;
    comm->flight_written = true;
    snprintf(message, sizeof(message), "%s", tri_last_error()); /* what failed stays the last error */
    tri_status status = record_print(comm, &text);
    if (status == TRI_OK && comm->flight_folder[0])
        status = tri_fs_make_folder(comm->flight_folder);
    if (status == TRI_OK)
        status = tri_fs_write_swap(path, text.text, text.nbytes);
    if (status != TRI_OK)
        tri_log(TRI_LOG_WARN, "the flight record of rank %d cannot be written: %s", comm->rank, tri_last_error());
    tri_string_fini(&text);
    (void)tri_fail_copy(comm->failed, message);
}
