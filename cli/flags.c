/* SPDX-License-Identifier: Apache-2.0
 *
 * flags.c: arguments of commands from a table, help from the same table, and how a command ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/path.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "storage/storage.h"

static tri_flags_visitor *visitor; /* who looks at the flags of a command; NULL: nobody */
static void *visitor_arg;

void tri_flags_look(const tri_command *command, tri_flags_visitor *visit, void *arg)
{
    char help[] = "--help", *argv[] = {(char *)(uintptr_t)command->name, help, NULL};
    visitor = visit;
    visitor_arg = arg;
    /* What some commands have to say beside their flags is not asked for. */
    int before = dup(1), nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fflush(stdout);
    if (nothing >= 0)
        dup2(nothing, 1);
    command->run(2, argv);
    fflush(stdout);
    if (before >= 0)
        dup2(before, 1);
    close(nothing);
    close(before);
    visitor = NULL;
}

bool tri_flags_help(const tri_command *command, const tri_flag *flags, size_t flag_count)
{
    if (visitor) {
        visitor(visitor_arg, command, flags, flag_count);
        return false;
    }
    printf("usage: trireme %s %s\n\n%s\n\n", command->name, command->usage, command->does);
    for (size_t i = 0; i < flag_count; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s %s", flags[i].name, flags[i].argument ? flags[i].argument : "");
        printf("  %-22s %s\n", left, flags[i].help);
    }
    printf("  %-22s %s\n", "--help", "this text");
    return true;
}

static tri_status unknown_flag(const char *name, const tri_flag *flags, size_t flag_count)
{
    const char *names[64] = {"--help"};
    size_t count = 1;
    for (size_t i = 0; i < flag_count && count < TRI_COUNT_OF(names); i++)
        names[count++] = flags[i].name;
    const char *nearest = tri_options_nearest(name, names, count);
    if (nearest)
        return tri_fail(TRI_ECONFIG, "there is no flag '%s'; did you mean '%s'?", name, nearest);
    return tri_fail(TRI_ECONFIG, "there is no flag '%s' (--help lists them)", name);
}

/* "--name=value" and "--name value" both name the flag; returns it, with the value after '=' or NULL. */
static const tri_flag *flag_find(const char *text, const tri_flag *flags, size_t flag_count, const char **value)
{
    for (size_t i = 0; i < flag_count; i++) {
        size_t length = strlen(flags[i].name);
        if (strncmp(text, flags[i].name, length) != 0 || (text[length] && text[length] != '='))
            continue;
        *value = text[length] ? text + length + 1 : NULL;
        return &flags[i];
    }
    return NULL;
}

static const tri_command *given_command; /* whose flags were read last */

static const char local_hint[] = "give the path of a mounted file system, or copy the files here first";

/* What a command reads and writes is in file systems. */
static tri_status path_check(const char *name, const char *path)
{
    tri_status status = tri_path_check(path);
    return status != TRI_OK && name ? tri_fail_context(status, "%s", name) : status;
}

static tri_status value_check(const tri_flag *flag)
{
    static const char *const paths[] = {"FILE", "FILE[:FROM-TO]", "FOLDER", "RUN", "T"};
    const bool is_run = strcmp(flag->name, "--out") == 0 || strcmp(flag->name, "--resume") == 0;
    if (is_run && strcmp(given_command->name, "train") == 0)
        return tri_fail_context(tri_place_check(*flag->value), "%s", flag->name);
    for (size_t i = 0; flag->argument && i < TRI_COUNT_OF(paths); i++)
        if (strcmp(flag->argument, paths[i]) == 0)
            return path_check(flag->name, *flag->value);
    return TRI_OK;
}

static bool reads_copy;

bool tri_command_reads_copy(void)
{
    return reads_copy;
}

/* Commands that only read: words that are URLs become local copies. */
static tri_status word_settle(const tri_command *command, int before, char **argv, char **word)
{
    static const char *const readers[] = {"eval", "predict", "generate", "info", "ckpt", "data", "convert"};
    const bool is_ckpt = strcmp(command->name, "ckpt") == 0;
    bool reads = false;
    char *path = NULL;
    for (size_t i = 0; i < TRI_COUNT_OF(readers); i++)
        reads = reads || strcmp(command->name, readers[i]) == 0;
    if (is_ckpt)
        reads = before == 1 && strcmp(argv[0], "prune") != 0;
    else if (strcmp(command->name, "convert") == 0)
        reads = before == 0;
    else if (strcmp(command->name, "data") == 0)
        reads = before == 1 && strcmp(argv[0], "inspect") == 0;
    if (!reads || !tri_path_is_url(*word))
        return reads ? tri_place_check(*word) : path_check(NULL, *word);
    TRI_TRY(tri_storage_local_run(*word, !is_ckpt, &path));
    reads_copy = true;
    *word = path; /* as long as the command runs */
    return TRI_OK;
}

tri_status tri_flags_parse(const tri_command *command, const tri_flag *flags, size_t flag_count, int argc, char **argv,
                           int *count)
{
    given_command = command;
    *count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            for (i++; i < argc; i++)
                argv[(*count)++] = argv[i];
            return TRI_OK;
        }
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            tri_flags_help(command, flags, flag_count);
            return TRI_ECANCELED;
        }
        if (argv[i][0] != '-' || argv[i][1] == 0) {
            if (strcmp(command->name, "launch") != 0) /* its words are another program's */
                TRI_TRY(word_settle(command, *count, argv, &argv[i]));
            argv[(*count)++] = argv[i];
            continue;
        }
        const char *value;
        const tri_flag *flag = flag_find(argv[i], flags, flag_count, &value);
        if (!flag)
            return unknown_flag(argv[i], flags, flag_count);
        if (flag->argument && !value && i + 1 == argc)
            return tri_fail(TRI_ECONFIG, "%s needs %s after it", flag->name, flag->argument);
        if (!flag->argument && value)
            return tri_fail(TRI_ECONFIG, "%s takes no value, got '%s'", flag->name, value);
        *flag->value = !flag->argument ? "" : value ? value : argv[++i];
        TRI_TRY(value_check(flag));
    }
    return TRI_OK;
}

static char hint_given[160];

void tri_command_hint_set(const char *hint)
{
    snprintf(hint_given, sizeof(hint_given), "%s", hint);
}

/* A way out, where the message itself does not name one. */
static const char *hint_of(tri_status status, const char *message)
{
    if (strstr(message, "did you mean") || strstr(message, "apt-get") || strstr(message, "--help"))
        return NULL;
    static char help[96];
    if (strstr(message, "TRIREME_TOKEN"))
        return "export TRIREME_TOKEN=$(openssl rand -hex 32) once, the same text for all processes of the job "
               "(docs/clusters.md)";
    const bool trains = given_command && strcmp(given_command->name, "train") == 0;
    switch (status) {
    case TRI_ECONFIG:
        if (hint_given[0])
            return hint_given;
        if (strstr(message, "got the URL scheme"))
            return local_hint;
        if (strstr(message, "s3://") || strstr(message, "AWS_") || strstr(message, "HTTP "))
            return NULL; /* no option would help */
        if (strstr(message, "cannot open for reading") || strstr(message, "No such file"))
            return NULL;
        snprintf(help, sizeof(help), "'trireme %s --help' lists every option%s",
                 given_command ? given_command->name : "COMMAND", trains ? " with its bounds" : "");
        return help;
    case TRI_EPEER:
    case TRI_ETIMEOUT:
        if (!trains || hint_given[0])
            return hint_given[0] ? hint_given : NULL;
        return "log/rank-N.log in the run folder has what each rank said; --resume continues from the newest "
               "checkpoint";
    case TRI_ENOMEM:
        if (!trains)
            return hint_given[0] ? hint_given : NULL;
        return "--dry-run -n N says what each of N workers needs; less with parallel.sync=zero3 or parallel.pipeline "
               "on more "
               "of them, train.shards_at_once=1, model.checkpoint=true (docs/parallel.md)";
    case TRI_EMISMATCH:
        return "all ranks must run the same program with the same configuration";
    default:
        return hint_given[0] ? hint_given : NULL;
    }
}

static void say(const char *what, const char *text)
{
    char line[TRI_ERROR_NBYTES + 32];
    snprintf(line, sizeof(line), "%s: %s", what, text);
    tri_log_tell(stderr, strcmp(what, "error") == 0 ? TRI_LOG_ERROR : TRI_LOG_INFO, line);
}

int tri_command_fail(tri_status status)
{
    const char *hint = hint_of(status, tri_last_error());
    fflush(stdout);
    say(status == TRI_ECANCELED ? "trireme" : "error", tri_last_error()); /* who was stopped has not failed */
    if (hint)
        say("hint", hint);
    switch (status) {
    case TRI_ECONFIG:
    case TRI_EINVAL:
        return 2;
    case TRI_EPEER:
    case TRI_ETIMEOUT:
        return 3;
    case TRI_ECANCELED:
        return 128 + (tri_stop_signal() ? tri_stop_signal() : 15);
    default:
        return 1;
    }
}

tri_status tri_flag_int(const char *flag, const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        return tri_fail(TRI_ECONFIG, "%s: want a whole number from %lld to %lld, got '%s'", flag, (long long)low,
                        (long long)high, text);
    *out = value;
    return TRI_OK;
}

#define SIZE_MOST 1e11

/* "64k" at *text, which is moved behind it; negative when there is none. */
static double read_size(const char **text)
{
    char *end;
    double value = strtod(*text, &end);
    if (end == *text || !(value >= 0))
        return -1;
    double unit = *end == 'k' || *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1;
    *text = end + (unit > 1);
    return value * unit <= SIZE_MOST ? value * unit : -1;
}

/* "4", "1k-64M" or "1k-64M:x4" at *text, which is moved behind it. */
static bool read_range(const char **text, int64_t *sizes, size_t limit, int *count)
{
    double first = read_size(text), last = first, factor = 2;
    if (**text == '-') {
        (*text)++;
        last = read_size(text);
        if (strncmp(*text, ":x", 2) == 0) {
            char *end;
            factor = strtod(*text + 2, &end);
            *text = end;
        }
        if (!(first >= 1) || last < first)
            return false;
    }
    if (first < 0 || (**text && **text != ',') || !(factor > 1))
        return false;
    for (double size = first; size <= last; size = ceil(size * factor)) {
        if (*count == (int)limit)
            return false;
        sizes[(*count)++] = (int64_t)size;
        if (size >= last)
            break;
    }
    return true;
}

tri_status tri_flag_sizes(const char *flag, const char *text, int64_t *sizes, size_t limit, int *count)
{
    *count = 0;
    while (*text) {
        const char *word = text;
        if (!read_range(&text, sizes, limit, count))
            return tri_fail(TRI_ECONFIG,
                            "%s: want a list such as 4,1k,1M, with ranges such as 1k-64M or 1k-64M:x4 (at most %zu "
                            "numbers up to 1e11), got '%s'",
                            flag, limit, word);
        text += *text == ',';
    }
    return TRI_OK;
}

int tri_command_run(const tri_command *command, const tri_flag *flags, size_t flag_count, int argc, char **argv,
                    tri_status (*run)(int count, char **argv))
{
    int count = 0;
    tri_status status = tri_flags_parse(command, flags, flag_count, argc, argv, &count);
    if (status == TRI_ECANCELED) /* help was asked for, and given */
        return 0;
    if (status == TRI_OK)
        status = run(count, argv);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
