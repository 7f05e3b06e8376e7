/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c: `trireme info`: what this build has, what this machine offers, which environment variables are read; with a
 * path: what is there.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/amx.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/info.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda.h"
#include "device/cuda/nccl.h"
#include "device/cuda/nvml.h"
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
    {"TRIREME_STARTS, TRIREME_INITIAL_MEMBERS, TRIREME_BEAT", "of a worker of an elastic job, set by its launcher"},
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

#define MOST_CARDS 64

/* Cards that this build can use; -1: none, and the last error says why. */
static int cards_find(tri_cuda_card *cards, int *driver)
{
    int count = 0;
    if (tri_cuda_cards(cards, MOST_CARDS, &count, driver) != TRI_OK)
        return -1;
    return count < MOST_CARDS ? count : MOST_CARDS;
}

static void print_library(void)
{
    char name[TRI_CUBLASLT_NBYTES];
    if (tri_cublaslt_name(name) == TRI_OK)
        printf("gpu matrix products by %s\n", name);
    else
        printf("gpu matrix products by our own kernels: %s\n", tri_last_error());
}

static void print_nccl(void)
{
    char name[TRI_NCCL_NBYTES];
    int version = 0;
    if (tri_nccl_version(&version, name) == TRI_OK)
        printf("gpu sums    between cards by %s (parallel.backend)\n", name);
    else
        printf("gpu sums    on the host: %s\n", tri_last_error());
}

/* What NVML knows of a card; nothing without it. */
static void print_state(const tri_cuda_card *card)
{
    tri_card_health health;
    if (tri_nvml_card_find(card->id, &health) != TRI_OK)
        return;
    const tri_card_figures *now = &health.figures;
    const char *slow = tri_card_slow_reason(health.slow_reasons);
    const struct {
        double value;
        const char *format;
    } figures[] = {{now->memory_used_bytes / (1 << 30), "%.1f GiB taken"},
                   {100 * now->utilization_ratio, "%.0f %% busy"},
                   {now->power_watts, "%.0f W"},
                   {now->temperature_celsius, "%.0f degrees"},
                   {now->sm_clock_hertz / 1e6, "%.0f MHz"}};
    const char *between = ": ";
    printf("            at %s", card->place);
    for (size_t i = 0; i < TRI_COUNT_OF(figures); i++) {
        if (isnan(figures[i].value))
            continue;
        fputs(between, stdout);
        printf(figures[i].format, figures[i].value);
        between = ", ";
    }
    if (now->ecc_uncorrected_total > 0)
        printf(", %.0f uncorrected memory errors", now->ecc_uncorrected_total);
    printf(slow ? ", slowed down by %s\n" : "\n", slow);
}

static void print_cards(void)
{
    tri_cuda_card cards[MOST_CARDS];
    int driver = 0, count = cards_find(cards, &driver);
    if (count < 0)
        printf("gpus        none: %s\n", tri_last_error());
    for (int i = 0; i < count; i++) {
        printf("%s cuda:%d %s, compute capability %d.%d, %d SMs, %.1f GiB\n", i == 0 ? "gpus       " : "           ", i,
               cards[i].name, cards[i].capability / 10, cards[i].capability % 10, cards[i].sms,
               (double)cards[i].memory_nbytes / (1 << 30));
        print_state(&cards[i]);
    }
    if (count >= 0)
        printf("gpu driver  for CUDA %d.%d; this build has %s\n", driver / 1000, driver % 1000 / 10,
               tri_cuda_image ? "kernels, which no card has run yet" : "no kernels");
    if (count >= 0) {
        print_library();
        print_nccl();
    }
}

static void json_state(tri_json *json, const tri_cuda_card *card)
{
    tri_card_health health;
    tri_json_text(json, "place", card->place);
    if (tri_nvml_card_find(card->id, &health) != TRI_OK)
        return;
    tri_json_text(json, "driver", health.driver);
#define STATE_WRITE(name, type, help)                                                                                  \
    if (!isnan(health.figures.name))                                                                                   \
        tri_json_real(json, #name, health.figures.name);
    TRI_CARD_LIST(STATE_WRITE)
#undef STATE_WRITE
}

static tri_status print_cards_json(tri_json *json)
{
    tri_cuda_card cards[MOST_CARDS];
    char library[TRI_CUBLASLT_NBYTES], nccl[TRI_NCCL_NBYTES];
    int version = 0, driver = 0, count = cards_find(cards, &driver);
    if (count < 0)
        tri_json_text(json, "no_gpus", tri_last_error());
    else
        tri_json_int(json, "gpu_driver", driver);
    if (count >= 0 && tri_cublaslt_name(library) == TRI_OK)
        tri_json_text(json, "gpu_library", library);
    if (count >= 0 && tri_nccl_version(&version, nccl) == TRI_OK)
        tri_json_text(json, "nccl", nccl);
    tri_json_bool(json, "gpu_kernels", tri_cuda_image != NULL);
    tri_json list = tri_json_array_in(json, "gpus");
    for (int i = 0; i < count; i++) {
        tri_json card = tri_json_object_in(&list, NULL);
        tri_json_text(&card, "name", cards[i].name);
        tri_json_int(&card, "compute_capability", cards[i].capability);
        tri_json_int(&card, "sms", cards[i].sms);
        tri_json_int(&card, "memory_bytes", (int64_t)cards[i].memory_nbytes);
        json_state(&card, &cards[i]);
        TRI_TRY(tri_json_end(&card));
    }
    return tri_json_end(&list);
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
    print_cards();
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
    TRI_TRY(print_cards_json(&json));
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
        status = tri_fail(TRI_ECONFIG, "info takes one path, got '%s' too (trireme info --help)", argv[1]);
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
