/* SPDX-License-Identifier: Apache-2.0
 *
 * manual.c: `trireme manual`: man pages, docs/config.md and completion for shells, from the tables of commands, flags
 * and options.
 *
 * A command is run with --help while its flags are looked at instead of printed (tri_flags_look()).
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "cli/command.h"
#include "nn/model.h"
#include "train/core/config.h"

#define PAGES_DATE "2026-11-22" /* of this version: pages of two builds are the same */

typedef struct manual {
    tri_string text;
    tri_status status;
} manual;

static void add(manual *at, const char *text)
{
    if (at->status == TRI_OK)
        at->status = tri_string_append(&at->text, text);
}

/* --- man pages --- */

/* roff takes a backslash, a dot at the beginning of a line and a plain minus for its own. */
static void add_roff(manual *at, const char *text)
{
    if (*text == '.' || *text == '\'')
        add(at, "\\&");
    for (; *text; text++) {
        const char one[2] = {*text, 0};
        add(at, *text == '\\' ? "\\e" : *text == '-' ? "\\-" : one);
    }
}

static void page_begin(manual *at, const char *name, const char *section, const char *does)
{
    char title[128];
    snprintf(title, sizeof(title), ".TH %s %s " PAGES_DATE " \"trireme %s\"\n.SH NAME\n", name, section, TRI_VERSION);
    for (char *c = title + 4; *c != ' '; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    add(at, title);
    add_roff(at, name);
    add(at, " \\- ");
    add_roff(at, does);
    add(at, "\n");
}

static void add_item(manual *at, const char *word, const char *argument, const char *help)
{
    add(at, ".TP\n\\fB");
    add_roff(at, word);
    add(at, "\\fR");
    if (argument) {
        add(at, " \\fI");
        add_roff(at, argument);
        add(at, "\\fR");
    }
    add(at, "\n");
    add_roff(at, help);
    add(at, "\n");
}

static void page_flags(void *arg, const tri_command *command, const tri_flag *flags, size_t count)
{
    manual *at = arg;
    char name[40];
    snprintf(name, sizeof(name), "trireme-%s", command->name);
    page_begin(at, name, "1", command->does);
    add(at, ".SH SYNOPSIS\n\\fBtrireme ");
    add(at, command->name);
    add(at, "\\fR ");
    add_roff(at, command->usage);
    add(at, "\n.SH OPTIONS\n");
    for (size_t i = 0; i < count; i++)
        add_item(at, flags[i].name, flags[i].argument, flags[i].help);
    add_item(at, "--help", NULL, "prints what there is to say, and ends");
    add(at, ".SH EXIT STATUS\n0: it went well; 1: it failed; 2: wrong arguments or configuration; 3: a rank was lost; "
            "128 + N: "
            "ended by signal N.\n.SH SEE ALSO\n.BR trireme (1),\n.BR trireme\\-config (5)\n");
}

static void page_program(manual *at)
{
    page_begin(at, "trireme", "1", "trains neural networks on many processes and machines");
    add(at, ".SH SYNOPSIS\n\\fBtrireme\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\nThe same weights to "
            "the bit for any "
            "number of workers, layout and threads, and after any failure.\n.SH COMMANDS\n");
    for (const tri_command *command = tri_commands; command->name; command++)
        add_item(at, command->name, command->usage, command->does);
    add(at, ".SH SEE ALSO\n.BR trireme\\-train (1),\n.BR trireme\\-config (5)\n");
}

#define LARGE 1e4 /* an upper bound that nobody comes to is not shown */

/* Nothing: 0 or more, which is what a number is if nothing else is said of it. */
static void bounds_print(const tri_option *row, tri_string *out)
{
    tri_string bounds = {0};
    (void)tri_option_bounds_print(row, &bounds);
    if (bounds.nbytes > 0 && row->low > -LARGE && row->high < LARGE)
        (void)tri_string_appendf(out, " %g..%g", row->low, row->high);
    else if (bounds.nbytes > 0 && row->low != 0)
        (void)tri_string_appendf(out, " >=%g", row->low);
    else if (bounds.nbytes == 0 && row->type == TRI_OPTION_REAL)
        (void)tri_string_append(out, ", also negative");
    tri_string_fini(&bounds);
}

/* Types, words and bounds; words between `quote`s. */
static void allowed_print(const tri_option *row, const char *quote, tri_string *out)
{
    static const char *const types[] = {
        [TRI_OPTION_BOOL] = "boolean", [TRI_OPTION_INT] = "integer",   [TRI_OPTION_REAL] = "number",
        [TRI_OPTION_ENUM] = "",        [TRI_OPTION_COUNT] = "integer", [TRI_OPTION_NAME] = "text",
        [TRI_OPTION_TEXT] = "text",    [TRI_OPTION_PATH] = "path",     [TRI_OPTION_LIST] = "list",
    };
    for (int i = 0; row->words && row->words[i]; i++)
        (void)tri_string_appendf(out, "%s%s%s%s", i > 0 ? ", " : "", quote, row->words[i], quote);
    (void)tri_string_appendf(out, "%s%s", row->words && types[row->type][0] ? ", " : "", types[row->type]);
    bounds_print(row, out);
}

static void page_config(manual *at)
{
    char name[128];
    page_begin(at, "trireme-config", "5", "configuration of a run");
    add(at, ".SH DESCRIPTION\nA YAML file of sections; each option can also be given as section.key=value behind the "
            "file.\n");
    for (const tri_config_section *section = tri_config_sections; section->table; section++) {
        add(at, ".SS ");
        add_roff(at, section->table->section);
        add(at, "\n");
        for (size_t i = 0; i < section->table->count; i++) {
            const tri_option *row = &section->table->rows[i];
            snprintf(name, sizeof(name), "%s.%s", section->table->section, row->field);
            add_item(at, name, row->fallback[0] ? row->fallback : "(empty)", row->help);
            tri_string allowed = {0};
            add(at, ".br\nValues: ");
            allowed_print(row, "", &allowed);
            add_roff(at, tri_string_text(&allowed));
            add(at, row->applies ? ". Applies if " : "\n");
            if (row->applies)
                add_roff(at, row->applies);
            add(at, row->applies ? "\n" : "");
            tri_string_fini(&allowed);
        }
    }
    add(at, ".SH SEE ALSO\n.BR trireme\\-train (1)\n");
}

/* --- docs/config.md --- */

#define PAGE_WIDTH 120

/* A line must not begin with what Markdown reads as a list, a heading, a quotation or a table. */
static bool may_begin_line(const char *word)
{
    return !strchr("-+*#>=|", word[0]) && !isdigit((unsigned char)word[0]);
}

/* Adds a text in lines of at most PAGE_WIDTH characters; all but the first begin with `indent` blanks. */
static void add_wrapped(manual *at, const char *text, int indent)
{
    char line[PAGE_WIDTH + 2];
    for (int first = 0; *text; first = indent) {
        const int room = PAGE_WIDTH - first;
        int length = (int)strlen(text);
        if (length > room) {
            for (length = room; length > 0 && !(text[length] == ' ' && may_begin_line(text + length + 1)); length--)
                ;
            length = length > 0 ? length : (int)strcspn(text, " ");
        }
        snprintf(line, sizeof(line), "%*s%.*s", first, "", length, text);
        add(at, line);
        add(at, "\n");
        text += length + (text[length] == ' ');
    }
}

/* Appends a text of which Markdown takes nothing for its own. */
static void escape(const char *text, tri_string *out)
{
    for (; *text; text++)
        (void)tri_string_appendf(out, "%s%c", strchr("*<", *text) ? "\\" : "", *text);
}

/* Whether each option of a section decides the bits. */
static bool all_decide(const tri_config_section *section)
{
    size_t i = 0;
    while (i < section->table->count && section->row_decides(section->table->rows[i].field))
        i++;
    return i == section->table->count;
}

/* - `section.field` (`default`; values; bits): help */
static void add_row(manual *at, const tri_config_section *section, const tri_option *row)
{
    const bool marked = section->row_decides(row->field) && !all_decide(section);
    tri_string item = {0};
    (void)tri_string_appendf(&item, "- `%s.%s` (", section->table->section, row->field);
    (void)tri_string_appendf(&item, row->fallback[0] ? "`%s`; " : "empty%s; ", row->fallback);
    allowed_print(row, "`", &item);
    (void)tri_string_append(&item, marked ? "; *bits*): " : "): ");
    escape(row->help, &item);
    add_wrapped(at, tri_string_text(&item), 2);
    tri_string_fini(&item);
}

static const char options_intro[] =
    "# Options\n\n"
    "`trireme manual options` writes this page. A run is configured by a YAML file of sections; the command line takes "
    "the\n"
    "same options as `section.option=value`, which override the file:\n\n"
    "    trireme train examples/fashion_mnist.yaml -n 2 optim.lr=0.02 train.epochs=1\n\n"
    "- `--dry-run` prints the resolved configuration with the origin of each value; a run writes it to `config.yaml`.\n"
    "- YAML aliases, tags and several documents in a file are refused.\n"
    "- Integers take the suffixes k, M, G (powers of 1000); numbers are 0 or more unless stated. Booleans: true, "
    "false,\n"
    "  yes, no, on, off.\n\n"
    "In brackets: default and values. *bits*: the value decides the weights ([bits.md](bits.md)), and each checkpoint\n"
    "stores the hash of these values. `train.isa` and `train.device` decide them too, by the kernels that a "
    "checkpoint\n"
    "names. *If* `a|b` (a or b): in other runs these options have no effect; on their command line they are warned\n"
    "about.\n\n"
    "## model\n\n"
    "The name of a model with fields and their defaults, or a list of layers; `from`, `freeze`, `reinit` and "
    "`smoothing`\n"
    "can be given with each ([models.md](models.md)).\n\n";

/* One item for each line of the list of models. */
static void add_models(manual *at)
{
    tri_string models = {0};
    if (at->status == TRI_OK)
        at->status = tri_models_help(&models);
    for (const char *line = tri_string_text(&models); *line;) {
        const int nbytes = (int)strcspn(line, "\n"), word = (int)strcspn(line + 2, " ");
        const int help = 2 + word + (int)strspn(line + 2 + word, " ");
        tri_string item = {0};
        (void)tri_string_appendf(&item, "- `%.*s`: %.*s", word, line + 2, nbytes - help, line + help);
        add_wrapped(at, tri_string_text(&item), 2);
        tri_string_fini(&item);
        line += nbytes + (line[nbytes] == '\n');
    }
    tri_string_fini(&models);
}

/* What a table cannot say; behind the table of its section. */
static const struct {
    const char *section, *text;
} options_notes[] = {
    {"optim",
     "With S steps, W warm-up steps and the lowest rate m (a fraction of `optim.lr`), step s from 0 uses this fraction "
     "of\n"
     "`optim.lr`: (s + 1) / W if s < W. Then p = (s - B) / (S - B), at most 1, where B = W, or with wsd B = max(W, S "
     "-\n"
     "round(`optim.decay_fraction` S)), and the fraction is 1 before B; linear: 1 - (1 - m) p; cosine:\n"
     "m + (1 - m) (1 + cos(pi p)) / 2; 1-sqrt: 1 - (1 - m) sqrt(p). `--dry-run` draws the schedule.\n\n"
     "`optim.groups` is a list of rules, each for the parameters whose names match its glob (`*`: any characters, "
     "`?`:\n"
     "one character):\n\n"
     "    optim:\n"
     "      weight_decay: 0.1\n"
     "      decay: weights\n"
     "      groups:\n"
     "        - {match: \"embed.*\", lr_scale: 0.5}\n"
     "        - {match: \"*.bias\", weight_decay: 0, lr_scale: 0.1}\n\n"
     "`lr_scale` multiplies the learning rate of each step, `weight_decay` replaces `optim.weight_decay`. A rule that\n"
     "decides for no parameter is an error. `--dry-run` counts the parameters of each rule.\n"},
    {"comm", "Programs without a configuration (those that call `tri_comm_join()`, PyTorch with the backend `trireme`, "
             "`trireme\n"
             "bench` and `trireme doctor`) read these options from the environment of the ranks, separated by blanks. "
             "`trireme\n"
             "launch` passes them on, to other hosts too; arguments of `trireme bench` override them:\n\n"
             "    TRIREME_COMM='comm.encrypt=on comm.interface=eth0' trireme launch -n 4 -- ./a.out\n"
             "    trireme bench all_reduce -n 2 --sizes 1k,1M comm.transport=tcp comm.encrypt=on\n"},
};

static void add_notes(manual *at, const char *section)
{
    for (size_t i = 0; i < TRI_COUNT_OF(options_notes); i++) {
        if (strcmp(options_notes[i].section, section) != 0)
            continue;
        add(at, "\n");
        add(at, options_notes[i].text);
    }
}

static bool applies_so(const tri_option *row, const char *applies)
{
    return applies ? row->applies && strcmp(row->applies, applies) == 0 : !row->applies;
}

/* The first option that applies so. */
static size_t row_of(const tri_config_section *section, const char *applies)
{
    size_t i = 0;
    while (!applies_so(&section->table->rows[i], applies))
        i++;
    return i;
}

static void add_rows(manual *at, const tri_config_section *section, const char *applies)
{
    bool any = false;
    for (size_t i = 0; i < section->table->count; i++) {
        if (!applies_so(&section->table->rows[i], applies))
            continue;
        add(at, any ? "" : "\n");
        any = true;
        add_row(at, section, &section->table->rows[i]);
    }
}

/* Options that apply in every run, then those of each condition. */
static void add_table(manual *at, const tri_config_section *section)
{
    const char first[2] = {(char)toupper(section->table->help[0]), 0};
    add(at, first);
    add(at, section->table->help + 1);
    add(at, all_decide(section) ? ". All decide the bits.\n" : ".\n");
    add_rows(at, section, NULL);
    for (size_t i = 0; i < section->table->count; i++) {
        const tri_option *row = &section->table->rows[i];
        if (!row->applies || row_of(section, row->applies) < i)
            continue;
        add(at, "\n*If* `");
        add(at, row->applies);
        add(at, "`:\n");
        add_rows(at, section, row->applies);
    }
}

static void options_write(manual *at)
{
    add(at, options_intro);
    add_models(at);
    for (const tri_config_section *section = tri_config_sections; section->table; section++) {
        const char *name = section->table->section;
        const bool begins = section == tri_config_sections || strcmp(name, section[-1].table->section) != 0;
        add(at, begins ? "\n## " : "");
        add(at, begins ? name : "");
        add(at, begins ? "\n\n" : "\n");
        add_table(at, section);
        if (!section[1].table || strcmp(name, section[1].table->section) != 0)
            add_notes(at, name);
    }
}

static tri_status page_write(manual *at, const char *folder, const char *file)
{
    char path[1300];
    snprintf(path, sizeof(path), "%.1200s/%s", folder, file);
    if (at->status == TRI_OK)
        at->status = tri_fs_write_atomic(path, tri_string_text(&at->text), at->text.nbytes);
    tri_string_clear(&at->text);
    return at->status;
}

static tri_status pages_write(const char *folder)
{
    manual at = {.status = tri_fs_make_folder(folder)};
    char file[64];
    page_program(&at);
    tri_status status = page_write(&at, folder, "trireme.1");
    for (const tri_command *command = tri_commands; command->name && status == TRI_OK; command++) {
        tri_flags_look(command, page_flags, &at);
        snprintf(file, sizeof(file), "trireme-%s.1", command->name);
        status = page_write(&at, folder, file);
    }
    if (status == TRI_OK) {
        page_config(&at);
        status = page_write(&at, folder, "trireme-config.5");
    }
    tri_string_fini(&at.text);
    return status;
}

/* --- completion --- */

/* Words of a command for bash and zsh: its flags, and where there is a configuration section.key= . */
static void words_add(void *arg, const tri_command *command, const tri_flag *flags, size_t count)
{
    manual *at = arg;
    const bool configured = strstr(command->usage, "section.key") != NULL;
    add(at, "    ");
    add(at, command->name);
    add(at, ") echo '--help");
    for (size_t i = 0; i < count; i++) {
        add(at, " ");
        add(at, flags[i].name);
    }
    for (const tri_config_section *section = tri_config_sections; configured && section->table; section++) {
        for (size_t i = 0; i < section->table->count; i++) {
            add(at, " ");
            add(at, section->table->section);
            add(at, ".");
            add(at, section->table->rows[i].field);
            add(at, "=");
        }
    }
    add(at, "' ;;\n");
}

static void words_function(manual *at)
{
    add(at, "_trireme_words() {\n    case $1 in\n    '') echo '--help --version");
    for (const tri_command *command = tri_commands; command->name; command++) {
        add(at, " ");
        add(at, command->name);
    }
    add(at, "' ;;\n");
    for (const tri_command *command = tri_commands; command->name; command++)
        tri_flags_look(command, words_add, at);
    add(at, "    esac\n}\n");
}

static void bash_write(manual *at)
{
    add(at, "# bash completion for trireme\n");
    words_function(at);
    add(at, "_trireme() {\n"
            "    local word=${COMP_WORDS[COMP_CWORD]} command=\n"
            "    [ \"$COMP_CWORD\" -gt 1 ] && command=${COMP_WORDS[1]}\n"
            "    COMPREPLY=($(compgen -W \"$(_trireme_words \"$command\")\" -- \"$word\"))\n"
            "    if [ ${#COMPREPLY[@]} -eq 0 ]; then\n"
            "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
            "    elif [[ ${COMPREPLY[0]} == *= ]]; then\n"
            "        compopt -o nospace 2>/dev/null\n"
            "    fi\n"
            "}\n"
            "complete -o filenames -F _trireme trireme\n");
}

static void zsh_write(manual *at)
{
    add(at, "#compdef trireme\n");
    words_function(at);
    add(at, "_trireme() {\n"
            "    local command=\n"
            "    (( CURRENT > 2 )) && command=${words[2]}\n"
            "    local -a found=(${=$(_trireme_words \"$command\")})\n"
            "    compadd -S '' -- ${(M)found:#*=}\n"
            "    compadd -- ${found:#*=}\n"
            "    (( CURRENT > 2 )) && _files\n"
            "}\n"
            "if [[ $funcstack[1] == _trireme ]]; then _trireme; else compdef _trireme trireme; fi\n");
}

/* In single quotes. */
static void add_quoted(manual *at, const char *text)
{
    add(at, "'");
    for (; *text; text++) {
        const char one[2] = {*text, 0};
        add(at, *text == '\'' ? "\\'" : *text == '\\' ? "\\\\" : one);
    }
    add(at, "'");
}

static void fish_flags(void *arg, const tri_command *command, const tri_flag *flags, size_t count)
{
    manual *at = arg;
    for (size_t i = 0; i < count; i++) {
        const bool is_long = strncmp(flags[i].name, "--", 2) == 0;
        add(at, "complete -c trireme -n '__fish_seen_subcommand_from ");
        add(at, command->name);
        add(at, is_long ? "' -l " : "' -s ");
        add(at, flags[i].name + 1 + is_long);
        add(at, flags[i].argument ? " -r -d " : " -d ");
        add_quoted(at, flags[i].help);
        add(at, "\n");
    }
}

static void fish_write(manual *at)
{
    add(at, "# fish completion for trireme\n");
    for (const tri_command *command = tri_commands; command->name; command++) {
        add(at, "complete -c trireme -n __fish_use_subcommand -f -a ");
        add(at, command->name);
        add(at, " -d ");
        add_quoted(at, command->does);
        add(at, "\n");
    }
    for (const tri_command *command = tri_commands; command->name; command++)
        tri_flags_look(command, fish_flags, at);
}

static const struct {
    const char *name;
    void (*write)(manual *at);
} texts[] = {{"options", options_write}, {"bash", bash_write}, {"zsh", zsh_write}, {"fish", fish_write}};

static tri_status text_write(const char *name)
{
    for (size_t i = 0; i < TRI_COUNT_OF(texts); i++) {
        if (strcmp(texts[i].name, name) != 0)
            continue;
        manual at = {.status = TRI_OK};
        texts[i].write(&at);
        if (at.status == TRI_OK)
            fputs(tri_string_text(&at.text), stdout);
        tri_string_fini(&at.text);
        return at.status;
    }
    return tri_fail(TRI_ECONFIG, "want man FOLDER, options, bash, zsh or fish, got '%.40s'", name);
}

static tri_status run(int count, char **argv)
{
    const bool man = count == 2 && strcmp(argv[0], "man") == 0;
    if (!man && count != 1)
        return tri_fail(TRI_ECONFIG, "want man FOLDER, options, bash, zsh or fish, got %d words", count);
    return man ? pages_write(argv[1]) : text_write(argv[0]);
}

int cmd_manual(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_manual), NULL, 0, argc, argv, run);
}
