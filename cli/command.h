/* SPDX-License-Identifier: Apache-2.0
 *
 * command.h: one row per command of the program; a command gets its own arguments and returns an exit code.
 */
#ifndef TRI_CLI_COMMAND_H
#define TRI_CLI_COMMAND_H

#include "base/options.h"

typedef struct tri_command {
    const char *name;
    const char *usage;                 /* arguments, one line */
    const char *does;                  /* one line */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
} tri_command;

extern const tri_command tri_commands[]; /* name NULL at the end */
/* The row of a command, by its function. */
const tri_command *tri_command_of(int (*run)(int argc, char **argv));

int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_launch(int argc, char **argv);
int cmd_attend(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_health(int argc, char **argv);
int cmd_k8s(int argc, char **argv);
int cmd_manual(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_ckpt(int argc, char **argv);
int cmd_chaos(int argc, char **argv);
int cmd_ledger(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_flight(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_page(int argc, char **argv);

/* A flag of a command: "--hosts FILE". */
typedef struct tri_flag {
    const char *name;     /* "-n" or "--hosts" */
    const char *argument; /* "N"; NULL: a switch */
    const char *help;
    const char **value; /* set to the argument, or to "" for a switch */
} tri_flag;

/* Takes the flags out of argv until `--` or the end; what is left (positional) stays in order in argv, its number in
 * *count.
 * --help prints and returns TRI_ECANCELED; an unknown flag is TRI_ECONFIG with the nearest one. */
tri_status tri_flags_parse(const tri_command *command, const tri_flag *flags, size_t flag_count, int argc, char **argv,
                           int *count);
/* False: nothing was printed, somebody just looks (tri_flags_look()). */
bool tri_flags_help(const tri_command *command, const tri_flag *flags, size_t flag_count);
/* Calls visit with the flags of a command. */
typedef void tri_flags_visitor(void *arg, const tri_command *command, const tri_flag *flags, size_t flag_count);
void tri_flags_look(const tri_command *command, tri_flags_visitor *visit, void *arg);

/* Prints "error: ..." and, where one is known, "hint: ..."; returns the exit code: 2 configuration, 3 lost peer, 128 +
 * signal, 1 else. */
int tri_command_fail(tri_status status);
/* A command whole: reads its flags, hands the words that are left to `run`, and returns the exit code. */
int tri_command_run(const tri_command *command, const tri_flag *flags, size_t flag_count, int argc, char **argv,
                    tri_status (*run)(int count, char **argv));
/* What tri_command_fail() hints at when it knows nothing better; copied. */
void tri_command_hint_set(const char *hint);
/* Whether a word of the command was a URL, so that what it reads is a copy of how things were when it began. */
bool tri_command_reads_copy(void);
/* Reads a whole number, or fails with the flag's name. */
tri_status tri_flag_int(const char *flag, const char *text, int64_t low, int64_t high, int64_t *out);
/* Reads a list of numbers such as 4,1k,1M (k, M, G: powers of 1024) and ranges such as 1k-64M, which doubles, or
 * 1k-64M:x4; at most `limit` of them. */
tri_status tri_flag_sizes(const char *flag, const char *text, int64_t *sizes, size_t limit, int *count);

#endif
