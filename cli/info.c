/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c: `trireme info`: what this build has, what this machine offers, which environment variables are read; with a
 * path: what lies there.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/amx.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/info.h"
#include "kernel/kernel.h"
#include "net/transport.h"

typedef struct info_flags {
    const char *json, *env;
} info_flags;

static info_flags given;
static const tri_flag flags[] = {
    {"--json", NULL, "one JSON object", &given.json},
    {"--env", NULL, "list the environment variables that are read", &given.env},
};

static const char *const environment[][2] = {
    {"TRIREME_RANK, TRIREME_WORLD_SIZE, TRIREME_LOCAL_RANK, TRIREME_LOCAL_WORLD_SIZE",
     "place of this process, set by trireme launch"},
    {"TRIREME_STORE, TRIREME_TOKEN", "where the ranks meet (tcp://host:port, file:///folder or etcd://host:port) and "
                                     "the job's secret; override any starter's"},
    {"TRIREME_STARTS, TRIREME_FOUNDERS, TRIREME_BEAT", "of a worker of an elastic job, set by its launcher"},
    {"RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT", "torchrun, Kubeflow"},
    {"OMPI_COMM_WORLD_*, PMIX_NAMESPACE", "mpirun of Open MPI"},
    {"PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS", "mpirun of MPICH"},
    {"SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NODELIST, SLURM_JOB_ID, SLURM_STEP_ID", "srun"},
    {"TF_CONFIG", "TensorFlow's description of a cluster"},
    {"TRIREME_COMM", "options of section comm for programs without a configuration, and for bench and doctor, such as "
                     "\"comm.encrypt=on comm.interface=eth0\""},
    {"TRIREME_LOG", "form of log lines: text (as without it) or json; monitor.log of a run overrides it"},
    {"TRACEPARENT", "the trace that a run belongs to (W3C Trace Context); without it each run has one of its own"},
    {"OMP_NUM_THREADS", "threads of a rank"},
};

static const char *const features[] = {
    "avx2", "fma", "avx512f", "avx512bw", "avx512bf16", "amx",
};

static bool has_feature(const char *name)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2");
    if (strcmp(name, "fma") == 0)
        return __builtin_cpu_supports("fma");
    if (strcmp(name, "avx512f") == 0)
        return __builtin_cpu_supports("avx512f");
    if (strcmp(name, "avx512bw") == 0)
        return __builtin_cpu_supports("avx512bw");
    if (strcmp(name, "avx512bf16") == 0)
        return __builtin_cpu_supports("avx512bf16");
    if (strcmp(name, "amx") == 0)
        return tri_amx_allowed();
#endif
    (void)name;
    return false;
}

static int cores_given(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void print_text(void)
{
    printf("trireme %s, compiler %s\n", TRI_VERSION, __VERSION__);
    printf("machine     %d cores for this process, %.1f GiB of memory\n", cores_given(),
           (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30));
    printf("processor  ");
    for (size_t i = 0; i < TRI_COUNT_OF(features); i++)
        if (has_feature(features[i]))
            printf(" %s", features[i]);
    printf("\nkernels     %s\n", tri_kernel_about());
    printf("transports ");
    for (int i = 0; tri_transports[i]; i++)
        printf(" %s", tri_transports[i]->name);
    putchar('\n');
    if (!given.env)
        return;
    puts("\nenvironment variables that are read:");
    for (size_t i = 0; i < TRI_COUNT_OF(environment); i++)
        printf("  %s\n      %s\n", environment[i][0], environment[i][1]);
}

static tri_status print_json(void)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "version", TRI_VERSION);
    tri_json_text(&json, "compiler", __VERSION__);
    tri_json_int(&json, "cores", cores_given());
    tri_json_int(&json, "memory_bytes", sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    tri_json_text(&json, "kernels", tri_kernel_about());
    tri_json list = tri_json_array_in(&json, "processor");
    for (size_t i = 0; i < TRI_COUNT_OF(features); i++)
        if (has_feature(features[i]))
            tri_json_text(&list, NULL, features[i]);
    TRI_TRY(tri_json_end(&list));
    list = tri_json_array_in(&json, "transports");
    for (int i = 0; tri_transports[i]; i++)
        tri_json_text(&list, NULL, tri_transports[i]->name);
    TRI_TRY(tri_json_end(&list));
    if (given.env) {
        list = tri_json_array_in(&json, "environment");
        for (size_t i = 0; i < TRI_COUNT_OF(environment); i++)
            tri_json_text(&list, NULL, environment[i][0]);
        TRI_TRY(tri_json_end(&list));
    }
    tri_status status = tri_json_end(&json);
    puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

int cmd_info(int argc, char **argv)
{
    int count;
    tri_status status = tri_flags_parse(tri_command_of(cmd_info), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return 0;
    if (status == TRI_OK && count > 1)
        status = tri_fail(TRI_ECONFIG, "info takes one path, found '%s' too (trireme info --help)", argv[1]);
    if (status == TRI_OK && count > 0 && given.env)
        status = tri_fail(TRI_ECONFIG, "--env is about this machine, not about '%s' (trireme info --help)", argv[0]);
    if (status == TRI_OK && count > 0)
        status = tri_info_path(argv[0], given.json != NULL);
    else if (status == TRI_OK && given.json)
        status = print_json();
    else if (status == TRI_OK)
        print_text();
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
