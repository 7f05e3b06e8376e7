/* SPDX-License-Identifier: Apache-2.0
 *
 * k8s.c: `trireme k8s`: a file of values to the manifests of a run, by the templates in share/kubernetes.
 *
 * A template is a text of lines. ${NAME} is a value; a line that is @NAME is the template or the value of that name,
 * indented as it is; one that is %NAME likewise, but taken as it is. kind-job.yaml is all of kind job, and so on:
 * one pod for all, and around it what each kind needs. Workers dial out to the host of rank 0 (elastic: of the store),
 * whenever it comes; nobody needs ssh.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/yaml.h"
#include "cli/command.h"

#define FILE_LIMIT (1u << 20) /* as of a ConfigMap */
#define PROBE_S    30         /* between two looks of the startup probe, as in pod.yaml */

#define tri_k8s_workload_words(W)                                                                                      \
    W(TRI_K8S_JOB, "job")                                                                                              \
    W(TRI_K8S_ELASTIC, "elastic")                                                                                      \
    W(TRI_K8S_JOBSET, "jobset")                                                                                        \
    W(TRI_K8S_TRAINJOB, "trainjob")                                                                                    \
    W(TRI_K8S_PYTORCHJOB, "pytorchjob") W(TRI_K8S_TFJOB, "tfjob") W(TRI_K8S_MPIJOB, "mpijob")
TRI_ENUM(tri_k8s_workload)

#define TRI_K8S_OPTIONS(X)                                                                                             \
    X(ENUM, kind, "job", 0, 0, tri_k8s_workload, "workload that runs the workers")                                     \
    X(NAME, name, "trireme", 0, 0, NULL, "name of the job and of all its objects")                                     \
    X(PATH, image, "trireme:0.1.0", 0, 0, NULL, "image of the container")                                              \
    X(PATH, config, "run.yaml", 0, 0, NULL, "configuration of the run; its path is relative to the file of values")    \
    X(INT, workers, "2", 2, 65536, NULL, "pods, one rank each")                                                        \
    X(INT, least, "1", 1, 65536, NULL, "elastic: with fewer workers the run waits for others")                         \
    X(INT, restarts, "20", 0, 1e6, NULL, "restarts of a worker, or, if workers restart together, of the job")          \
    X(NAME, cpu, "2", 0, 0, NULL, "cores of a worker")                                                                 \
    X(INT, threads, "2", 1, 4096, NULL, "threads of a worker")                                                         \
    X(NAME, memory, "4Gi", 0, 0, NULL, "memory of a worker")                                                           \
    X(NAME, claim, "runs", 0, 0, NULL,                                                                                 \
      "persistent volume claim that all workers mount: the run is in its folder NAME")                                 \
    X(NAME, secret, "trireme-token", 0, 0, NULL, "secret with the key `token`, by which workers authenticate")         \
    X(INT, port, "29400", 1024, 65535, NULL, "rendezvous port")                                                        \
    X(INT, grace_s, "120", 1, 86400, NULL, "seconds between SIGTERM and SIGKILL: time to save")                        \
    X(INT, startup_s, "1800", 30, 604800, NULL, "seconds until the first step")                                        \
    X(INT, within_s, "600", 10, 604800, NULL, "longest time without a step before a pod counts as dead, seconds")      \
    X(INT, metrics_port, "0", 0, 65535, NULL,                                                                          \
      "port of /metrics, /healthz and /readyz of each worker, which the readiness probe then uses; 0: none")
typedef struct tri_k8s_config {
    TRI_K8S_OPTIONS(TRI_OPTION_FIELD)
} tri_k8s_config;

/* Values that are YAML themselves, and what they are without one. */
static const struct {
    const char *key, *fallback, *help;
} trees[] = {
    {"overrides", "[]", "list of section.key=value for the run"},
    {"env", "[]", "list of variables for the container: {name: A, value: b}"},
    {"volumes", "[]", "list of further volumes, such as one with the data"},
    {"mounts", "[]", "list of where they are mounted: {name: data, mountPath: /data, readOnly: true}"},
    {"tolerations", "[]", "list of taints that the pods bear"},
    {"node_selector", "{}", "labels that their nodes have"},
    {"affinity", "{}", "where the pods would rather be"},
};

/* What differs between kinds. */
static const struct {
    const char *restart;   /* policy of its pods */
    const char *container; /* the name that its operator needs */
    const char *leader;    /* host of rank 0, with ${name} */
    const char *env;       /* template that says a worker's rank, "" where the operator does */
    const char *first;     /* what its operator calls the pod of rank 0; "": nothing else than the others */
} kinds[] = {
    [TRI_K8S_JOB] = {"OnFailure", "worker", "${name}-0.${name}", "env-index", ""},
    [TRI_K8S_ELASTIC] = {"Never", "worker", "${name}-store", "env-elastic", ""},
    [TRI_K8S_JOBSET] = {"OnFailure", "worker", "${name}-workers-0-0.${name}", "env-index", ""},
    [TRI_K8S_TRAINJOB] = {"OnFailure", "node", "", "", ""},
    [TRI_K8S_PYTORCHJOB] = {"OnFailure", "pytorch", "", "", "Master"},
    [TRI_K8S_TFJOB] = {"OnFailure", "tensorflow", "", "", "Chief"},
    [TRI_K8S_MPIJOB] = {"OnFailure", "worker", "", "env-hosts", "Launcher"},
};

/* The templates. */
static const struct {
    const char *name, *text;
} blocks[] = {
#include "cli/k8s_files.h"
};

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

/* Ends text, which is the value unless it failed. */
static tri_status known_end(manifest *at, const char *name, tri_string *text, tri_status status)
{
    if (status == TRI_OK)
        status = known_take(at, name, tri_strdup(tri_string_text(text)));
    tri_string_fini(text);
    return status;
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
    for (size_t i = 0; i < TRI_COUNT_OF(blocks) && !text; i++)
        if (strlen(blocks[i].name) == nbytes && memcmp(blocks[i].name, name, nbytes) == 0)
            text = blocks[i].text;
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
    for (size_t i = 0; i < TRI_COUNT_OF(trees); i++) {
        const bool list = trees[i].fallback[0] == '[';
        if (strcmp(trees[i].key, node->key) == 0)
            return node->kind == (list ? TRI_YAML_LIST : TRI_YAML_MAP)
                       ? TRI_OK
                       : tri_fail(TRI_ECONFIG, "%s:%d: %s needs a %s", origin, node->line, node->key,
                                  list ? "list" : "map");
    }
    if (tri_options_find(&table, node->key) && node->kind != TRI_YAML_SCALAR)
        return tri_fail(TRI_ECONFIG, "%s:%d: %s: want one value", origin, node->line, node->key);
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
        return tri_fail(TRI_ECONFIG, "k8s.%s: want %s, got '%.80s'", key,
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
        return tri_fail(TRI_ECONFIG, "k8s.least: want at most k8s.workers, %lld, got %lld", (long long)config->workers,
                        (long long)config->least);
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
    for (size_t i = 0; i < TRI_COUNT_OF(trees); i++) {
        const tri_yaml *node = tri_yaml_find(at->values, trees[i].key);
        const bool lines = strcmp(trees[i].key, "tolerations") != 0 && trees[i].fallback[0] == '[';
        tri_string text = {0};
        tri_status status = lines  ? list_lines(node, &text)
                            : node ? tri_yaml_print_flow(node, &text)
                                   : tri_string_append(&text, trees[i].fallback);
        TRI_TRY(known_end(at, trees[i].key, &text, status));
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
        TRI_TRY(known_end(at, rows[i].field, &text, status));
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
    return known_end(at, "hosts", &text, status);
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
        {"restart", tri_strdup(kinds[kind].restart)},
        {"container", tri_strdup(kinds[kind].container)},
        {"leader", tri_strdup(kinds[kind].leader)},
        {"first", tri_strdup(kinds[kind].first)},
        {"env-kind", kinds[kind].env[0] ? tri_format("@%s\n", kinds[kind].env) : tri_strdup("")},
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
    snprintf(name, sizeof(name), "@kind-%s\n", tri_k8s_workload_word(at->config.kind));
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
    for (size_t i = 0; i < TRI_COUNT_OF(trees) && status == TRI_OK; i++)
        status = tri_string_appendf(&text, "  k8s.%-24s %s\n", trees[i].key, trees[i].help);
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
