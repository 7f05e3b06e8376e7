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

const tri_command tri_commands[] = {
    {"train", "CONFIG.yaml [-n N] [section.key=value ...]", "trains a model on N workers", cmd_train},
    {"eval", "RUN or CHECKPOINT [-n N] [data.key=value ...]",
     "tells loss and accuracy (of tokens: perplexity) of a trained model", cmd_eval},
    {"predict", "RUN or CHECKPOINT [FILE or -, or images and folders of them] [section.key=value ...]",
     "runs inference with a trained model: samples or image files in, one JSON object a line out", cmd_predict},
    {"data",
     "prepare FILE ... --tokenizer T --out FOLDER [--validation 0.1] [--threads N] [--json] | inspect PATH "
     "[data.key=value ...] [--json]",
     "turns text files into shards of tokens, in parallel; prints what training makes of a file or a folder", cmd_data},
    {"launch", "-n N [--hosts FILE] -- PROGRAM [ARG ...]", "starts any program on N ranks", cmd_launch},
    {"attend", "FOLDER --rank N [--starts N] [--new] -- PROGRAM [ARG ...]",
     "stays with a worker on another host: what 'train --hosts --elastic' runs there", cmd_attend},
    {"store", "[--listen ADDRESS:PORT]",
     "serves the meeting point of workers that come and go (--elastic) under somebody else, such as Kubernetes",
     cmd_store},
    {"health", "RUN [--within SECONDS]", "tells by its exit code whether a run makes steps: for probes", cmd_health},
    {"k8s", "VALUES.yaml [--kind KIND] [key=value ...]", "writes the manifests of a run on Kubernetes", cmd_k8s},
    {"bench", "OP[,OP ...] [-n N] [--sizes 4,1k,1M] [comm.key=value ...]", "measures collectives and start-up",
     cmd_bench},
    {"info", "[RUN or CHECKPOINT] [--json] [--env]",
     "tells what this build and this machine have, or what a folder holds, checked", cmd_info},
    {"ckpt", "verify|list|prune RUN or CHECKPOINT [--json] [--keep N]",
     "checks every byte of checkpoints, lists them, removes old ones", cmd_ckpt},
    {"ledger", "RUN [--json]", "proves that each sample was used once in each epoch, or names those that were not",
     cmd_ledger},
    {"chaos", "RUN or PID [--seed N] [--for SECONDS] [--faults kill,stop,...]",
     "strikes the workers of a run with faults, by a schedule, and tells what the run makes of them", cmd_chaos},
    {"sim", "OP [--ranks 8,64] [--sizes 1k,1M] [--algorithm NAME] [sim.key=value ...]",
     "predicts collectives on a simulated network, and checks them", cmd_sim},
    {"plan", "CONFIG.yaml [-n N] [--hosts FILE] [--cluster FILE] [--price P] [section.key=value ...]",
     "tells which layouts of a run there are on N workers, what each takes, and which to choose", cmd_plan},
    {"tune", "SWEEP.yaml [--out FOLDER] [--ask-tell] [--json], or: report FOLDER [--json]",
     "searches good options by trials of a configuration, side by side", cmd_tune},
    {"top", "RUN [--every SECONDS] [--once] [--json]",
     "shows a run as it goes on: rates, losses, where a step's time goes, its processes", cmd_top},
    {"page", "RUN ... [--address ADDRESS] [--token WORD] [--no-token]",
     "shows runs, or the trials of a sweep, as a web page that goes on with them", cmd_page},
    {"doctor", "[-n N] [--hosts FILE] [--json]",
     "tells what is wrong with this machine or cluster, and the command that mends it", cmd_doctor},
    {"flight", "FILE ... [--last N] [--json]",
     "merges the records that the ranks of a failed job left: who parted, where", cmd_flight},
    {"trace", "summarize FILE [--json], or: RUN [--steps N]",
     "tells of a trace where the time went, who set the pace, and what to change; or asks a run for one", cmd_trace},
    {"convert", "SRC DST [--to hf|trireme] [--dtype f32|bf16|f16] [--shard-size N]",
     "writes a model in Hugging Face's form or in ours: config.json, safetensors", cmd_convert},
    {"generate", "MODEL [--prompt TEXT] [--max-tokens N] [--temperature T] [--batch FILE]",
     "writes text with a trained model, from a prompt or a file of prompts", cmd_generate},
    {"manual", "man FOLDER | bash | zsh | fish", "writes man pages, or completion for a shell", cmd_manual},
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

/* What somebody asked for and did not get is a failure, if none was told before. train and launch have it in files too:
 * these go on. */
static int output_end(const char *command, int code)
{
    const bool kept = strcmp(command, "train") == 0 || strcmp(command, "launch") == 0;
    if (kept || code != 0 || (fflush(stdout) == 0 && !ferror(stdout)))
        return code;
    fprintf(stderr, "error: what belongs on standard output could not be written there\n");
    return 1;
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
            return output_end(command->name, command->run(argc - 1, argv + 1));
    return unknown_command(argv[1]);
}
