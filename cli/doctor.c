/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: `trireme doctor`: what is wrong with this machine or cluster, and the command that fixes it.
 *
 * This process looks at its machine, asks the hosts whether they answer, and starts ranks that look at theirs and at
 * each other; what rank 0 of them finds comes back through a file in memory that stands in for standard output.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/worker.h"
#include "doctor/doctor.h"
#include "kernel/kernel.h"

#define MATRIX "#" /* begins a line that is no finding */

typedef struct doctor_flags {
    const char *ranks, *hosts, *wait, *json, *checked;
} doctor_flags;

static doctor_flags given;
static int64_t wait_s = 15;
static const tri_flag flags[] = {
    {"-n", "N", "also start N ranks and look at each pair; without it: this machine, or the job that started this",
     &given.ranks},
    {"--hosts", "FILE",
     "start them by ssh: one '[user@]host [slots=N] [port=N]' per line; without -n: as many as there are slots",
     &given.hosts},
    {"--wait", "SECONDS", "longest wait for a host or a rank to continue (default 15)", &given.wait},
    {"--json", NULL, "one object a line: check, result, found, wanted, fix, host", &given.json},
    {"--checked", "ID", "leave out the machine of this id (set by the launcher itself)", &given.checked},
};

typedef struct doctor_report {
    tri_vector findings;
    size_t printed; /* of them */
    tri_string matrix;
} doctor_report;

/* --- printing --- */

static tri_status print_json(const tri_finding *finding)
{
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_text(&json, "check", finding->check);
    tri_json_text(&json, "result", tri_result_name(finding->result));
    tri_json_text(&json, "found", finding->found);
    tri_json_text(&json, "wanted", finding->wanted);
    tri_json_text(&json, "fix", finding->fix);
    tri_json_text(&json, "host", finding->host);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&line));
    tri_string_fini(&line);
    return status;
}

static void print_text(const tri_finding *finding)
{
    printf("%-4s  %-20s %s", tri_result_name(finding->result), finding->check, finding->found);
    if (finding->wanted[0])
        printf("; wanted: %s", finding->wanted);
    putchar('\n');
    if (finding->fix[0])
        printf("      fix: %s\n", finding->fix);
}

/* The machine's name, or that what follows is between machines; how much of it people need not read. */
static void print_heading(const tri_vector *findings, size_t first)
{
    const tri_finding *head = tri_vector_at(findings, first);
    int fine = 0, all = 0;
    for (size_t i = first; i < findings->count; i++) {
        const tri_finding *finding = tri_vector_at(findings, i);
        if (strcmp(finding->host, head->host) != 0)
            break;
        fine += finding->result == TRI_RESULT_OK;
        all++;
    }
    if (head->host[0])
        printf("on %s: %d of %d ok\n", head->host, fine, all);
    else
        puts("between ranks:");
}

/* What is not yet printed. Of other hosts' machines people see what is not as it should be. */
static tri_status report_print(doctor_report *report)
{
    char host[64] = "";
    for (; report->printed < report->findings.count; report->printed++) {
        const tri_finding *finding = tri_vector_at(&report->findings, report->printed);
        if (given.json) {
            TRI_TRY(print_json(finding));
            continue;
        }
        if (strcmp(host, finding->host) != 0)
            print_heading(&report->findings, report->printed);
        memcpy(host, finding->host, sizeof(host));
        if (!finding->host[0] || finding->result != TRI_RESULT_OK)
            print_text(finding);
    }
    fflush(stdout);
    return TRI_OK;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

/* The last line; the exit code. */
static int verdict(const doctor_report *report)
{
    int counts[TRI_RESULT_COUNT] = {0};
    const tri_finding *first = NULL;
    for (size_t i = 0; i < report->findings.count; i++) {
        const tri_finding *finding = tri_vector_at(&report->findings, i);
        counts[finding->result]++;
        if (!first || finding->result > first->result)
            first = finding;
    }
    int fails = counts[TRI_RESULT_FAIL], warns = counts[TRI_RESULT_WARN];
    if (given.json)
        return fails > 0;
    fputs(tri_string_text(&report->matrix), stdout);
    printf("verdict: ");
    if (fails > 0)
        printf("%d check%s failed, first of them '%s': training will not work like this", fails, plural(fails),
               first->check);
    else if (warns > 0)
        printf("training works, but %d warning%s: see '%s'", warns, plural(warns), first->check);
    else
        printf("nothing is wrong");
    printf(" (%d ok, %d note%s)\n", counts[TRI_RESULT_OK], counts[TRI_RESULT_NOTE], plural(counts[TRI_RESULT_NOTE]));
    return fails > 0;
}

/* --- being a rank --- */

/* For the process that started this rank: findings as lines, the matrix behind them. */
static tri_status hand_over(const doctor_report *report)
{
    tri_string text = {0};
    tri_status status = tri_findings_write(&report->findings, &text);
    if (status == TRI_OK)
        fputs(tri_string_text(&text), stdout);
    if (report->matrix.nbytes > 0)
        printf(MATRIX "%s", tri_string_text(&report->matrix));
    tri_string_fini(&text);
    return status;
}

static tri_status be_rank(tri_cluster *cluster, doctor_report *report)
{
    TRI_TRY(tri_cluster_join(NULL, NULL, NULL, tri_deadline_after_ms(wait_s * 1000), cluster));
    tri_status status = tri_job_examine(cluster, tri_kernel_arithmetic(), given.checked, (double)wait_s,
                                        &report->findings, &report->matrix);
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_cluster_leave(cluster);
    return status == TRI_OK ? TRI_OK : tri_fail_copy(status, message);
}

/* A rank may be stuck: this one's failure makes the launcher end it. */
static bool is_incomplete(const doctor_report *report)
{
    for (size_t i = 0; i < report->findings.count; i++) {
        const tri_finding *finding = tri_vector_at(&report->findings, i);
        if (finding->result == TRI_RESULT_FAIL &&
            (strcmp(finding->check, "ranks") == 0 || strcmp(finding->check, "links") == 0))
            return true;
    }
    return false;
}

static int run_rank(doctor_report *report)
{
    tri_cluster cluster = {0};
    tri_status status = be_rank(&cluster, report);
    if (status != TRI_OK) {
        int code = tri_command_fail(status);
        return given.checked && cluster.rank != 0 ? 0 : code; /* rank 0 says that it misses this one */
    }
    if (cluster.rank != 0)
        return 0;
    if (given.checked)
        return hand_over(report) != TRI_OK || is_incomplete(report);
    status = report_print(report);
    return status == TRI_OK ? verdict(report) : tri_command_fail(status);
}

/* --- starting ranks --- */

static void judge_host(const tri_host_answer *answer, const char *self, tri_finding *finding)
{
    TRI_FINDING_SET(finding->wanted, "answers by ssh without a password, and has trireme %s at %s", TRI_VERSION, self);
    TRI_FINDING_SET(finding->found, "%s", answer->text[0] ? answer->text : "no words");
    if (answer->exit_code == 0 && strcmp(answer->text, "trireme " TRI_VERSION) == 0)
        return;
    finding->result = TRI_RESULT_FAIL;
    if (answer->exit_code < 0)
        TRI_FINDING_SET(finding->found, "no answer within %d s", (int)wait_s);
    const char *at = strrchr(answer->name, '@');
    const char *plain = at ? at + 1 : answer->name, *p = answer->port[0] ? "-p " : "",
               *after = answer->port[0] ? " " : "";
    if (strstr(answer->text, "Permission denied"))
        TRI_FINDING_SET(finding->fix, "ssh-copy-id %s%s%s%s", p, answer->port, after, answer->name);
    else if (strstr(answer->text, "Host key verification"))
        TRI_FINDING_SET(finding->fix, "ssh-keyscan %s%s%s%s >> ~/.ssh/known_hosts", p, answer->port, after, plain);
    else if (answer->exit_code == 127 || answer->exit_code == 126 || answer->exit_code == 0)
        TRI_FINDING_SET(finding->fix, "ssh %s%s%s%s mkdir -p %.*s && scp %s%s%s%s %s:%s", p, answer->port, after,
                        answer->name, (int)(strrchr(self, '/') - self), self, answer->port[0] ? "-P " : "",
                        answer->port, after, self, answer->name, self);
    else
        TRI_FINDING_SET(finding->fix, "ssh -v %s%s%s%s true     # until this works", p, answer->port, after,
                        answer->name);
}

/* Asks each host; those that answer well go into `good` as lines of a host file, with their slots. */
static tri_status ask_hosts(doctor_report *report, tri_string *good, int64_t *slots)
{
    char self[TRI_FS_PROGRAM_NBYTES];
    tri_launch_config config;
    tri_vector answers = {.each = sizeof(tri_host_answer)};
    TRI_TRY(tri_fs_program(self));
    tri_options_defaults(&tri_launch_options, &config);
    TRI_TRY(tri_options_set(&tri_launch_options, &config, "hosts", given.hosts));
    char *argv[] = {self, "--version", NULL};
    tri_status status = tri_launch_hosts_ask(&config, argv, (int)wait_s * 1000, &answers);
    for (size_t i = 0; status == TRI_OK && i < answers.count; i++) {
        const tri_host_answer *answer = tri_vector_at(&answers, i);
        tri_finding *finding = tri_finding_add(&report->findings, "host", TRI_RESULT_OK);
        if (!finding) {
            status = TRI_ENOMEM;
            break;
        }
        TRI_FINDING_SET(finding->check, "host %s", answer->name);
        judge_host(answer, self, finding);
        if (finding->result != TRI_RESULT_OK)
            continue;
        *slots += answer->slots;
        status = tri_string_appendf(good, "%s slots=%d%s%s\n", answer->name, answer->slots,
                                    answer->port[0] ? " port=" : "", answer->port);
    }
    tri_vector_fini(&answers);
    return status;
}

/* Whether ranks of this machine could not even meet: the finding that is in their way. */
static const tri_finding *obstacle(const doctor_report *report)
{
    static const char *const names[] = {"loopback", "shared memory", "file length"};
    for (size_t i = 0; i < report->findings.count; i++) {
        const tri_finding *finding = tri_vector_at(&report->findings, i);
        for (size_t j = 0; j < TRI_COUNT_OF(names); j++)
            if (finding->result == TRI_RESULT_FAIL && strcmp(finding->check, names[j]) == 0)
                return finding;
    }
    return NULL;
}

static tri_status skip_ranks(doctor_report *report, const tri_finding *why)
{
    char name[sizeof(why->check)];
    memcpy(name, why->check, sizeof(name)); /* the vector moves */
    tri_finding *finding = tri_finding_add(&report->findings, "start", TRI_RESULT_FAIL);
    if (!finding)
        return TRI_ENOMEM;
    TRI_FINDING_SET(finding->wanted, "all ranks start, and meet");
    TRI_FINDING_SET(finding->found, "ranks were not started: fix '%s' first", name);
    return TRI_OK;
}

/* Runs the ranks with a file in memory as this process's standard output. */
static tri_status launch(int64_t ranks, const char *hosts, tri_string *out, tri_launch_result *result)
{
    char id[TRI_HOST_ID_NBYTES], buffer[4096];
    tri_host_id(id);
    char *argv[] = {NULL, "doctor", "--checked", id, "--wait", (char *)(uintptr_t)given.wait, NULL};
    if (!given.wait)
        argv[4] = NULL;
    int before = dup(1), file = memfd_create("trireme-doctor", MFD_CLOEXEC);
    if (before < 0 || file < 0 || dup2(file, 1) < 0)
        return tri_fail(TRI_EIO, "no file in memory for what the ranks find");
    tri_status status = tri_worker_launch((tri_worker_roles){.workers = ranks}, hosts, argv, NULL, result);
    dup2(before, 1);
    close(before);
    lseek(file, 0, SEEK_SET);
    for (ssize_t got; (got = read(file, buffer, sizeof(buffer))) > 0;)
        (void)tri_string_append_bytes(out, buffer, (size_t)got);
    close(file);
    return status;
}

/* What the ranks handed over, or that they did not. */
static tri_status take_over(doctor_report *report, char *text, tri_status status, const tri_launch_result *result)
{
    char *matrix = *text == MATRIX[0] ? text : strstr(text, "\n" MATRIX);
    if (matrix) {
        *strchr(matrix, MATRIX[0]) = 0;
        TRI_TRY(tri_string_append(&report->matrix, matrix + (*matrix == '\n') + 1));
    }
    if (status == TRI_OK && (result->exit_code == 0 || (text[0] && result->rank == 0)))
        return tri_findings_read(text, &report->findings);
    tri_finding *finding = tri_finding_add(&report->findings, "start", TRI_RESULT_FAIL);
    if (!finding)
        return TRI_ENOMEM;
    TRI_FINDING_SET(finding->wanted, "all ranks start, and meet");
    if (status != TRI_OK)
        TRI_FINDING_SET(finding->found, "%s", tri_last_error());
    else if (result->signal)
        TRI_FINDING_SET(finding->found, "rank %d was killed by signal %d", result->rank, result->signal);
    else
        TRI_FINDING_SET(finding->found, "rank %d ended with exit code %d before it had looked", result->rank,
                        result->exit_code);
    return tri_findings_read(text, &report->findings);
}

static tri_status look_between(doctor_report *report, int64_t ranks, const tri_string *hosts)
{
    tri_launch_result result = {0};
    tri_string text = {0};
    char path[64] = "";
    int file = -1;
    if (hosts->nbytes > 0) {
        file = memfd_create("trireme-hosts", MFD_CLOEXEC);
        if (file < 0 || write(file, hosts->text, hosts->nbytes) != (ssize_t)hosts->nbytes)
            return tri_fail(TRI_EIO, "no file in memory for the hosts that answer");
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    }
    tri_status status = launch(ranks, path[0] ? path : NULL, &text, &result);
    if (tri_stop_signal())
        status = TRI_OK; /* the caller says so */
    else
        status = take_over(report, text.text ? text.text : "", status, &result);
    if (file >= 0)
        close(file);
    tri_string_fini(&text);
    return status;
}

/* --- the command --- */

static tri_status look_here(doctor_report *report, int64_t ranks)
{
    tri_machine machine;
    int here = given.hosts ? 0 : (int)ranks;
    TRI_TRY(tri_machine_open(here, (int)ranks, given.hosts != NULL, &machine));
    machine.kernels = tri_kernel_arithmetic();
    tri_status status = tri_machine_look(&machine, &report->findings);
    tri_machine_close(&machine);
    TRI_TRY(status);
    return report_print(report);
}

static tri_status look(doctor_report *report)
{
    int64_t ranks = 0, slots = 0;
    tri_string hosts = {0};
    if (given.ranks)
        TRI_TRY(tri_flag_int("-n", given.ranks, 1, 65536, &ranks));
    if (given.hosts && !tri_fs_exists(given.hosts))
        return tri_fail(TRI_ENOTFOUND, "--hosts: want a file, got none at %s", given.hosts);
    TRI_TRY(look_here(report, ranks));
    tri_status status = given.hosts ? ask_hosts(report, &hosts, &slots) : TRI_OK;
    if (given.hosts && (ranks == 0 || ranks > slots))
        ranks = slots;
    if (status == TRI_OK)
        status = report_print(report);
    const tri_finding *why = given.hosts ? NULL : obstacle(report);
    if (status == TRI_OK && why && ranks > 1)
        status = skip_ranks(report, why);
    else if (status == TRI_OK && !tri_stop_signal() && (ranks > 1 || hosts.nbytes > 0))
        status = look_between(report, ranks, &hosts);
    tri_string_fini(&hosts);
    if (status == TRI_OK && tri_stop_signal())
        return tri_fail(TRI_ECANCELED, "stopped by a signal before all was looked at");
    return status == TRI_OK ? report_print(report) : status;
}

static bool is_rank(void)
{
    tri_cluster_place place;
    return !given.ranks && !given.hosts && tri_cluster_detect(NULL, NULL, &place) == TRI_OK && place.world > 1;
}

int cmd_doctor(int argc, char **argv)
{
    int count;
    tri_status status = tri_flags_parse(tri_command_of(cmd_doctor), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED) {
        puts("\nchecks of a machine:");
        for (const tri_machine_check *check = tri_machine_checks; check->name; check++)
            printf("  %-20s %s\n", check->name, check->looks_at);
        puts("\nchecks of its NVIDIA cards, if it has any:");
        for (const tri_machine_check *check = tri_card_checks; check->name; check++)
            printf("  %-20s %s\n", check->name, check->looks_at);
        puts("\nchecks between ranks:");
        for (const tri_job_check *check = tri_job_checks; check->name; check++)
            printf("  %-20s %s\n", check->name, check->looks_at);
        return 0;
    }
    if (status == TRI_OK && count > 0)
        status = tri_fail(TRI_ECONFIG, "doctor takes flags only, got '%s' (trireme doctor --help)", argv[0]);
    if (status == TRI_OK && given.wait)
        status = tri_flag_int("--wait", given.wait, 1, 3600, &wait_s);
    if (status != TRI_OK)
        return tri_command_fail(status);
    tri_stop_catch();
    signal(SIGXFSZ, SIG_IGN); /* a limit on files is a finding */
    doctor_report report = {.findings = {.each = sizeof(tri_finding)}};
    int code;
    if (given.checked || is_rank()) {
        code = run_rank(&report);
    } else {
        status = look(&report);
        code = status == TRI_OK ? verdict(&report) : tri_command_fail(status);
    }
    tri_vector_fini(&report.findings);
    tri_string_fini(&report.matrix);
    return code;
}
