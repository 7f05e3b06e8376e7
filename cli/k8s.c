/* SPDX-License-Identifier: Apache-2.0
 *
 * k8s.c: `trireme k8s`: a file of values to the manifests of a run, by the blocks of k8s_kinds.c.
 */
#include "cli/k8s.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/yaml.h"
#include "cli/command.h"

#define FILE_LIMIT (1u << 20) /* as of a ConfigMap */
#define PROBE_S    30         /* between two looks of the startup probe, as in the pod's block */

#define TRI_OPTION_STRUCT tri_k8s_config
static const tri_option rows[] = {TRI_K8S_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
static const tri_option_table table = TRI_OPTION_TABLE("k8s", tri_k8s_config, rows, "values of the manifests");

static const char *kind_given;
static const tri_flag flags[] = {
    {"--kind", "KIND", "instead of the values' kind: job, elastic, jobset, trainjob, pytorchjob, tfjob, mpijob",
     &kind_given},
};

typedef struct value {
    const char *name;
    char *text;
} value;

typedef struct manifest {
    tri_k8s_config config;
    const tri_k8s_kind *kind;
    tri_arena arena;
    tri_yaml *values;
    tri_vector known; /* value */
} manifest;

/* Takes text. */
static tri_status known_take(manifest *at, const char *name, char *text)
{
    value item = {name, text};
    if (text && tri_vector_push(&at->known, &item))
        return TRI_OK;
    tri_free(text);
    return TRI_ENOMEM;
}

static const char *known_find(const manifest *at, const char *name, size_t nbytes)
{
    for (size_t i = 0; i < at->known.count; i++) {
        const value *item = tri_vector_at(&at->known, i);
        if (strlen(item->name) == nbytes && memcmp(item->name, name, nbytes) == 0)
            return item->text;
    }
    return NULL;
}

/* --- text --- */

static tri_status inline_append(const manifest *at, const char *line, size_t nbytes, tri_string *out)
{
    for (const char *end = line + nbytes; line < end;) {
        const char *open = memmem(line, (size_t)(end - line), "${", 2), *close = open ? strchr(open, '}') : NULL;
        if (!open)
            return tri_string_append_bytes(out, line, (size_t)(end - line));
        TRI_TRY(tri_string_append_bytes(out, line, (size_t)(open - line)));
        const char *text = known_find(at, open + 2, (size_t)(close - open - 2));
        TRI_ASSERT(text); /* the blocks name nothing else */
        TRI_TRY(inline_append(at, text, strlen(text), out));
        line = close + 1;
    }
    return TRI_OK;
}

static tri_status block_append(const manifest *at, const char *text, size_t indent, bool as_it_is, tri_string *out);

static const char *block_find(const manifest *at, const char *name, size_t nbytes)
{
    const char *text = known_find(at, name, nbytes);
    for (const tri_k8s_block *block = tri_k8s_blocks; block->name && !text; block++)
        if (strlen(block->name) == nbytes && memcmp(block->name, name, nbytes) == 0)
            text = block->text;
    TRI_ASSERT(text);
    return text;
}

static tri_status line_append(const manifest *at, const char *line, size_t nbytes, size_t indent, bool as_it_is,
                              tri_string *out)
{
    size_t blank = strspn(line, " ");
    if (!as_it_is && blank < nbytes && (line[blank] == '@' || line[blank] == '%'))
        return block_append(at, block_find(at, line + blank + 1, nbytes - blank - 1), indent + blank,
                            line[blank] == '%', out);
    if (nbytes > 0) /* an empty line has no blanks at its end */
        TRI_TRY(tri_string_appendf(out, "%*s", (int)indent, ""));
    TRI_TRY(as_it_is ? tri_string_append_bytes(out, line, nbytes) : inline_append(at, line, nbytes, out));
    return tri_string_append(out, "\n");
}

static tri_status block_append(const manifest *at, const char *text, size_t indent, bool as_it_is, tri_string *out)
{
    while (*text) {
        size_t nbytes = strcspn(text, "\n");
        TRI_TRY(line_append(at, text, nbytes, indent, as_it_is, out));
        text += nbytes + (text[nbytes] == '\n');
    }
    return TRI_OK;
}

/* --- values --- */

static tri_status value_read(manifest *at, const tri_yaml *node, const char *origin)
{
    for (const tri_k8s_tree *tree = tri_k8s_trees; tree->key; tree++) {
        if (strcmp(tree->key, node->key) != 0)
            continue;
        if (node->kind != (tree->fallback[0] == '[' ? TRI_YAML_LIST : TRI_YAML_MAP))
            return tri_fail(TRI_ECONFIG, "%s:%d: %s wants a %s", origin, node->line, node->key,
                            tree->fallback[0] == '[' ? "list" : "map");
        return TRI_OK;
    }
    if (tri_options_find(&table, node->key) && node->kind != TRI_YAML_SCALAR)
        return tri_fail(TRI_ECONFIG, "%s:%d: %s wants one value", origin, node->line, node->key);
    TRI_TRY_IN(tri_options_set(&table, &at->config, node->key, node->text ? node->text : ""), "%s:%d", origin,
               node->line);
    return TRI_OK;
}

static tri_status values_read(manifest *at, const char *path, char **words, int count)
{
    char *text;
    size_t nbytes;
    tri_options_defaults(&table, &at->config);
    TRI_TRY(tri_fs_read_config(path, FILE_LIMIT, &text, &nbytes));
    tri_status status = tri_yaml_parse(&at->arena, text, nbytes, path, &at->values);
    tri_free(text);
    TRI_TRY(status);
    if (at->values->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "%s: want keys such as 'name: run'", path);
    for (int i = 0; i < count; i++) {
        char *equals = strchr(words[i], '=');
        if (!equals)
            return tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form key=value", words[i]);
        *equals = 0;
        TRI_TRY(tri_yaml_set(&at->arena, at->values, words[i], equals + 1));
    }
    if (kind_given)
        TRI_TRY(tri_yaml_set(&at->arena, at->values, "kind", kind_given));
    for (const tri_yaml *node = at->values->child; node; node = node->next)
        TRI_TRY(value_read(at, node, path));
    return TRI_OK;
}

/* Letters that mean nothing to YAML, and where `dns` no others than a name of Kubernetes has. */
static tri_status word_check(const char *key, const char *text, bool dns)
{
    const char *good = dns ? "abcdefghijklmnopqrstuvwxyz0123456789-"
                           : "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@";
    size_t nbytes = strlen(text);
    if (nbytes == 0 || strspn(text, good) < nbytes || !strchr(good, text[0]) || strchr("-.:/@", text[0]) ||
        text[nbytes - 1] == '-' || text[nbytes - 1] == ':' || (dns && nbytes > 40))
        return tri_fail(TRI_ECONFIG, "k8s.%s: want %s, found '%.80s'", key,
                        dns ? "at most 40 of a-z, 0-9 and - between them" : "letters, digits and -_.:/@", text);
    return TRI_OK;
}

static tri_status values_check(manifest *at)
{
    const tri_k8s_config *config = &at->config;
    TRI_TRY(word_check("name", config->name, true));
    TRI_TRY(word_check("claim", config->claim, true));
    TRI_TRY(word_check("secret", config->secret, true));
    TRI_TRY(word_check("image", config->image, false));
    TRI_TRY(word_check("cpu", config->cpu, false));
    TRI_TRY(word_check("memory", config->memory, false));
    if (config->least > config->workers)
        return tri_fail(TRI_ECONFIG, "k8s.least: want at most k8s.workers, %lld, found %lld",
                        (long long)config->workers, (long long)config->least);
    at->kind = &tri_k8s_kinds[config->kind];
    return TRI_OK;
}

/* A path beside the values' file. */
static tri_status config_read(manifest *at, const char *values_path)
{
    char *path, *text;
    size_t nbytes;
    const char *slash = strrchr(values_path, '/');
    path = at->config.config[0] == '/' || !slash
               ? tri_strdup(at->config.config)
               : tri_format("%.*s/%s", (int)(slash - values_path), values_path, at->config.config);
    if (!path)
        return TRI_ENOMEM;
    tri_status status = tri_fs_read_config(path, FILE_LIMIT, &text, &nbytes);
    tri_free(path);
    TRI_TRY_IN(status, "k8s.config");
    return known_take(at, "config", text);
}

/* The children of a list, a line each. */
static tri_status list_lines(const tri_yaml *list, tri_string *out)
{
    for (const tri_yaml *item = list ? list->child : NULL; item; item = item->next) {
        TRI_TRY(tri_string_append(out, "- "));
        TRI_TRY(tri_yaml_print_flow(item, out));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    return TRI_OK;
}

static tri_status trees_know(manifest *at)
{
    for (const tri_k8s_tree *tree = tri_k8s_trees; tree->key; tree++) {
        const tri_yaml *node = tri_yaml_find(at->values, tree->key);
        const bool lines = strcmp(tree->key, "tolerations") != 0 && tree->fallback[0] == '[';
        tri_string text = {0};
        tri_status status = lines  ? list_lines(node, &text)
                            : node ? tri_yaml_print_flow(node, &text)
                                   : tri_string_append(&text, tree->fallback);
        if (status == TRI_OK)
            status = known_take(at, tree->key, tri_strdup(tri_string_text(&text)));
        tri_string_fini(&text);
        TRI_TRY(status);
    }
    return TRI_OK;
}

static tri_status options_know(manifest *at)
{
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        tri_string text = {0};
        if (strcmp(rows[i].field, "config") == 0) /* the file's text has this name */
            continue;
        tri_status status = tri_options_print(&rows[i], &at->config, &text);
        if (status == TRI_OK)
            status = known_take(at, rows[i].field, tri_strdup(tri_string_text(&text)));
        tri_string_fini(&text);
        TRI_TRY(status);
    }
    return TRI_OK;
}

/* The launcher, which works too, and the workers, by the names that the operator gives them. */
static tri_status hosts_know(manifest *at)
{
    tri_string text = {0};
    const char *name = at->config.name;
    tri_status status = tri_string_appendf(&text, "%s-launcher.%s slots=1\n", name, name);
    for (int64_t i = 0; i < at->config.workers - 1 && status == TRI_OK; i++)
        status = tri_string_appendf(&text, "%s-worker-%lld.%s slots=1\n", name, (long long)i, name);
    if (status == TRI_OK)
        status = known_take(at, "hosts", tri_strdup(tri_string_text(&text)));
    tri_string_fini(&text);
    return status;
}

/* What follows from kind and values. */
static tri_status kind_know(manifest *at)
{
    const tri_k8s_config *config = &at->config;
    const tri_k8s_workload kind = config->kind;
    const bool elastic = kind == TRI_K8S_ELASTIC, mpi = kind == TRI_K8S_MPIJOB, jobset = kind == TRI_K8S_JOBSET;
    const bool job = elastic || kind == TRI_K8S_JOB, tf = kind == TRI_K8S_TFJOB, torch = kind == TRI_K8S_PYTORCHJOB;
    const long long workers = config->workers, restarts = config->restarts;
    const value texts[] = {
        {"restart", tri_strdup(at->kind->restart)},
        {"container", tri_strdup(at->kind->container)},
        {"leader", tri_strdup(at->kind->leader)},
        {"first", tri_strdup(at->kind->first)},
        {"env-kind", tri_format("@%s\n", at->kind->env)},
        {"others", tri_format("%lld", workers - 1)},
        {"startups", tri_format("%lld", (long long)(config->startup_s + PROBE_S - 1) / PROBE_S)},
        {"probe", tri_strdup("[trireme, health, /runs/${name}, --within, \"${within_s}\"]")},
        {"ready",
         tri_strdup(config->metrics_port > 0 ? "httpGet: {path: \"/readyz?within=${within_s}\", port: ${metrics_port}}"
                                             : "exec: {command: ${probe}}")},
        {"metrics-args", tri_strdup(config->metrics_port > 0 ? "- \"monitor.metrics=0.0.0.0:${metrics_port}\"\n" : "")},
        {"metrics-ports",
         tri_strdup(config->metrics_port > 0 ? "- {name: metrics, containerPort: ${metrics_port}}\n" : "")},
        {"port_name", tri_strdup(tf      ? "tfjob-port"
                                 : torch ? "pytorchjob-port"
                                         : "meet")},
        {"subdomain", tri_strdup(job ? "subdomain: ${name}\n" : "")},
        {"elastic-args", elastic ? tri_format("- --elastic\n- \"%lld:%lld\"\n- --grace\n- \"%lld\"\n",
                                              (long long)config->least, workers, (long long)config->grace_s)
                                 : tri_strdup("")},
        {"hosts-volume", tri_strdup(mpi ? "- {name: hosts, configMap: {name: ${name}-hosts}}\n" : "")},
        {"hosts-mount", tri_strdup(mpi ? "- {name: hosts, mountPath: /etc/trireme-hosts, readOnly: true}\n" : "")},
        /* A pod that fails takes the others with it, except where they are elastic. */
        {"backoff", elastic  ? tri_format("backoffLimitPerIndex: %lld\n", restarts)
                    : jobset ? tri_strdup("backoffLimit: ${workers}\n")
                             : tri_format(mpi || tf || torch ? "%lld" : "backoffLimit: %lld\n", restarts * workers)},
    };
    tri_status status = TRI_OK;
    for (size_t i = 0; i < TRI_COUNT_OF(texts); i++) {
        tri_status one = known_take(at, texts[i].name, texts[i].text);
        status = status == TRI_OK ? one : status;
    }
    return status;
}

static tri_status manifest_write(manifest *at, const char *values_path, tri_string *out)
{
    char name[80];
    TRI_TRY(values_check(at));
    TRI_TRY(config_read(at, values_path));
    TRI_TRY(options_know(at));
    TRI_TRY(trees_know(at));
    TRI_TRY(hosts_know(at));
    TRI_TRY(kind_know(at));
    snprintf(name, sizeof(name), "@kind-%s\n", at->kind->name);
    return block_append(at, name, 0, false, out);
}

static int print_help(void)
{
    if (!tri_flags_help(tri_command_of(cmd_k8s), flags, TRI_COUNT_OF(flags)))
        return 0;
    tri_string text = {0};
    tri_status status = tri_string_append(&text, "\nValues, in the file or as key=value:\n\n");
    if (status == TRI_OK)
        status = tri_options_help(&table, &text);
    for (const tri_k8s_tree *tree = tri_k8s_trees; tree->key && status == TRI_OK; tree++)
        status = tri_string_appendf(&text, "  k8s.%-24s %s\n", tree->key, tree->help);
    fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}

int cmd_k8s(int argc, char **argv)
{
    manifest at = {.known = {.each = sizeof(value)}};
    tri_string out = {0};
    int count;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help();
    tri_status status = tri_flags_parse(tri_command_of(cmd_k8s), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_OK && count == 0)
        status = tri_fail(TRI_ECONFIG, "want a file of values, such as examples/kubernetes/values.yaml");
    if (status == TRI_OK)
        status = values_read(&at, argv[0], argv + 1, count - 1);
    if (status == TRI_OK)
        status = manifest_write(&at, argv[0], &out);
    if (status == TRI_OK)
        fputs(tri_string_text(&out), stdout);
    for (size_t i = 0; i < at.known.count; i++)
        tri_free(((value *)tri_vector_at(&at.known, i))->text);
    tri_vector_fini(&at.known);
    tri_arena_fini(&at.arena);
    tri_string_fini(&out);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
