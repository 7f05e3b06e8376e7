/* SPDX-License-Identifier: Apache-2.0
 *
 * faults.c: real processes that all-reduce without end, one of which is killed, stopped or cut off at a random moment:
 * all others must fail, name it, and soon; a stopped one that goes on must fail too.
 *
 * usage: faults [kill=N] [stop=N] [cut=N] [ranks=N] [seed=N] [transport=shm|tcp|auto] [beat=MS]
 *               [kib=N]
 * Prints how long the survivors took to find out; exits 1 when one hung, named another rank or had a wrong sum. CTest
 * runs a few, bench a thousand. cut needs root and `ip`: ranks in network namespaces of their own, joined by a bridge.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/comm.h"

#define RANKS_MAX   16
#define TOKEN       "0123456789abcdef0123456789abcdef"
#define HANG_NS     (10 * TRI_NS_PER_S)
#define COUNT_MAX   (INT64_C(4) << 20)
#define SAMPLES_MAX 100000

typedef enum fault { FAULT_KILL, FAULT_STOP, FAULT_CUT, FAULT_COUNT } fault;
static const char *const fault_names[FAULT_COUNT] = {"kill", "stop", "cut"};

/* What a rank tells, in memory that all processes see. */
typedef struct report {
    atomic_int calls; /* that ended well */
    atomic_int failed;
    int64_t failed_ns;
    tri_status status;
    int origin;
    bool wrong;
    char text[TRI_ERROR_NBYTES];
} report;

typedef struct driver {
    int64_t counts[FAULT_COUNT], ranks, seed, beat_ms, kib;
    char transport[16];
    char folder[64];
    uint64_t drawn;
    report *reports; /* [RANKS_MAX] */
    int bad, hung;
    double ms[FAULT_COUNT][SAMPLES_MAX];
    int samples[FAULT_COUNT];
} driver;

static driver all;

static uint64_t draw(uint64_t bound)
{
    return tri_rng_below((tri_rng){(uint64_t)all.seed, 1}, all.drawn++, bound);
}

/* ---- a rank */

static tri_status sum_once(tri_comm *comm, tri_rng rng, uint64_t call, float *data, report *mine)
{
    int64_t count = all.kib * 256 >> tri_rng_below(rng, call, 15);
    int world = tri_group_count(tri_comm_world(comm));

    for (int64_t i = 0; i < count; i += 64)
        data[i] = 1;
    TRI_TRY(tri_all_reduce(tri_comm_world(comm), data, data, count, TRI_F32, TRI_REDUCE_SUM, NULL));
    for (int64_t i = 0; i < count; i += 64)
        mine->wrong |= data[i] != (float)world;
    return TRI_OK;
}

static tri_status rank_open(int rank, tri_cluster *cluster, tri_comm **comm)
{
    char url[128];
    int64_t deadline_ns = tri_deadline_after_ms(20000);
    tri_comm_config config;
    tri_net_config net;

    *cluster = (tri_cluster){.started_by = "faults",
                             .rank = rank,
                             .world = (int)all.ranks,
                             .local_rank = rank,
                             .local_world = (int)all.ranks};
    snprintf(cluster->token, sizeof cluster->token, TOKEN);
    snprintf(url, sizeof url, "file://%s", all.folder);
    TRI_TRY(tri_store_open(url, TOKEN, deadline_ns, &cluster->store));
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    net.timeout_s = 60;
    net.heartbeat_ms = all.beat_ms;
    snprintf(net.transport, sizeof net.transport, "%s", all.transport);
    return tri_comm_open(cluster, &config, &net, deadline_ns, comm);
}

static void rank_main(int rank, uint64_t round, bool in_group)
{
    report *mine = &all.reports[rank];
    tri_rng rng = {(uint64_t)all.seed, 1000 + round};
    tri_cluster cluster;
    tri_comm *comm = NULL;
    void *memory = NULL;
    tri_status status = rank_open(rank, &cluster, &comm);

    if (status == TRI_OK && in_group)
        status = tri_group_alloc(tri_comm_world(comm), (size_t)all.kib << 10, &memory);
    else if (status == TRI_OK)
        memory = tri_alloc_zero((size_t)all.kib << 8, sizeof(float));
    for (uint64_t call = 0; status == TRI_OK; call++) {
        status = sum_once(comm, rng, call, memory, mine);
        atomic_fetch_add(&mine->calls, status == TRI_OK);
    }
    mine->failed_ns = tri_now_ns();
    mine->status = status;
    snprintf(mine->text, sizeof mine->text, "%s", tri_last_error());
    if (comm)
        (void)tri_comm_cause(comm, &mine->origin);
    atomic_store(&mine->failed, 1);
    tri_comm_leave(comm);
    _exit(0);
}

/* ---- namespaces */

static bool shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool shell(const char *format, ...)
{
    char command[512];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command) == 0;
}

static void hosts_remove(void)
{
    for (int r = 0; r < all.ranks; r++)
        (void)shell("ip netns del tf%d-%d 2>/dev/null", (int)getpid(), r);
    (void)shell("ip netns del tf%d 2>/dev/null", (int)getpid());
}

static bool hosts_make(void)
{
    int id = (int)getpid();

    if (geteuid() != 0 || !shell("ip netns add tf%d 2>/dev/null && ip -n tf%d link add hub type bridge && "
                                 "ip -n tf%d link set hub up",
                                 id, id, id))
        return false;
    for (int r = 0; r < all.ranks; r++) {
        if (!shell("ip netns add tf%d-%d && ip -n tf%d link add v%d type veth peer name eth netns tf%d-%d && "
                   "ip -n tf%d link set v%d master hub up && ip -n tf%d-%d addr add 10.77.0.%d/24 dev eth && "
                   "ip -n tf%d-%d link set eth up && ip -n tf%d-%d link set lo up",
                   id, r, id, r, id, r, id, r, id, r, r + 1, id, r, id, r))
            return false;
    }
    return true;
}

static void host_enter(pid_t driver_pid, int rank)
{
    char path[64];
    int file;

    snprintf(path, sizeof path, "/run/netns/tf%d-%d", (int)driver_pid, rank);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || setns(file, CLONE_NEWNET) != 0)
        _exit(9);
    close(file);
}

/* ---- a round */

static void sample_add(fault what, double ms)
{
    if (all.samples[what] < SAMPLES_MAX)
        all.ms[what][all.samples[what]++] = ms;
}

static bool wait_until(bool (*is_done)(int victim), int victim, int64_t limit_ns)
{
    int64_t until_ns = tri_now_ns() + limit_ns;

    while (!is_done(victim)) {
        if (tri_now_ns() >= until_ns)
            return false;
        tri_sleep_ns(TRI_NS_PER_MS);
    }
    return true;
}

static bool all_call(int victim)
{
    (void)victim;
    for (int r = 0; r < all.ranks; r++) {
        if (atomic_load(&all.reports[r].calls) < 1 && !atomic_load(&all.reports[r].failed))
            return false;
    }
    return true;
}

static bool others_failed(int victim)
{
    for (int r = 0; r < all.ranks; r++) {
        if (r != victim && !atomic_load(&all.reports[r].failed))
            return false;
    }
    return true;
}

static bool victim_failed(int victim)
{
    return atomic_load(&all.reports[victim].failed);
}

static void report_check(fault what, int64_t round, int rank, int victim, int64_t fault_ns)
{
    const report *one = &all.reports[rank];
    char name[16];

    snprintf(name, sizeof name, "rank %d ", victim);
    if (!atomic_load(&one->failed)) {
        all.hung++;
        printf("%s %lld: rank %d hangs after rank %d's\n", fault_names[what], (long long)round, rank, victim);
        return;
    }
    sample_add(what, (double)(one->failed_ns - fault_ns) * 1e-6);
    /* Cut off are both sides of a cut; the victim names whom it lost. */
    if (one->wrong || one->failed_ns < fault_ns || !strstr(one->text, name) || one->origin != victim) {
        all.bad++;
        printf("%s %lld: rank %d (victim %d): status %d, origin %d, wrong sum %d: %s\n", fault_names[what],
               (long long)round, rank, victim, (int)one->status, one->origin, one->wrong, one->text);
    }
}

static void victim_check(fault what, int64_t round, int victim)
{
    const report *one = &all.reports[victim];

    if (!wait_until(victim_failed, victim, HANG_NS)) {
        all.hung++;
        printf("%s %lld: rank %d, the victim, hangs\n", fault_names[what], (long long)round, victim);
    } else if (what == FAULT_STOP && !strstr(one->text, "gave this rank up")) {
        all.bad++;
        printf("stop %lld: rank %d woke up and found: %s\n", (long long)round, victim, one->text);
    }
}

static void fault_make(fault what, pid_t process, int victim)
{
    if (what == FAULT_CUT)
        (void)shell("ip -n tf%d link set v%d nomaster", (int)getpid(), victim);
    else
        kill(process, what == FAULT_KILL ? SIGKILL : SIGSTOP);
}

static void round_run(fault what, int64_t round)
{
    int victim = (int)draw((uint64_t)all.ranks);
    bool in_group = what != FAULT_CUT && draw(2);
    pid_t processes[RANKS_MAX], self = getpid();
    int64_t fault_ns;

    memset(all.reports, 0, RANKS_MAX * sizeof(report));
    (void)tri_fs_remove(all.folder);
    (void)tri_fs_make_folder(all.folder);
    for (int r = 0; r < all.ranks; r++) {
        processes[r] = fork();
        if (processes[r] == 0) {
            if (what == FAULT_CUT)
                host_enter(self, r);
            rank_main(r, (uint64_t)round, in_group);
        }
    }
    if (!wait_until(all_call, victim, 3 * HANG_NS)) {
        all.bad++;
        printf("%s %lld: the ranks did not start\n", fault_names[what], (long long)round);
    }
    tri_sleep_ns((int64_t)draw(100) * TRI_NS_PER_MS + (int64_t)draw(1000) * 1000);
    fault_ns = tri_now_ns();
    fault_make(what, processes[victim], victim);
    if (what == FAULT_CUT)
        fault_ns = tri_now_ns(); /* `ip` takes its time */
    (void)wait_until(others_failed, victim, HANG_NS);
    for (int r = 0; r < all.ranks; r++) {
        if (r != victim)
            report_check(what, round, r, victim, what == FAULT_CUT ? fault_ns - 20 * TRI_NS_PER_MS : fault_ns);
    }
    if (what == FAULT_STOP)
        kill(processes[victim], SIGCONT);
    if (what != FAULT_KILL)
        victim_check(what, round, victim);
    for (int r = 0; r < all.ranks; r++) {
        kill(processes[r], SIGKILL);
        waitpid(processes[r], NULL, 0);
    }
    if (what == FAULT_CUT)
        (void)shell("ip -n tf%d link set v%d master hub", (int)getpid(), victim);
}

/* ---- the driver */

static int order(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void figures_print(fault what)
{
    double *ms = all.ms[what];
    int count = all.samples[what];

    if (count == 0)
        return;
    qsort(ms, (size_t)count, sizeof *ms, order);
    printf("%s: %d reports in %lld faults, ms until the call failed: median %.2f, 90%% %.2f, 99%% %.2f, most %.2f\n",
           fault_names[what], count, (long long)all.counts[what], ms[count / 2], ms[count * 9 / 10],
           ms[count * 99 / 100], ms[count - 1]);
}

static bool flag_take(const char *text)
{
    const struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"kill", &all.counts[FAULT_KILL]},
                   {"stop", &all.counts[FAULT_STOP]},
                   {"cut", &all.counts[FAULT_CUT]},
                   {"ranks", &all.ranks},
                   {"seed", &all.seed},
                   {"beat", &all.beat_ms},
                   {"kib", &all.kib}};
    size_t nbytes = strcspn(text, "=");

    if (!text[nbytes])
        return false;
    if (nbytes == strlen("transport") && strncmp(text, "transport", nbytes) == 0) {
        snprintf(all.transport, sizeof all.transport, "%s", text + nbytes + 1);
        return true;
    }
    for (size_t i = 0; i < TRI_COUNT_OF(numbers); i++) {
        if (strlen(numbers[i].name) == nbytes && strncmp(text, numbers[i].name, nbytes) == 0) {
            *numbers[i].value = atoll(text + nbytes + 1);
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    all.ranks = 4;
    all.seed = 1;
    all.beat_ms = 100;
    all.kib = COUNT_MAX / 256;
    snprintf(all.transport, sizeof all.transport, "auto");
    for (int i = 1; i < argc; i++) {
        if (!flag_take(argv[i]) || all.ranks < 2 || all.ranks > RANKS_MAX || all.kib < 1 || all.kib > COUNT_MAX / 256) {
            fprintf(stderr,
                    "faults: want kill=N, stop=N, cut=N, ranks=2..%d, seed=N, transport=NAME, beat=MS or kib=1..16384, "
                    "got %s\n",
                    RANKS_MAX, argv[i]);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(all.folder, sizeof all.folder, "/tmp/trireme-faults-%d", (int)getpid());
    all.reports = mmap(NULL, RANKS_MAX * sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all.counts[FAULT_CUT] > 0 && !hosts_make()) {
        printf("cut: left out: network namespaces need root and ip\n");
        all.counts[FAULT_CUT] = 0;
    }
    for (fault what = 0; what < FAULT_COUNT; what++) {
        for (int64_t round = 0; round < all.counts[what]; round++)
            round_run(what, round);
        figures_print(what);
    }
    hosts_remove();
    (void)tri_fs_remove(all.folder);
    printf("seed %lld, %lld ranks over %s, beat %lld ms: %d hang, %d reports are wrong\n", (long long)all.seed,
           (long long)all.ranks, all.transport, (long long)all.beat_ms, all.hung, all.bad);
    return all.hung || all.bad ? 1 : 0;
}
