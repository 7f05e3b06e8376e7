/* SPDX-License-Identifier: Apache-2.0
 *
 * test_machine.c: each thing that can be wrong with a machine is found, by its name, with what was found and the fix.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/doctor/machine_rig.h"

static const tri_finding *finding_of(const tri_vector *findings, const char *check)
{
    for (size_t i = 0; i < findings->count; i++) {
        const tri_finding *finding = tri_vector_at(findings, i);

        if (strcmp(finding->check, check) == 0)
            return finding;
    }
    fail_msg("there is no check '%s'", check);
    return NULL;
}

static void a_healthy_machine_has_nothing_to_mend(void **state)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    rig at;

    (void)state;
    assert_true(rig_open(&at));
    assert_int_equal(tri_machine_look(&at.machine, &findings), TRI_OK);
    for (size_t i = 0; i < findings.count; i++) {
        const tri_finding *finding = tri_vector_at(&findings, i);

        if (finding->result != TRI_RESULT_OK || finding->fix[0] || !finding->found[0] || !finding->wanted[0])
            fail_msg("%s: %s, found '%s', wanted '%s', fix '%s'", finding->check, tri_result_name(finding->result),
                     finding->found, finding->wanted, finding->fix);
    }
    assert_int_equal(findings.count, 30);
    tri_vector_fini(&findings);
    rig_close(&at);
}

typedef struct spoilt {
    const char *path, *text; /* of one file of the healthy machine; text NULL: the file is gone */
    const char *check;
    tri_result result;
    const char *found, *fix; /* parts; fix "": none */
    int ranks;               /* 0: not said */
} spoilt;

#define LIMITS "/proc/self/limits"
static const char limits_files[] = RIG_LIMITS(ALL, ALL, ALL, "96365 96365", "9 8192", ALL);
static const char limits_hard[] = RIG_LIMITS(ALL, ALL, ALL, "96365 96365", "9 9", ALL);
static const char limits_few[] = RIG_LIMITS(ALL, ALL, ALL, "96365 96365", "256 8192", ALL);
static const char limits_locked[] = RIG_LIMITS(ALL, ALL, ALL, "96365 96365", "4096 8192", "65536 65536");
static const char limits_space[] = RIG_LIMITS(ALL, "204800000 unlimited", ALL, "96365 96365", "4096 8192", ALL);
static const char limits_length[] = RIG_LIMITS(ALL, ALL, "1048576 1048576", "96365 96365", "4096 8192", ALL);
static const char limits_cores[] = RIG_LIMITS("0 unlimited", ALL, ALL, "96365 96365", "4096 8192", ALL);
static const char limits_processes[] = RIG_LIMITS(ALL, ALL, ALL, "10 96365", "4096 8192", ALL);

#define MEMINFO(available, huge_free)                                                                                  \
    "MemTotal: 33554432 kB\nMemAvailable: " available " kB\nCommitLimit: 1048576 kB\nCommitted_AS: 1040000 kB\n"       \
    "HugePages_Total: 10000\nHugePages_Free: " huge_free "\nHugepagesize: 2048 kB\n"

static const spoilt rows[] = {
    {LIMITS, limits_files, "open files", TRI_RESULT_FAIL, "9", "ulimit -n 1024", 2},
    {LIMITS, limits_hard, "open files", TRI_RESULT_FAIL, "9", "sudo prlimit --pid $$ --nofile=1024:1024", 2},
    {LIMITS, limits_few, "open files", TRI_RESULT_WARN, "256", "ulimit -n 1024", 2},
    {LIMITS, limits_few, "open files", TRI_RESULT_FAIL, "256", "ulimit -n 4016", 1000},
    {LIMITS, NULL, "open files", TRI_RESULT_NOTE, "not known", "", 0},
    {LIMITS, limits_processes, "processes", TRI_RESULT_FAIL, "10", "ulimit -u 1024", 2},
    {CGROUP "/job/pids.max", "20", "processes", TRI_RESULT_FAIL, "13 of the control group's 20",
     "echo max | sudo tee /sys/fs/cgroup/job/pids.max", 2},
    {LIMITS, limits_locked, "locked memory", TRI_RESULT_NOTE, "64 KiB", "--memlock=unlimited", 0},
    {LIMITS, limits_space, "address space", TRI_RESULT_FAIL, "195 MiB of addresses", "ulimit -v unlimited", 0},
    {LIMITS, limits_length, "file length", TRI_RESULT_FAIL, "1.0 MiB", "--fsize=unlimited", 0},
    {LIMITS, limits_cores, "core files", TRI_RESULT_NOTE, "none", "ulimit -c unlimited", 0},
    {"/proc/meminfo", MEMINFO("1000000", "0"), "free memory", TRI_RESULT_WARN, "977 MiB of 32 GiB", "ps -eo", 2},
    {"/proc/meminfo", MEMINFO("100000", "0"), "free memory", TRI_RESULT_FAIL, "98 MiB", "ps -eo", 0},
    {"/proc/meminfo", MEMINFO("30000000", "9000"), "reserved huge pages", TRI_RESULT_WARN, "9000 free (18 GiB)",
     "sudo sysctl -w vm.nr_hugepages=1000", 0},
    {CGROUP "/job/memory.max", "134217728", "memory limit", TRI_RESULT_FAIL, "128 MiB",
     "echo max | sudo tee /sys/fs/cgroup/job/memory.max", 2},
    {CGROUP "/job/memory.max", "1073741824", "memory limit", TRI_RESULT_WARN, "1.0 GiB", "memory.max", 4},
    {CGROUP "/memory.max", "134217728", "memory limit", TRI_RESULT_FAIL, "128 MiB", "cgroup/memory.max", 2},
    {"/proc/sys/vm/max_map_count", "6000", "memory maps", TRI_RESULT_WARN, "6000", "vm.max_map_count=262144", 0},
    {"/proc/sys/vm/max_map_count", "65530", "memory maps", TRI_RESULT_WARN, "65530", "vm.max_map_count=262144", 128},
    {THP "/enabled", "always madvise [never]", "huge pages", TRI_RESULT_WARN, "never", "echo madvise", 0},
    {THP "/shmem_enabled", "always [never] deny", "shared huge pages", TRI_RESULT_NOTE, "never", "echo within_size", 0},
    {"/proc/self/status", "Cpus_allowed_list:\t2\n", "cores", TRI_RESULT_WARN, "1 for 2 ranks", "taskset -pc 0-3 $$",
     2},
    {"/proc/self/status", "Cpus_allowed_list:\t1-2\n", "cores", TRI_RESULT_NOTE, "2 of 4: 1-2", "taskset -pc 0-3", 0},
    {CPU "/online", "0-3\n", "cores", TRI_RESULT_WARN, "4 for 9 ranks", "-n 4", 9},
    {CGROUP "/job/cpu.max", "50000 100000", "cpu quota", TRI_RESULT_WARN, "0.5 of 2 cores",
     "echo max | sudo tee /sys/fs/cgroup/job/cpu.max", 2},
    {CGROUP "/cpu.max", "350000 100000", "cpu quota", TRI_RESULT_WARN, "3.5 of 4 cores", "cgroup/cpu.max", 0},
    {CPU "/cpu3/cache/index0/shared_cpu_list", "3\n", "shared cache", TRI_RESULT_NOTE, "2 caches", "taskset -pc 0-3",
     2},
    {CPU "/cpu0/topology/thread_siblings_list", "0,2\n", "shared cache", TRI_RESULT_NOTE, "0 and 2 are threads", "-n 2",
     4},
    {"/proc/cpuinfo", "flags : sse2 avx2\n", "instructions", TRI_RESULT_WARN, "no avx2 with fma", "", 0},
    {CPU "/cpu0/cpufreq/scaling_governor", "powersave\n", "frequency", TRI_RESULT_WARN, "powersave (acpi-cpufreq)",
     "echo performance", 0},
    {CPU "/cpu0/cpufreq/scaling_governor", "schedutil\n", "frequency", TRI_RESULT_NOTE, "schedutil", "performance", 0},
    {"/proc/loadavg", "4.50 1 1 1/2 3\n", "load", TRI_RESULT_WARN, "4.50", "ps -eo", 0},
    {"/sys/class/net/eth0/mtu", "576\n", "link speed", TRI_RESULT_WARN, "mtu 576", "mtu 1500", 0},
    {"/sys/class/net/eth0/speed", "100\n", "link speed", TRI_RESULT_WARN, "100 Mbit/s, full", "ethtool -s eth0", 0},
    {"/sys/class/net/eth0/speed", "25000\n", "link speed", TRI_RESULT_NOTE, "25000 Mbit/s", "mtu 9000", 0},
    {"/sys/class/net/eth0/duplex", "half\n", "link speed", TRI_RESULT_WARN, "half duplex", "ethtool -s eth0", 0},
    {"/proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304", "tcp buffers", TRI_RESULT_NOTE, "send up to 4.0 MiB",
     "sudo sysctl -w net.ipv4.tcp_rmem=", 0},
    {"/proc/sys/net/ipv4/tcp_rmem", "4096 16384 212992", "tcp buffers", TRI_RESULT_WARN, "receive up to 208 KiB",
     "sudo sysctl", 0},
    {"/proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n", "slow start", TRI_RESULT_NOTE, "= 1", "after_idle=0", 0},
    {"/proc/sys/net/ipv4/tcp_available_ulp", "mptcp\n", "kernel tls", TRI_RESULT_NOTE, "not loaded", "modprobe tls", 0},
    {"/proc/sys/vm/overcommit_memory", "2\n", "overcommit", TRI_RESULT_WARN, "= 2: 15 GiB", "overcommit_memory=0", 0},
};

static void expect(const rig *at, const spoilt *row, size_t index)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    const tri_finding *found;

    assert_int_equal(tri_machine_look(&at->machine, &findings), TRI_OK);
    found = finding_of(&findings, row->check);
    if (found->result != row->result || !strstr(found->found, row->found) || !strstr(found->fix, row->fix) ||
        (!row->fix[0] && found->fix[0]))
        fail_msg("row %zu, %s: %s, found '%s', fix '%s'", index, row->check, tri_result_name(found->result),
                 found->found, found->fix);
    tri_vector_fini(&findings);
}

static void each_spoilt_file_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        rig at;

        assert_true(rig_open(&at));
        assert_true(rig_write(&at, rows[i].path, rows[i].text));
        at.machine.ranks = at.machine.world = rows[i].ranks;
        expect(&at, &rows[i], i);
        rig_close(&at);
    }
}

static void control_groups_of_the_first_version_are_read(void **state)
{
    const spoilt quota = {NULL,
                          NULL,
                          "cpu quota",
                          TRI_RESULT_WARN,
                          "0.5 of 2 cores",
                          "echo -1 | sudo tee /sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us",
                          2};
    const spoilt memory = {NULL,
                           NULL,
                           "memory limit",
                           TRI_RESULT_FAIL,
                           "64 MiB",
                           "echo -1 | sudo tee /sys/fs/cgroup/memory/memory.limit_in_bytes",
                           2};
    rig at;

    (void)state;
    assert_true(rig_open(&at));
    at.machine.ranks = 2;
    assert_true(rig_write(&at, CGROUP "/cgroup.controllers", NULL));
    assert_true(rig_write(&at, "/proc/self/cgroup", "3:cpu,cpuacct:/a/b\n2:memory:/nowhere/to/see\n0::/job\n"));
    assert_true(rig_write(&at, CGROUP "/cpu/a/b/cpu.cfs_quota_us", "50000\n"));
    assert_true(rig_write(&at, CGROUP "/cpu/a/b/cpu.cfs_period_us", "100000\n"));
    assert_true(rig_write(&at, CGROUP "/cpu/a/cpu.cfs_quota_us", "-1\n"));
    assert_true(rig_write(&at, CGROUP "/memory/memory.limit_in_bytes", "67108864\n"));
    assert_true(rig_write(&at, CGROUP "/memory/memory.usage_in_bytes", "1000\n"));
    expect(&at, &quota, 0);
    expect(&at, &memory, 1);
    rig_close(&at);
}

static void what_was_tried_in_vain_is_found(void **state)
{
    static const struct {
        size_t field;
        const char *text;
        spoilt row;
    } tried[] = {
        {offsetof(tri_probe, region),
         "memfd_create: Operation not permitted",
         {NULL, NULL, "shared memory", TRI_RESULT_FAIL, "not permitted", "seccomp=unconfined", 0}},
        {offsetof(tri_probe, region),
         "killed (File size limit exceeded)",
         {NULL, NULL, "shared memory", TRI_RESULT_FAIL, "File size", "ulimit -f unlimited", 0}},
        {offsetof(tri_probe, neighbour),
         "/proc/7/fd/3: Permission denied",
         {NULL, NULL, "shared memory", TRI_RESULT_FAIL, "Permission denied", "SYS_PTRACE", 0}},
        {offsetof(tri_probe, peek),
         "process_vm_readv: Operation not permitted",
         {NULL, NULL, "reading others", TRI_RESULT_NOTE, "not permitted", "SYS_PTRACE", 0}},
        {offsetof(tri_probe, loopback),
         "connecting to 127.0.0.1: Network is unreachable",
         {NULL, NULL, "loopback", TRI_RESULT_FAIL, "unreachable", "ip link set lo up", 0}},
        {offsetof(tri_probe, listen),
         "tcp: cannot listen: Too many open files",
         {NULL, NULL, "loopback", TRI_RESULT_FAIL, "Too many", "ulimit -n 1024", 0}},
        {offsetof(tri_probe, zerocopy),
         "SO_ZEROCOPY: Protocol not available",
         {NULL, NULL, "zero copy", TRI_RESULT_NOTE, "not available", "", 0}},
    };

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(tried); i++) {
        rig at;

        assert_true(rig_open(&at));
        snprintf((char *)&at.machine.probe + tried[i].field, TRI_PROBE_TEXT_NBYTES, "%s", tried[i].text);
        expect(&at, &tried[i].row, i);
        rig_close(&at);
    }
}

static void strict_kernels_and_small_folders_are_found(void **state)
{
    const spoilt yama = {NULL, NULL, "reading others", TRI_RESULT_NOTE, "ptrace_scope = 1", "ptrace_scope=0", 0};
    const spoilt shm = {NULL, NULL, "/dev/shm", TRI_RESULT_NOTE, "64 MiB", "remount,size=8G /dev/shm", 0};
    const spoilt none = {NULL, NULL, "/dev/shm", TRI_RESULT_NOTE, "none", "mount -t tmpfs", 0};
    rig at;

    (void)state;
    assert_true(rig_open(&at));
    snprintf(at.machine.probe.peek, sizeof at.machine.probe.peek, "process_vm_readv: Operation not permitted");
    assert_true(rig_write(&at, "/proc/sys/kernel/yama/ptrace_scope", "1\n"));
    expect(&at, &yama, 0);
    at.machine.probe.shm_nbytes = 64 * TRI_MIB;
    expect(&at, &shm, 1);
    at.machine.probe.shm_nbytes = -1;
    expect(&at, &none, 2);
    rig_close(&at);
}

static void a_machine_without_a_network_is_found(void **state)
{
    const spoilt alone = {NULL, NULL, "interfaces", TRI_RESULT_NOTE, "lo 127.0.0.1", "", 0};
    const spoilt chosen = {NULL, NULL, "interface chosen", TRI_RESULT_FAIL, "none", "", 0};
    const spoilt down = {NULL, NULL, "interfaces", TRI_RESULT_FAIL, "eth1 (down)", "ip link set eth1 up", 0};
    rig at;

    (void)state;
    assert_true(rig_open(&at));
    at.machine.interfaces.count = 1; /* lo */
    at.machine.probe.addresses[0] = 0;
    expect(&at, &alone, 0);
    at.machine.many_hosts = true;
    expect(&at, &chosen, 1);
    assert_true(rig_interface(&at, "eth1", "", false, false));
    expect(&at, &down, 2);
    rig_close(&at);
}

static void traps_among_interfaces_are_found(void **state)
{
    const spoilt docker = {NULL,
                           NULL,
                           "interface chosen",
                           TRI_RESULT_WARN,
                           "docker0 comes first (order: 172.17.0.1,10.0.2.1): a bridge",
                           "comm.interface=eth0",
                           0};
    const spoilt bridge = {NULL,
                           NULL,
                           "interface chosen",
                           TRI_RESULT_WARN,
                           "mybridge comes first (order: 10.1.0.1,10.0.2.1): a bridge",
                           "comm.interface=eth0",
                           0};
    const spoilt slow = {NULL, NULL, "interface chosen", TRI_RESULT_WARN, "eth0 comes first", "comm.interface=fast0",
                         0};
    const spoilt fine = {NULL, NULL, "interface chosen", TRI_RESULT_OK, "eth0, as the first that is up", "", 0};
    rig at;

    (void)state;
    assert_true(rig_open(&at));
    assert_true(rig_interface(&at, "docker0", "172.17.0.1", true, false));
    expect(&at, &fine, 0);
    snprintf(at.machine.probe.addresses, sizeof at.machine.probe.addresses, "172.17.0.1,10.0.2.1");
    expect(&at, &docker, 1);
    assert_true(rig_interface(&at, "mybridge", "10.1.0.1", true, false));
    assert_true(rig_write(&at, "/sys/class/net/mybridge/bridge/forward_delay", "0\n"));
    snprintf(at.machine.probe.addresses, sizeof at.machine.probe.addresses, "10.1.0.1,10.0.2.1");
    expect(&at, &bridge, 2);
    assert_true(rig_interface(&at, "fast0", "10.9.0.1", true, false));
    assert_true(rig_write(&at, "/sys/class/net/fast0/speed", "100000\n"));
    snprintf(at.machine.probe.addresses, sizeof at.machine.probe.addresses, "10.0.2.1,10.9.0.1");
    expect(&at, &slow, 3);
    rig_close(&at);
}

static void a_rank_is_not_told_that_its_cores_are_few(void **state)
{
    const spoilt few = {NULL, NULL, "cores", TRI_RESULT_OK, "1 of 4: 2", "", 0};
    rig at;

    (void)state;
    assert_true(rig_open(&at));
    assert_true(rig_write(&at, "/proc/self/status", "Cpus_allowed_list:\t2\n"));
    at.machine.ranks = 4;
    at.machine.is_rank = true;
    expect(&at, &few, 0);
    rig_close(&at);
}

static void nothing_readable_is_no_failure(void **state)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    rig at;

    (void)state;
    assert_true(rig_open(&at));
    at.machine.root = "/nowhere";
    assert_int_equal(tri_machine_look(&at.machine, &findings), TRI_OK);
    for (size_t i = 0; i < findings.count; i++) {
        const tri_finding *finding = tri_vector_at(&findings, i);

        assert_true(finding->result <= TRI_RESULT_NOTE);
        assert_true(finding->found[0]);
    }
    tri_vector_fini(&findings);
    rig_close(&at);
}

static void this_machine_can_be_looked_at(void **state)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    tri_machine machine;

    (void)state;
    assert_int_equal(tri_machine_open(2, 2, false, &machine), TRI_OK);
    assert_int_equal(tri_machine_look(&machine, &findings), TRI_OK);
    assert_string_equal(finding_of(&findings, "shared memory")->found, "works");
    assert_string_equal(finding_of(&findings, "loopback")->found, "works");
    assert_non_null(strstr(finding_of(&findings, "interfaces")->found, "lo 127.0.0.1"));
    assert_null(strstr(finding_of(&findings, "open files")->found, "not known"));
    assert_null(strstr(finding_of(&findings, "free memory")->found, "not known"));
    assert_null(strstr(finding_of(&findings, "memory maps")->found, "= 6;"));
    tri_vector_fini(&findings);
    tri_machine_close(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_healthy_machine_has_nothing_to_mend),
        cmocka_unit_test(each_spoilt_file_is_found),
        cmocka_unit_test(control_groups_of_the_first_version_are_read),
        cmocka_unit_test(what_was_tried_in_vain_is_found),
        cmocka_unit_test(strict_kernels_and_small_folders_are_found),
        cmocka_unit_test(a_machine_without_a_network_is_found),
        cmocka_unit_test(traps_among_interfaces_are_found),
        cmocka_unit_test(a_rank_is_not_told_that_its_cores_are_few),
        cmocka_unit_test(nothing_readable_is_no_failure),
        cmocka_unit_test(this_machine_can_be_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
