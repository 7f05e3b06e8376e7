/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: the program `trireme`: a table of commands.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/command.h"
#include "cli/say.h"
#include "device/cuda/nccl.h"

const tri_command tri_commands[] = {
    {"train", "CONFIG.yaml [-n N] [section.key=value ...]", "train a model on N workers", cmd_train},
    {"eval", "RUN or CHECKPOINT [-n N] [data.key=value ...]", "evaluate a trained model: loss, accuracy, perplexity",
     cmd_eval},
    {"predict", "RUN or CHECKPOINT [FILE or -, or images and folders of them] [section.key=value ...]",
     "run inference with a trained model: samples or images in, one JSON object per line out", cmd_predict},
    {"data",
     "prepare FILE ... --tokenizer T --out FOLDER [--validation 0.1] [--threads N] [--json] | inspect PATH "
     "[data.key=value ...] [--json]",
     "tokenize text files into shards; inspect a data set", cmd_data},
    {"launch", "-n N [--hosts FILE] -- PROGRAM [ARG ...]", "start any program on N ranks", cmd_launch},
    {"attend", "FOLDER --rank N [--starts N] [--new] -- PROGRAM [ARG ...]",
     "supervise a worker on another host: what 'train --hosts --elastic' runs there", cmd_attend},
    {"store", "[--listen ADDRESS:PORT]", "run the rendezvous store for elastic jobs", cmd_store},
    {"health", "RUN [--within SECONDS]", "liveness probe: exit code 0 while the run makes progress", cmd_health},
    {"k8s", "VALUES.yaml [--kind KIND] [key=value ...]", "write the Kubernetes manifests of a run", cmd_k8s},
    {"bench", "OP[,OP ...] [-n N] [--sizes 4,1k,1M] [comm.key=value ...]", "measure collectives and startup",
     cmd_bench},
    {"info", "[RUN or CHECKPOINT] [--json] [--env]", "describe this build and machine, or a run or checkpoint",
     cmd_info},
    {"ckpt", "verify|list|prune RUN or CHECKPOINT [--json] [--keep N]", "verify, list or remove checkpoints", cmd_ckpt},
    {"ledger", "RUN [--json]", "verify that each sample was used once in each epoch", cmd_ledger},
    {"chaos", "RUN or PID [--seed N] [--for SECONDS] [--faults kill,stop,...]",
     "inject faults into the workers of a run and report the outcome", cmd_chaos},
    {"sim", "OP [--ranks 8,64] [--sizes 1k,1M] [--algorithm NAME] [sim.key=value ...]",
     "predict collectives on a simulated network", cmd_sim},
    {"plan", "CONFIG.yaml [-n N] [--hosts FILE] [--cluster FILE] [--price P] [section.key=value ...]",
     "list the layouts of a run on N workers with their cost, and choose one", cmd_plan},
    {"tune", "SWEEP.yaml [--out FOLDER] [--ask-tell] [--json], or: report FOLDER [--json]", "hyperparameter search",
     cmd_tune},
    {"top", "RUN [--every SECONDS] [--once] [--json]",
     "show a running job: rates, losses, where a step's time goes, its processes", cmd_top},
    {"page", "RUN ... [--address ADDRESS] [--token WORD] [--no-token]",
     "show runs, or the trials of a sweep, on a live web page", cmd_page},
    {"doctor", "[-n N] [--hosts FILE] [--json]", "diagnose this host or cluster and suggest fixes", cmd_doctor},
    {"flight", "FILE ... [--last N] [--json]", "merge flight records and find the first diverging rank", cmd_flight},
    {"trace", "summarize FILE [--json], or: RUN [--steps N]", "summarize a trace, or request one from a run",
     cmd_trace},
    {"convert", "SRC DST [--to hf|trireme] [--dtype f32|bf16|f16] [--shard-size N]",
     "convert a model to or from Hugging Face's format", cmd_convert},
    {"generate", "MODEL [--prompt TEXT] [--max-tokens N] [--temperature T] [--batch FILE]",
     "generate text with a trained model", cmd_generate},
    {"manual", "man FOLDER | options | bash | zsh | fish",
     "write man pages, the reference of options, or shell completion", cmd_manual},
    {NULL, NULL, NULL, NULL},
};

const tri_command *tri_command_of(int (*run)(int argc, char **argv))
{
    const tri_command *command = tri_commands;
    while (command->run != run)
        command++;
    return command;
}

static void print_help(FILE *out)
{
    fputs("trireme " TRI_VERSION
          ": trains neural networks on many processes and machines, with the same bits for any number of workers\n\n",
          out);
    fputs("usage: trireme COMMAND [ARGUMENTS]\n\n", out);
    for (const tri_command *command = tri_commands; command->name; command++)
        fprintf(out, "  %-8s %s\n", command->name, command->does);
    fputs("\n'trireme COMMAND --help' explains a command. A first run:\n\n"
          "  trireme train examples/fashion_mnist.yaml -n 2\n",
          out);
}

static int unknown_command(const char *name)
{
    const char *names[32];
    size_t count = 0;
    for (const tri_command *command = tri_commands; command->name; command++)
        names[count++] = command->name;
    const char *nearest = tri_options_nearest(name, names, count);
    fprintf(stderr, "error: there is no command '%s'\n", name);
    if (nearest)
        fprintf(stderr, "hint: did you mean '%s'?\n", nearest);
    else
        fputs("hint: trireme --help lists them\n", stderr);
    return 2;
}

/* Each thread's own arena would take 64 MiB of addresses, of which a job's limit (ulimit -v) may leave none. Threads
 * here allocate before the first step, so sharing one costs nothing. */
static void arenas_limit(void)
{
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, 2);
#endif
}

/* libgomp's threads spin for milliseconds at a barrier, which costs more than the work where another process has the
 * core of one of them. How long is read from the environment when libgomp is loaded, so the program starts itself
 * again. */
static void spinning_limit(char **argv)
{
#ifdef _OPENMP
    static const char *const computing[] = {"train", "eval", "predict", "generate", "plan"};
    char program[4096];
    ssize_t nbytes = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || nbytes <= 0)
        return;
    program[nbytes] = 0;
    for (size_t i = 0; i < sizeof(computing) / sizeof(computing[0]); i++)
        if (strcmp(computing[i], argv[1]) == 0 && setenv("GOMP_SPINCOUNT", "2000", 1) == 0)
            (void)execv(program, argv); /* if this fails, they spin as before */
#else
    (void)argv;
#endif
}

/* What somebody asked for and did not get is a failure, if none was reported before. train and launch have it in files
 * too: these continue. */
static int output_end(const char *command, int code)
{
    const bool kept = strcmp(command, "train") == 0 || strcmp(command, "launch") == 0;
    if (kept || code != 0 || (fflush(stdout) == 0 && !ferror(stdout)))
        return code;
    fprintf(stderr, "error: what belongs on standard output could not be written there\n");
    return 1;
}

/* Handlers of exit would unload what a thread still runs in. */
static int end(int code)
{
    if (!tri_nccl_is_left_behind())
        return code;
    (void)fflush(NULL);
    _Exit(code);
}

int main(int argc, char **argv)
{
    arenas_limit();
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return output_end("help", 0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("trireme " TRI_VERSION);
        return output_end("--version", 0);
    }
    spinning_limit(argv);
    tri_fs_cut_catch();
    if (tri_say_begin() != TRI_OK)
        return tri_command_fail(TRI_ECONFIG);
    for (const tri_command *command = tri_commands; command->name; command++)
        if (strcmp(command->name, argv[1]) == 0)
            return end(output_end(command->name, command->run(argc - 1, argv + 1)));
    return unknown_command(argv[1]);
}
