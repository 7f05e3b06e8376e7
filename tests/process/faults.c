/* SPDX-License-Identifier: Apache-2.0
 *
 * faults.c: real processes that all-reduce without end, one of which is killed, stopped or cut off at a random moment:
 * all others must fail, name it, and soon; a stopped one that goes on must fail too.
 *
 * usage: faults [kill=N] [stop=N] [cut=N] [lose=N] [ranks=N] [seed=N] [transport=shm|tcp|auto] [beat=MS]
 *               [kib=N] [calm=SECONDS] [hogs=N] [hosts=PREFIX]
 * Prints how long the survivors took to find out; exits 1 when one hung, named another rank or had a wrong sum. CTest
 * runs a few, bench a thousand. cut and lose need root and `ip`: ranks in network namespaces of their own, joined by a
 * bridge. lose throws away what one rank sends as data, while its watch goes on.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/rng.h"
#include "process/faults.h"

driver all;
static const char *const fault_names[FAULT_COUNT] = {"kill", "stop", "cut", "lose"};

static uint64_t draw(uint64_t bound)
{
    return tri_rng_below((tri_rng){(uint64_t)all.seed, 1}, all.drawn++, bound);
}

/* ---- namespaces */

static void hosts_remove(void)
{
    for (int r = 0; r < all.ranks; r++)
        (void)faults_shell("ip netns del tf%d-%d 2>/dev/null", (int)getpid(), r);
    (void)faults_shell("ip netns del tf%d 2>/dev/null", (int)getpid());
}

static bool hosts_make(void)
{
    int id = (int)getpid();

    if (geteuid() != 0 || !faults_shell("ip netns add tf%d 2>/dev/null && ip -n tf%d link add hub type bridge && "
                                        "ip -n tf%d link set hub up",
                                        id, id, id))
        return false;
    for (int r = 0; r < all.ranks; r++) {
        if (!faults_shell("ip netns add tf%d-%d && ip -n tf%d link add v%d type veth peer name eth netns tf%d-%d && "
                          "ip -n tf%d link set v%d master hub up && ip -n tf%d-%d addr add 10.77.0.%d/24 dev eth && "
                          "ip -n tf%d-%d link set eth up && ip -n tf%d-%d link set lo up",
                          id, r, id, r, id, r, id, r, id, r, r + 1, id, r, id, r))
            return false;
    }
    return true;
}

/* ---- a round */

/* Seconds that all cores have worked so far, and seconds of this process and of its children that have ended. */
static double seconds_worked(double *own_s)
{
    struct rusage self, children;
    char *text = NULL;
    unsigned long long user = 0, low = 0, kernel = 0, idle, disk, interrupt = 0, soft = 0, stolen = 0;

    if (tri_fs_read("/proc/stat", 1 << 20, &text, NULL) == TRI_OK)
        (void)sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &low, &kernel, &idle, &disk,
                     &interrupt, &soft, &stolen);
    tri_free(text);
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    *own_s =
        (double)(self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
        1e-6 * (double)(self.ru_utime.tv_usec + self.ru_stime.tv_usec + children.ru_utime.tv_usec +
                        children.ru_stime.tv_usec);
    return (double)(user + low + kernel + interrupt + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
}

static void samples_add(fault what, bool disturbed)
{
    for (int i = 0; i < all.round_count; i++) {
        for (int quiet = 0; quiet < (disturbed ? 1 : 2); quiet++) {
            if (all.samples[what][quiet] < SAMPLES_MAX)
                all.ms[what][quiet][all.samples[what][quiet]++] = all.round_ms[i];
        }
    }
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
    all.round_ms[all.round_count++] = (double)(one->failed_ns - fault_ns) * 1e-6;
    /* Of two ranks whose data do not arrive either may be the one that finds it. */
    if (one->wrong || one->failed_ns < fault_ns ||
        (what == FAULT_LOSE ? !strstr(one->text, "is unreachable (its host has acknowledged no data for ")
                            : !strstr(one->text, name) || one->origin != victim)) {
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
        (void)faults_shell("ip -n tf%d link set v%d nomaster", (int)getpid(), victim);
    else if (what == FAULT_LOSE)
        atomic_store(&all.reports[victim].loses, 1);
    else
        kill(process, what == FAULT_KILL ? SIGKILL : SIGSTOP);
}

static void round_run(fault what, int64_t round)
{
    int victim = (int)draw((uint64_t)all.ranks);
    bool apart = what == FAULT_CUT || what == FAULT_LOSE, in_group = !apart && draw(2);
    pid_t processes[RANKS_MAX], self = getpid();
    int64_t fault_ns, began_ns = tri_now_ns();
    double own_s[2], worked_s = seconds_worked(&own_s[0]);

    all.round_count = 0;
    memset(all.reports, 0, RANKS_MAX * sizeof(report));
    (void)tri_fs_remove(all.folder);
    (void)tri_fs_make_folder(all.folder);
    for (int r = 0; r < all.ranks; r++) {
        processes[r] = fork();
        if (processes[r] == 0) {
            if (apart)
                faults_host_enter(self, r);
            faults_rank_main(r, (uint64_t)round, in_group, what == FAULT_LOSE);
        }
    }
    if (!wait_until(all_call, victim, 3 * HANG_NS)) {
        all.bad++;
        printf("%s %lld: the ranks did not start\n", fault_names[what], (long long)round);
    }
    tri_sleep_ns((int64_t)draw(100) * TRI_NS_PER_MS + (int64_t)draw(1000) * 1000);
    fault_ns = tri_now_ns(); /* the time that `ip` takes counts as if the link had been cut at once */
    fault_make(what, processes[victim], victim);
    (void)wait_until(others_failed, victim, HANG_NS);
    for (int r = 0; r < all.ranks; r++) {
        if (r != victim)
            report_check(what, round, r, victim, fault_ns);
    }
    if (what == FAULT_STOP)
        kill(processes[victim], SIGCONT);
    if (what != FAULT_KILL)
        victim_check(what, round, victim);
    for (int r = 0; r < all.ranks; r++) {
        kill(processes[r], SIGKILL);
        waitpid(processes[r], NULL, 0);
    }
    worked_s = seconds_worked(&own_s[1]) - worked_s;
    samples_add(what, worked_s - (own_s[1] - own_s[0]) > OTHERS_SHARE * (double)(tri_now_ns() - began_ns) * 1e-9);
    if (what == FAULT_CUT)
        (void)faults_shell("ip -n tf%d link set v%d master hub", (int)getpid(), victim);
    if (what == FAULT_LOSE)
        (void)faults_shell(
            "while ip -n tf%d-%d rule del priority 7; do :; done 2>/dev/null; ip -n tf%d-%d link del nowhere",
            (int)getpid(), victim, (int)getpid(), victim);
}

/* Nobody fails: whoever is given up is slow, not dead. */
static void calm_run(void)
{
    pid_t processes[RANKS_MAX], hogs[HOGS_MAX], self = getpid();
    int calls = 0;

    memset(all.reports, 0, RANKS_MAX * sizeof(report));
    (void)tri_fs_remove(all.folder);
    (void)tri_fs_make_folder(all.folder);
    for (int i = 0; i < all.hogs; i++) {
        hogs[i] = fork();
        while (hogs[i] == 0) {
            if (getppid() != self)
                _exit(0);
        }
    }
    for (int r = 0; r < all.ranks; r++) {
        processes[r] = fork();
        if (processes[r] == 0) {
            if (all.hosts[0])
                faults_host_enter(self, r);
            faults_rank_main(r, 0, false, false);
        }
    }
    tri_sleep_ns(all.calm_s * TRI_NS_PER_S);
    for (int r = 0; r < all.ranks; r++) {
        const report *one = &all.reports[r];

        calls += atomic_load(&one->calls);
        if (atomic_load(&one->failed) || one->wrong || atomic_load(&one->calls) == 0) {
            all.bad++;
            printf("calm: rank %d, wrong sum %d: %s\n", r, one->wrong, one->text);
        }
    }
    for (int r = 0; r < all.ranks; r++)
        kill(processes[r], SIGKILL);
    for (int i = 0; i < all.hogs; i++)
        kill(hogs[i], SIGKILL);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    printf("calm: %lld s, %lld other programs that compute, %d calls\n", (long long)all.calm_s, (long long)all.hogs,
           calls);
}

/* ---- the driver */

static int order(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void figures_print(fault what)
{
    for (int quiet = 0; quiet < 2; quiet++) {
        double *ms = all.ms[what][quiet];
        int count = all.samples[what][quiet];

        if (count == 0)
            continue;
        qsort(ms, (size_t)count, sizeof *ms, order);
        printf(
            "%s: %lld faults, %d reports%s, ms until the call failed: median %.2f, 90%% %.2f, 99%% %.2f, most %.2f\n",
            fault_names[what], (long long)all.counts[what], count, quiet ? " while nobody else used the cores" : "",
            ms[count / 2], ms[count * 9 / 10], ms[count * 99 / 100], ms[count - 1]);
    }
}

static bool flag_take(const char *text)
{
    const struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"kill", &all.counts[FAULT_KILL]},
                   {"stop", &all.counts[FAULT_STOP]},
                   {"cut", &all.counts[FAULT_CUT]},
                   {"lose", &all.counts[FAULT_LOSE]},
                   {"ranks", &all.ranks},
                   {"seed", &all.seed},
                   {"beat", &all.beat_ms},
                   {"kib", &all.kib},
                   {"calm", &all.calm_s},
                   {"hogs", &all.hogs}};
    size_t nbytes = strcspn(text, "=");

    if (!text[nbytes])
        return false;
    if (nbytes == strlen("hosts") && strncmp(text, "hosts", nbytes) == 0) {
        snprintf(all.hosts, sizeof all.hosts, "%s", text + nbytes + 1);
        return true;
    }
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
        if (!flag_take(argv[i]) || all.ranks < 2 || all.ranks > RANKS_MAX || all.kib < 1 || all.kib > COUNT_MAX / 256 ||
            all.hogs < 0 || all.hogs > HOGS_MAX) {
            fprintf(stderr,
                    "faults: want kill=N, stop=N, cut=N, lose=N, ranks=2..%d, seed=N, transport=NAME, beat=MS, "
                    "kib=1..16384, calm=S, hogs=0..64 or hosts=NAME, got %s\n",
                    RANKS_MAX, argv[i]);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(all.folder, sizeof all.folder, "/tmp/trireme-faults-%d", (int)getpid());
    all.reports = mmap(NULL, RANKS_MAX * sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all.counts[FAULT_CUT] + all.counts[FAULT_LOSE] > 0 && !hosts_make()) {
        printf("cut and lose: left out: network namespaces need root and ip\n");
        all.counts[FAULT_CUT] = all.counts[FAULT_LOSE] = 0;
    }
    for (fault what = 0; what < FAULT_COUNT; what++) {
        for (int64_t round = 0; round < all.counts[what]; round++)
            round_run(what, round);
        figures_print(what);
    }
    hosts_remove();
    if (all.calm_s > 0)
        calm_run();
    (void)tri_fs_remove(all.folder);
    printf("seed %lld, %lld ranks over %s, beat %lld ms: %d hang, %d reports are wrong\n", (long long)all.seed,
           (long long)all.ranks, all.transport, (long long)all.beat_ms, all.hung, all.bad);
    return all.hung || all.bad ? 1 : 0;
}
