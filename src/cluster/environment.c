/* SPDX-License-Identifier: Apache-2.0
 *
 * environment.c: the table of starters: how each tells a process its rank, and where the ranks of one job meet.
 *
 * A meeting point that has to be made up (mpirun, srun) is a function of what is the same on all ranks of this job and
 * different in every other: the job's id, secrets of the starter, and the starter's process (id and start time).
 */
#include "cluster/environment.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "cluster/store_impl.h"
#include "net/auth.h"

#define PORT_TRIES 16 /* ports that rank 0 may take one of, where the starter names none that is free */

tri_status tri_environment_int(tri_cluster_lookup lookup, void *arg, const char *name, int low, int high, int *out)
{
    const char *text = lookup(name, arg);
    char *end = NULL;
    long value;

    if (!text || !*text)
        return tri_fail(TRI_ECONFIG, "%s: want a whole number of %d to %d, got %s", name, low, high,
                        text ? "an empty text" : "nothing (the other variables of this starter are set)");
    value = strtol(text, &end, 10);
    if (isspace((unsigned char)*text) || *end || value < low || value > high)
        return tri_fail(TRI_ECONFIG, "%s: want a whole number of %d to %d, got '%.60s'", name, low, high, text);
    *out = (int)value;
    return TRI_OK;
}

tri_status tri_environment_pair(tri_cluster_lookup lookup, void *arg, const char *rank_name, const char *world_name,
                                int *rank, int *world)
{
    TRI_TRY(tri_environment_int(lookup, arg, world_name, 1, TRI_ENVIRONMENT_RANKS, world));
    TRI_TRY(tri_environment_int(lookup, arg, rank_name, 0, TRI_ENVIRONMENT_RANKS - 1, rank));
    if (*rank >= *world)
        return tri_fail(TRI_ECONFIG, "%s: want less than %s (%d), got %d", rank_name, world_name, *world, *rank);
    return TRI_OK;
}

bool tri_environment_has(tri_cluster_lookup lookup, void *arg, const char *name)
{
    const char *text = lookup(name, arg);

    return text && *text;
}

/* --- what a job is known by ------------------------------------------------------------------------------------- */

typedef struct job_id {
    tri_string text;
    tri_status status;
} job_id;

static void job_add(job_id *job, const char *name, const char *value)
{
    if (value && job->status == TRI_OK)
        job->status = tri_string_appendf(&job->text, "%s=%s\n", name, value);
}

/* 64 hex digits of all that was added; frees it. */
static tri_status job_end(job_id *job, char hex[65])
{
    unsigned char digest[TRI_AUTH_NBYTES];
    tri_status status = job->status;

    if (status == TRI_OK)
        status = tri_auth_sha256(tri_string_text(&job->text), job->text.nbytes, digest);
    if (status == TRI_OK)
        tri_auth_hex(digest, sizeof digest, hex);
    tri_string_fini(&job->text);
    return status;
}

static void job_add_process(job_id *job, const char *name, pid_t pid, const tri_task *task)
{
    char text[96];

    snprintf(text, sizeof text, "%ld at %" PRIu64, (long)pid, task->start_ticks);
    job_add(job, name, text);
}

/* The process that started the ranks of this host: the same for all of them, also behind a shell script per rank. */
static void job_add_starter(job_id *job, bool parent_will_do)
{
    static const char *const names[] = {"mpirun",    "mpiexec",         "mpiexec.hydra", "orterun",
                                        "prterun",   "orted",           "prted",         "hydra_pmi_proxy",
                                        "pmi_proxy", "hydra_bstrap_pr", "prte",          "slurmstepd"};
    pid_t pid = getppid();
    tri_task task;

    for (int depth = 0; depth < 32 && tri_task_look(pid, 0, &task); depth++) {
        for (size_t i = 0; i < TRI_COUNT_OF(names); i++) {
            if (strcmp(task.name, names[i]) == 0) {
                job_add_process(job, "starter", pid, &task);
                return;
            }
        }
        pid = task.parent;
    }
    if (parent_will_do && tri_task_look(getppid(), 0, &task))
        job_add_process(job, "parent", getppid(), &task);
}

/* A folder for a job whose ranks are all on this host. */
static tri_status meet_in_folder(tri_cluster_lookup lookup, void *arg, job_id *job, tri_cluster_place *place)
{
    const char *tmp = lookup("TMPDIR", arg);
    char user[32];
    int nbytes;

    snprintf(user, sizeof user, "%ld", (long)getuid());
    job_add(job, "user", user);
    TRI_TRY(job_end(job, place->token));
    if (!tmp || tmp[0] != '/')
        tmp = "/tmp";
    nbytes = snprintf(place->store_url, sizeof place->store_url, "file://%s/trireme-%s-%.32s", tmp, user, place->token);
    if (nbytes >= (int)sizeof place->store_url)
        return tri_fail(TRI_ECONFIG, "TMPDIR: want a path of at most 1000 bytes, got %zu", strlen(tmp));
    place->private_folder = true;
    return TRI_OK;
}

static tri_status need_store(tri_cluster_lookup lookup, void *arg, const char *starter, const tri_cluster_place *place)
{
    if (tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return TRI_OK;
    return tri_fail(
        TRI_ECONFIG,
        "TRIREME_STORE: want tcp://<host of rank 0>:<port> or file:///<shared folder>, because %s starts %d "
        "ranks on several hosts (%d here) and names no meeting point; found nothing",
        starter, place->world, place->local_world);
}

tri_status tri_environment_meet(tri_cluster_place *place, const char *host, int first_port, int last_port)
{
    const char *left = strchr(host, ':') && host[0] != '[' ? "[" : "", *right = *left ? "]" : "";

    if (strlen(host) > 255)
        return tri_fail(TRI_ECONFIG, "host of rank 0: want at most 255 bytes, got %zu", strlen(host));
    if (last_port > first_port)
        snprintf(place->store_url, sizeof place->store_url, "tcp://%s%s%s:%d-%d", left, host, right, first_port,
                 last_port);
    else
        snprintf(place->store_url, sizeof place->store_url, "tcp://%s%s%s:%d", left, host, right, first_port);
    place->serves = place->rank == 0;
    return TRI_OK;
}

/* --- the starters ----------------------------------------------------------------------------------------------- */

static bool trireme_is_here(tri_cluster_lookup lookup, void *arg)
{
    return tri_environment_has(lookup, arg, "TRIREME_RANK") || tri_environment_has(lookup, arg, "TRIREME_WORLD_SIZE");
}

static tri_status trireme_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    TRI_TRY(tri_environment_pair(lookup, arg, "TRIREME_RANK", "TRIREME_WORLD_SIZE", &place->rank, &place->world));
    TRI_TRY(tri_environment_pair(lookup, arg, "TRIREME_LOCAL_RANK", "TRIREME_LOCAL_WORLD_SIZE", &place->local_rank,
                                 &place->local_world));
    if (tri_environment_has(lookup, arg, "TRIREME_STARTS"))
        TRI_TRY(tri_environment_int(lookup, arg, "TRIREME_STARTS", 0, INT_MAX - 1, &place->starts));
    if ((place->world > 1 || place->starts >= 0) && !tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return tri_fail(TRI_ECONFIG, "TRIREME_STORE: want a store url (TRIREME_WORLD_SIZE is %d), got nothing",
                        place->world);
    return TRI_OK;
}

static bool slurm_is_here(tri_cluster_lookup lookup, void *arg)
{
    /* A batch script that runs a program without srun has SLURM_PROCID, but is no step. */
    return tri_environment_has(lookup, arg, "SLURM_PROCID") &&
           (tri_environment_has(lookup, arg, "SLURM_STEP_ID") ||
            tri_environment_has(lookup, arg, "SLURM_STEP_NODELIST"));
}

static bool mpich_is_here(tri_cluster_lookup lookup, void *arg)
{
    bool has_local =
        tri_environment_has(lookup, arg, "MPI_LOCALRANKID") || tri_environment_has(lookup, arg, "MPI_LOCALNRANKS");

    /* srun --mpi=pmi2 sets PMI_RANK too, but is Slurm's; hydra below srun sets both. */
    return (tri_environment_has(lookup, arg, "PMI_RANK") || tri_environment_has(lookup, arg, "PMI_SIZE")) &&
           (has_local || !slurm_is_here(lookup, arg));
}

static bool openmpi_is_here(tri_cluster_lookup lookup, void *arg)
{
    return tri_environment_has(lookup, arg, "OMPI_COMM_WORLD_RANK") ||
           tri_environment_has(lookup, arg, "OMPI_COMM_WORLD_SIZE");
}

/* Many job scripts export WORLD_SIZE alone beside another starter; RANK alone decides, unless nobody else is there. */
static bool torchrun_is_here(tri_cluster_lookup lookup, void *arg)
{
    return tri_environment_has(lookup, arg, "RANK") ||
           (tri_environment_has(lookup, arg, "WORLD_SIZE") && !openmpi_is_here(lookup, arg) &&
            !mpich_is_here(lookup, arg) && !slurm_is_here(lookup, arg) &&
            !tri_environment_has(lookup, arg, "TF_CONFIG"));
}

/* PyTorch's env:// needs neither variable. Without the number of ranks of this host their addresses tell it. */
static tri_status torchrun_local(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    if (tri_environment_has(lookup, arg, "LOCAL_WORLD_SIZE"))
        return tri_environment_pair(lookup, arg, "LOCAL_RANK", "LOCAL_WORLD_SIZE", &place->local_rank,
                                    &place->local_world);
    place->counts_local = true;
    if (tri_environment_has(lookup, arg, "LOCAL_RANK"))
        TRI_TRY(tri_environment_int(lookup, arg, "LOCAL_RANK", 0, place->world - 1, &place->local_rank));
    place->local_world = place->local_rank + 1;
    return TRI_OK;
}

static tri_status torchrun_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    const char *address = lookup("MASTER_ADDR", arg), *agent = lookup("TORCHELASTIC_USE_AGENT_STORE", arg);
    job_id job = {.status = TRI_OK};
    int port, first, last;

    TRI_TRY(tri_environment_pair(lookup, arg, "RANK", "WORLD_SIZE", &place->rank, &place->world));
    TRI_TRY(torchrun_local(lookup, arg, place));
    if (place->world == 1 || tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return TRI_OK;
    if (!address || !*address)
        return tri_fail(TRI_ECONFIG, "MASTER_ADDR: want the host of rank 0 (WORLD_SIZE is %d), got %s", place->world,
                        address ? "an empty text" : "nothing");
    TRI_TRY(tri_environment_int(lookup, arg, "MASTER_PORT", 1, 65535, &port));
    first = last = port;
    if (agent && (strcasecmp(agent, "true") == 0 || strcmp(agent, "1") == 0)) {
        /* torchrun's agent listens on MASTER_PORT itself. */
        first = port + PORT_TRIES <= 65535 ? port + 1 : port - PORT_TRIES;
        last = first + PORT_TRIES - 1;
    }
    /* Says which job, and which start of it, so that ranks of two do not meet; it is no secret. */
    job_add(&job, "address", address);
    job_add(&job, "port", lookup("MASTER_PORT", arg));
    job_add(&job, "run", lookup("TORCHELASTIC_RUN_ID", arg));
    job_add(&job, "restart", lookup("TORCHELASTIC_RESTART_COUNT", arg));
    TRI_TRY(job_end(&job, place->token));
    place->host_from = "MASTER_ADDR";
    return tri_environment_meet(place, address, first, last);
}

static tri_status openmpi_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    static const char *const ids[] = {
        "PMIX_NAMESPACE",    "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports",
        "PMIX_SERVER_URI41", "PMIX_SERVER_URI4",        "PMIX_SERVER_URI3",
        "PMIX_SERVER_URI2"};
    job_id job = {.status = TRI_OK};

    TRI_TRY(
        tri_environment_pair(lookup, arg, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &place->rank, &place->world));
    TRI_TRY(tri_environment_pair(lookup, arg, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 &place->local_rank, &place->local_world));
    if (place->world == 1 || tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return TRI_OK;
    if (place->local_world != place->world)
        return need_store(lookup, arg, "mpirun", place);
    for (size_t i = 0; i < TRI_COUNT_OF(ids); i++)
        job_add(&job, ids[i], lookup(ids[i], arg));
    job_add_starter(&job, job.text.nbytes == 0);
    return meet_in_folder(lookup, arg, &job, place);
}

static tri_status mpich_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    job_id job = {.status = TRI_OK};

    TRI_TRY(tri_environment_pair(lookup, arg, "PMI_RANK", "PMI_SIZE", &place->rank, &place->world));
    if (place->world > 1 || tri_environment_has(lookup, arg, "MPI_LOCALRANKID") ||
        tri_environment_has(lookup, arg, "MPI_LOCALNRANKS"))
        TRI_TRY(tri_environment_pair(lookup, arg, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", &place->local_rank,
                                     &place->local_world));
    if (place->world == 1 || tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return TRI_OK;
    if (place->local_world != place->world)
        return need_store(lookup, arg, "mpiexec", place);
    job_add(&job, "PMI_PORT", lookup("PMI_PORT", arg));
    job_add_starter(&job, true);
    return meet_in_folder(lookup, arg, &job, place);
}

static tri_status slurm_local(tri_cluster_lookup lookup, void *arg, int nodes, tri_cluster_place *place)
{
    const char *tasks = lookup("SLURM_STEP_TASKS_PER_NODE", arg);
    int node = 0;

    place->local_world = place->world;
    if (nodes > 1) {
        if (!tasks)
            tasks = lookup("SLURM_TASKS_PER_NODE", arg);
        if (!tasks)
            return tri_fail(TRI_ECONFIG, "SLURM_STEP_TASKS_PER_NODE: want the tasks of each of %d nodes, got nothing",
                            nodes);
        TRI_TRY(tri_environment_int(lookup, arg, "SLURM_NODEID", 0, nodes - 1, &node));
        TRI_TRY(tri_environment_tasks(tasks, node, &place->local_world));
    }
    return tri_environment_int(lookup, arg, "SLURM_LOCALID", 0, place->local_world - 1, &place->local_rank);
}

static tri_status slurm_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    const char *list = lookup("SLURM_STEP_NODELIST", arg);
    const char *world_name =
        tri_environment_has(lookup, arg, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    job_id job = {.status = TRI_OK};
    char host[256], beyond[256];
    int nodes = 1, port;

    TRI_TRY(tri_environment_pair(lookup, arg, "SLURM_PROCID", world_name, &place->rank, &place->world));
    if (!list)
        list = lookup("SLURM_NODELIST", arg);
    if (!list && place->world > 1)
        return tri_fail(TRI_ECONFIG, "SLURM_STEP_NODELIST: want the nodes of the step (%s is %d), got nothing",
                        world_name, place->world);
    if (list) {
        TRI_TRY_IN(tri_environment_node(list, 0, host, &nodes), "SLURM_STEP_NODELIST");
        tri_environment_node(list, -1, beyond, &nodes);
    }
    TRI_TRY(slurm_local(lookup, arg, nodes, place));
    if (place->world == 1 || tri_environment_has(lookup, arg, "TRIREME_STORE"))
        return TRI_OK;
    if (!tri_environment_has(lookup, arg, "SLURM_JOB_ID"))
        return tri_fail(TRI_ECONFIG, "SLURM_JOB_ID: want the number of the job, got nothing");
    job_add(&job, "job", lookup("SLURM_JOB_ID", arg));
    job_add(&job, "step", lookup("SLURM_STEP_ID", arg));
    job_add(&job, "restart", lookup("SLURM_RESTART_COUNT", arg));
    TRI_TRY(job_end(&job, place->token));
    /* Below the ports that systems give to outgoing connections (32768 and up). */
    port = 15000 +
           (int)(strtoul((char[]){place->token[0], place->token[1], place->token[2], place->token[3], 0}, NULL, 16) %
                 1000u) *
               PORT_TRIES;
    place->host_from = "SLURM_STEP_NODELIST";
    return tri_environment_meet(place, nodes == 1 ? "127.0.0.1" : host, port, port + PORT_TRIES - 1);
}

static bool tf_is_here(tri_cluster_lookup lookup, void *arg)
{
    return tri_environment_has(lookup, arg, "TF_CONFIG");
}

static tri_status tf_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    return tri_environment_tf_config(lookup("TF_CONFIG", arg), place);
}

static bool alone_is_here(tri_cluster_lookup lookup, void *arg)
{
    (void)lookup;
    (void)arg;
    return true;
}

static tri_status alone_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    (void)lookup;
    (void)arg;
    place->world = place->local_world = 1;
    return TRI_OK;
}

const tri_environment tri_cluster_environments[] = {
    {"trireme", "trireme train -n or trireme launch", trireme_is_here, trireme_fill},
    {"torchrun", "torchrun, Kubeflow's PyTorchJob, RANK and WORLD_SIZE by hand", torchrun_is_here, torchrun_fill},
    {"hosts", "a host file in TRIREME_HOSTFILE, a rank each", tri_environment_host_file_is_here,
     tri_environment_host_file_fill},
    {"trainjob", "Kubeflow's TrainJob with the policy torch (PET_*)", tri_environment_trainjob_is_here,
     tri_environment_trainjob_fill},
    {"openmpi", "mpirun of Open MPI", openmpi_is_here, openmpi_fill},
    {"mpich", "mpiexec of MPICH and its relatives", mpich_is_here, mpich_fill},
    {"slurm", "srun", slurm_is_here, slurm_fill},
    {"tf_config", "TF_CONFIG, as Kubeflow's TFJob sets it", tf_is_here, tf_fill},
    {"alone", "one process", alone_is_here, alone_fill},
    {.name = NULL},
};

static const char *lookup_own(const char *name, void *arg)
{
    (void)arg;
    return getenv(name);
}

bool tri_cluster_is_evaluator(tri_cluster_lookup lookup, void *arg)
{
    const tri_environment *row = tri_cluster_environments;

    if (!lookup)
        lookup = lookup_own;
    while (!row->is_here(lookup, arg))
        row++;
    return row->fill == tf_fill && tri_environment_tf_evaluates(lookup("TF_CONFIG", arg));
}

tri_status tri_cluster_token(tri_cluster_lookup lookup, void *arg, char token[65])
{
    const char *text = (lookup ? lookup : lookup_own)("TRIREME_TOKEN", arg);

    if (!text || !*text)
        return tri_fail(TRI_ECONFIG,
                        "TRIREME_TOKEN: want the secret of the job, the same for all of its processes, got %s",
                        text ? "an empty text" : "nothing");
    if (strlen(text) < TRI_AUTH_TOKEN_LEAST || strlen(text) > 64)
        return tri_fail(TRI_ECONFIG, "TRIREME_TOKEN: want %d to 64 bytes, got %zu", TRI_AUTH_TOKEN_LEAST, strlen(text));
    snprintf(token, 65, "%s", text);
    return TRI_OK;
}

bool tri_cluster_has_token(tri_cluster_lookup lookup, void *arg)
{
    return (lookup ? lookup : lookup_own)("TRIREME_TOKEN", arg) != NULL;
}

tri_status tri_cluster_token_check(bool has_token, const char *started_by, int rank, int world,
                                   const tri_net_config *config)
{
    if (has_token || world == 1)
        return TRI_OK;
    if (config->require_token || config->encrypt)
        return tri_fail(TRI_ECONFIG,
                        "comm.%s = on: want a secret token for the job (TRIREME_TOKEN), got none (started by %s)",
                        config->require_token ? "require_token" : "encrypt", started_by);
    if (rank == 0)
        tri_log(TRI_LOG_WARN,
                "TRIREME_TOKEN is not set (started by %s): anyone who can reach the ports of this job can join it as a "
                "rank; hint: set TRIREME_TOKEN=$(openssl rand -hex 32), the same for all ranks",
                started_by);
    return TRI_OK;
}

const char *tri_cluster_settings(tri_cluster_lookup lookup, void *arg)
{
    const char *text = (lookup ? lookup : lookup_own)("TRIREME_COMM", arg);

    return text ? text : "";
}

tri_status tri_cluster_detect(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place)
{
    const tri_environment *row = tri_cluster_environments;
    const char *store;
    tri_store_url url;

    if (!lookup)
        lookup = lookup_own;
    store = lookup("TRIREME_STORE", arg);
    memset(place, 0, sizeof *place);
    place->world = place->local_world = 1;
    place->starts = -1;
    while (!row->is_here(lookup, arg))
        row++;
    place->started_by = row->name;
    TRI_TRY_IN(row->fill(lookup, arg, place), "started by %s", row->name);
    if (tri_environment_has(lookup, arg, "TRIREME_SERVERS"))
        TRI_TRY(tri_environment_int(lookup, arg, "TRIREME_SERVERS", 0, place->world - 1, &place->servers));
    place->initial_members = place->world;
    if (tri_environment_has(lookup, arg, "TRIREME_INITIAL_MEMBERS"))
        TRI_TRY(tri_environment_int(lookup, arg, "TRIREME_INITIAL_MEMBERS", 1, TRI_ENVIRONMENT_RANKS,
                                    &place->initial_members));
    if (tri_environment_has(lookup, arg, "TRIREME_BEAT"))
        snprintf(place->beat, sizeof place->beat, "%s", lookup("TRIREME_BEAT", arg));
    if (place->servers > 0 && place->servers >= place->world)
        return tri_fail(TRI_ECONFIG,
                        "started by %s: want at least one worker beside the parameter servers, got %d of %d", row->name,
                        place->servers, place->world);
    if (place->local_world > place->world)
        return tri_fail(TRI_ECONFIG, "started by %s: local world: want at most the world's %d ranks, got %d", row->name,
                        place->world, place->local_world);
    if (place->world == 1 && place->starts < 0) {
        place->store_url[0] = 0;
        place->serves = place->private_folder = false;
    } else if (store && *store) {
        TRI_TRY_IN(tri_store_url_parse(store, &url), "TRIREME_STORE");
        snprintf(place->store_url, sizeof place->store_url, "%s", store);
        place->host_from = "TRIREME_STORE";
        place->private_folder = false;
        place->store_given = true;
        place->serves = place->rank == 0 && !url.is_file && !url.is_etcd && row->fill != trireme_fill;
        place->may_be_served = place->serves;
    }
    place->has_token = tri_cluster_has_token(lookup, arg);
    return place->has_token ? tri_cluster_token(lookup, arg, place->token) : TRI_OK;
}
