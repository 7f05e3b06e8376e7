/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hangs.c: real processes of which one does not come: what the others say of it, and the record they leave.
 *
 * Every rank is a process; what it logs and how it ends lies in memory that all see.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/comm.h"

#define RANKS_MAX  4
#define TOKEN      "0123456789abcdef0123456789abcdef"
#define LOG_NBYTES 16384

typedef struct rank_end {
    tri_status status;
    int origin;
    char text[TRI_ERROR_NBYTES];
    atomic_bool has_aborted, body_is_over, has_ended;
    atomic_int arrivals; /* at everyone_wait() */
    atomic_int log_nbytes;
    char log[LOG_NBYTES];
} rank_end;

typedef struct job job;
typedef tri_status (*rank_body)(job *at, tri_comm *comm, int rank);

struct job {
    int world;
    double timeout_s, report_s;
    const char *faults; /* of rank 1 */
    const char *transport;
    rank_body body;
    char folder[64], store[80], flight[80];
    pid_t processes[RANKS_MAX];
    rank_end *ends; /* [RANKS_MAX] */
};

static void log_keep(tri_log_level level, const char *line, void *arg)
{
    rank_end *end = arg;
    int used = atomic_load(&end->log_nbytes);

    (void)level;
    atomic_store(&end->log_nbytes,
                 used + snprintf(end->log + used, LOG_NBYTES - (size_t)used > 400 ? 400 : 1, "%s\n", line));
}

static tri_status rank_run(job *at, int rank)
{
    char url[128];
    int64_t deadline_ns = tri_deadline_after_ms(20000);
    tri_cluster cluster = {
        .started_by = "test", .rank = rank, .world = at->world, .local_rank = rank, .local_world = at->world};
    tri_comm_config config;
    tri_net_config net;
    tri_comm *comm = NULL;
    tri_status status;

    snprintf(cluster.token, sizeof cluster.token, TOKEN);
    snprintf(url, sizeof url, "file://%s", at->store);
    TRI_TRY(tri_store_open(url, TOKEN, deadline_ns, &cluster.store));
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    net.timeout_s = at->timeout_s;
    net.heartbeat_ms = 50;
    config.report_s = at->report_s;
    snprintf(config.flight, sizeof config.flight, "%s", at->flight);
    (void)tri_options_set(&tri_net_options, &net, "transport", at->transport ? at->transport : "auto");
    if (at->faults && rank == 1)
        snprintf(net.faults, sizeof net.faults, "%s", at->faults);
    TRI_TRY(tri_comm_open(&cluster, &config, &net, deadline_ns, &comm));
    status = at->body(at, comm, rank);
    at->ends[rank].status = status;
    snprintf(at->ends[rank].text, sizeof at->ends[rank].text, "%s", tri_last_error());
    atomic_store(&at->ends[rank].body_is_over, true);
    (void)tri_comm_cause(comm, &at->ends[rank].origin);
    tri_comm_leave(comm);
    return TRI_OK;
}

static job job_make(int world, rank_body body)
{
    job at = {.world = world, .timeout_s = 20, .report_s = 20, .body = body};

    snprintf(at.folder, sizeof at.folder, "/tmp/trireme-hangs-XXXXXX");
    assert_non_null(mkdtemp(at.folder));
    snprintf(at.store, sizeof at.store, "%s/store", at.folder);
    snprintf(at.flight, sizeof at.flight, "%s/flight", at.folder);
    assert_int_equal(tri_fs_make_folder(at.store), TRI_OK);
    at.ends = mmap(NULL, RANKS_MAX * sizeof(rank_end), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at.ends != MAP_FAILED);
    return at;
}

static void job_start(job *at)
{
    for (int rank = 0; rank < at->world; rank++) {
        at->processes[rank] = fork();
        assert_true(at->processes[rank] >= 0);
        if (at->processes[rank] == 0) {
            tri_log_sink_set(log_keep, &at->ends[rank]);
            if (rank_run(at, rank) != TRI_OK) {
                at->ends[rank].status = TRI_EINTERNAL;
                fprintf(stderr, "rank %d: %s\n", rank, tri_last_error());
            }
            atomic_store(&at->ends[rank].has_ended, true);
            _exit(0);
        }
    }
}

static void job_run(job *at)
{
    job_start(at);
    for (int rank = 0; rank < at->world; rank++)
        assert_int_equal(waitpid(at->processes[rank], NULL, 0), at->processes[rank]);
}

static void job_fini(job *at)
{
    assert_int_equal(tri_fs_remove(at->folder), TRI_OK);
    munmap(at->ends, RANKS_MAX * sizeof(rank_end));
}

static int times_in(const char *text, const char *part)
{
    int count = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

static void has_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("want '%s' in:\n%s", part, text);
}

static float data[1 << 16];

static tri_status sum(tri_group *group, int64_t count)
{
    return tri_all_reduce(group, data, data, count, TRI_F32, TRI_REDUCE_SUM, NULL);
}

/* Returns when all ranks are here, or have ended: no rank's call waits for one that has not come so far. */
static void everyone_wait(job *at, int rank)
{
    int count = atomic_fetch_add(&at->ends[rank].arrivals, 1) + 1;

    for (int peer = 0; peer < at->world; peer++)
        while (atomic_load(&at->ends[peer].arrivals) < count && !atomic_load(&at->ends[peer].has_ended))
            tri_sleep_ns(TRI_NS_PER_MS);
}

/* ---- */

/* What a rank logs while rank 1 computes. */
static const char *const stuck[] = {"s in all_reduce #3 f32 x 100 sum 'bucket 2': 1 of 3 ranks are missing",
                                    "  rank 1 is stuck in user code for ",
                                    "s, after all_reduce #2 f32 x 100 sum 'bucket 1'",
                                    "    rank 1 at ",
                                    "process_test_hangs",
                                    "is in the same call: no byte moves for "};

static bool is_reported_by(job *at, int rank)
{
    bool all = true;

    for (size_t i = 0; i < sizeof stuck / sizeof stuck[0]; i++)
        all = all && strstr(at->ends[rank].log, stuck[i]);
    return all;
}

static tri_status one_computes(job *at, tri_comm *comm, int rank)
{
    tri_group *world = tri_comm_world(comm);

    everyone_wait(at, rank);
    tri_group_name_next(world, "bucket 1");
    TRI_TRY(sum(world, 100));
    everyone_wait(at, rank);
    while (rank == 1 && !(is_reported_by(at, 0) && is_reported_by(at, 2)) && !atomic_load(&at->ends[0].body_is_over)) {
    }
    tri_group_name_next(world, "bucket 2");
    TRI_TRY(sum(world, 100));
    TRI_TRY(tri_group_limit(world, 2.5));
    everyone_wait(at, rank);
    while (rank == 1 && !(atomic_load(&at->ends[0].body_is_over) && atomic_load(&at->ends[2].body_is_over))) {
    }
    tri_group_name_next(world, "bucket 3");
    return sum(world, 100);
}

static void a_rank_in_user_code_is_reported_with_its_stack(void **state)
{
    job at = job_make(3, one_computes);

    (void)state;
    at.timeout_s = 60;
    at.report_s = 0.5;
    job_run(&at);
    for (int rank = 0; rank < 3; rank += 2) {
        const rank_end *end = &at.ends[rank];

        assert_int_equal(times_in(end->log, "'bucket 2': 1 of 3 ranks are missing"), 1);
        for (size_t i = 0; i < sizeof stuck / sizeof stuck[0]; i++)
            has_text(end->log, stuck[i]);
        has_text(end->log, rank == 0 ? "  rank 2 is in the same call: no byte moves for "
                                     : "  rank 0 is in the same call: no byte moves for ");
        assert_true(end->status == TRI_ETIMEOUT || end->status == TRI_EABORT);
        has_text(end->text, "; rank 1 is stuck in user code");
        has_text(end->text, "; flight record: ");
    }
    assert_null(strstr(at.ends[1].log, "bucket 2"));
    job_fini(&at);
}

static tri_status only_receive(job *at, tri_comm *comm, int rank)
{
    tri_group *world = tri_comm_world(comm);

    (void)at;
    TRI_TRY(tri_barrier(world, NULL));
    tri_group_name_next(world, rank == 0 ? "left" : "right");
    if (rank == 0)
        return tri_reduce(world, data, data, 1000, TRI_F32, TRI_REDUCE_SUM, 0, NULL);
    return tri_broadcast(world, data, 1000, TRI_F32, 0, NULL);
}

static void different_calls_that_exchange_no_frame_are_found(void **state)
{
    job at = job_make(2, only_receive);

    (void)state;
    job_run(&at);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(at.ends[rank].status, TRI_EMISMATCH);
        has_text(at.ends[rank].text, "ranks called different things: ");
        has_text(at.ends[rank].text, "rank 0 called reduce #3 f32 x 1000 sum root 0 'left'");
        has_text(at.ends[rank].text, "rank 1 called broadcast #3 f32 x 1000 root 0 'right'");
    }
    job_fini(&at);
}

static const char *const elsewhere[] = {"  rank 1 called something else for ", ": all_reduce #1 f32 x 10 sum"};

static tri_status other_group(job *at, tri_comm *comm, int rank)
{
    tri_group *world = tri_comm_world(comm), *pair = NULL;
    const rank_end *first = &at->ends[0];
    tri_status status = TRI_OK;

    TRI_TRY(tri_group_split(world, rank < 2 ? 0 : 1, 0, &pair));
    everyone_wait(at, rank);
    /* Rank 0 waits for 1 in the world, rank 1 for 0 in the pair, until rank 2 has seen what rank 0 says. */
    if (rank < 2)
        status = rank == 1 ? sum(pair, 10) : sum(world, 10);
    while (rank == 2 && !(strstr(first->log, elsewhere[0]) && strstr(first->log, elsewhere[1])) &&
           !atomic_load(&first->body_is_over) && !tri_comm_has_lost(comm, 0))
        tri_sleep_ns(TRI_NS_PER_MS);
    if (rank == 2)
        tri_comm_abort(comm, TRI_EABORT, "seen");
    tri_group_destroy(pair);
    return status;
}

static void a_rank_in_a_call_of_another_group_is_named_with_it(void **state)
{
    job at = job_make(3, other_group);

    (void)state;
    at.timeout_s = 60;
    at.report_s = 2; /* once, and then rank 1 has to be in its call */
    job_run(&at);
    if (at.ends[0].status != TRI_EMISMATCH) { /* the two may meet by their frames */
        assert_int_equal(at.ends[0].status, TRI_EABORT);
        assert_int_equal(at.ends[0].origin, 2);
        has_text(at.ends[0].log, elsewhere[0]);
        has_text(at.ends[0].log, elsewhere[1]);
    }
    job_fini(&at);
}

static tri_status sum_much(job *at, tri_comm *comm, int rank)
{
    tri_group *world = tri_comm_world(comm);
    tri_status status = TRI_OK;

    (void)at;
    (void)rank;
    for (int i = 0; i < 60 && status == TRI_OK; i++)
        status = tri_broadcast(world, data, 1 << 16, TRI_F32, 1, NULL);
    return status == TRI_OK ? tri_barrier(world, NULL) : status;
}

static tri_status sum_ever(job *at, tri_comm *comm, int rank)
{
    tri_status status = TRI_OK;

    (void)at;
    (void)rank;
    while (status == TRI_OK)
        status = sum(tri_comm_world(comm), 1 << 16);
    return status;
}

static void a_stalled_link_is_distinguished_from_a_stopped_rank(void **state)
{
    job at = job_make(2, sum_ever);

    (void)state;
    at.transport = "tcp";
    at.faults = "0:3000000:stall";
    at.timeout_s = 2;
    at.report_s = 0.5;
    job_run(&at);
    has_text(at.ends[0].log, "0 of 2 ranks are missing");
    has_text(at.ends[0].log, "  rank 1 is in the same call: no byte moves for ");
    has_text(at.ends[0].log, " from rank 0");
    has_text(at.ends[0].text, " is in the same call: no byte moves");
    job_fini(&at);
}

static void who_is_only_slow_is_not_lost(void **state)
{
    job at = job_make(2, sum_much);

    (void)state;
    at.transport = "tcp";
    at.faults = "0:100:slow"; /* 4 KiB per millisecond: 15 MiB take about 4 s */
    at.report_s = 0.02;
    at.timeout_s = 30;
    job_run(&at);
    assert_int_equal(at.ends[0].status, TRI_OK);
    assert_int_equal(at.ends[1].status, TRI_OK);
    job_fini(&at);
}

static tri_status sum_until_killed(job *at, tri_comm *comm, int rank)
{
    tri_status status = TRI_OK;

    (void)at;
    tri_group_name_next(tri_comm_world(comm), "gradient");
    for (int i = 0; status == TRI_OK; i++) {
        if (i == 1100 && rank == 2)
            raise(SIGKILL);
        status = sum(tri_comm_world(comm), 64);
    }
    return status;
}

static void a_failure_leaves_a_record_of_the_latest_calls(void **state)
{
    job at = job_make(3, sum_until_killed);
    char **names;
    size_t count;

    (void)state;
    job_run(&at);
    assert_int_equal(tri_fs_list(at.flight, &names, &count), TRI_OK);
    assert_int_equal(count, 2); /* none of the dead one */
    for (size_t i = 0; i < count; i++) {
        char path[256], *text;
        int rank = i == 0 ? 0 : 1;

        snprintf(path, sizeof path, "%s/%s", at.flight, names[i]);
        assert_int_equal(tri_fs_read(path, 0, &text, NULL), TRI_OK);
        assert_int_equal(times_in(text, "\n"), 1025);
        assert_int_equal(strncmp(text, "{\"trireme_flight\":1,\"job\":\"", 27), 0);
        has_text(text, "\"status\":\"TRI_EPEER\",\"origin\":2,");
        has_text(text, "\"kept\":1024}\n");
        has_text(text, "\"op\":\"all_reduce\",\"dtype\":\"f32\",\"count\":64,\"reduce\":0,\"name\":\"gradient\"");
        has_text(at.ends[rank].text, "; flight record: ");
        has_text(at.ends[rank].text, path);
        tri_free(text);
    }
    tri_fs_list_free(names, count);
    job_fini(&at);
}

static void a_record_that_cannot_be_written_is_one_line(void **state)
{
    job at = job_make(3, sum_until_killed);

    (void)state;
    assert_int_equal(tri_fs_write_atomic(at.flight, "a file", 6), TRI_OK);
    job_run(&at);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(at.ends[rank].status, TRI_EPEER);
        assert_int_equal(times_in(at.ends[rank].log, "\n"), 1);
        has_text(at.ends[rank].log, "cannot be written: ");
    }
    job_fini(&at);
}

static tri_status abort_busy(job *at, tri_comm *comm, int rank)
{
    tri_work *work = NULL;

    if (rank == 2) { /* comes too late; what the others had sent before may be enough for a sum */
        tri_status status = TRI_OK;
        everyone_wait(at, rank);
        while (!atomic_load(&at->ends[0].has_aborted) || !atomic_load(&at->ends[1].has_aborted))
            tri_sleep_ns(TRI_NS_PER_MS);
        while (status == TRI_OK)
            status = sum(tri_comm_world(comm), 10);
        return status;
    }
    tri_status status = tri_all_reduce(tri_comm_world(comm), data, data, 10, TRI_F32, TRI_REDUCE_SUM, &work);
    everyone_wait(at, rank); /* both have called */
    if (rank == 0)
        tri_comm_abort(comm, TRI_ENUMERIC, "the loss is not a number");
    if (status == TRI_OK)
        status = tri_work_wait(work);
    atomic_store(&at->ends[rank].has_aborted, true);
    return status;
}

static void an_abort_ends_an_operation_that_waits(void **state)
{
    job at = job_make(3, abort_busy);

    (void)state;
    job_run(&at);
    assert_int_equal(at.ends[1].status, TRI_EABORT);
    assert_int_equal(at.ends[2].status, TRI_EABORT);
    for (int rank = 0; rank < 3; rank++) {
        has_text(at.ends[rank].text, "the loss is not a number");
        assert_int_equal(at.ends[rank].origin, 0);
    }
    job_fini(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_in_user_code_is_reported_with_its_stack),
        cmocka_unit_test(different_calls_that_exchange_no_frame_are_found),
        cmocka_unit_test(a_rank_in_a_call_of_another_group_is_named_with_it),
        cmocka_unit_test(a_stalled_link_is_distinguished_from_a_stopped_rank),
        cmocka_unit_test(who_is_only_slow_is_not_lost),
        cmocka_unit_test(a_failure_leaves_a_record_of_the_latest_calls),
        cmocka_unit_test(a_record_that_cannot_be_written_is_one_line),
        cmocka_unit_test(an_abort_ends_an_operation_that_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
