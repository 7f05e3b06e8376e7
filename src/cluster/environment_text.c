/* SPDX-License-Identifier: Apache-2.0
 *
 * environment_text.c: the languages inside environment variables: Slurm's node and task lists, TF_CONFIG's JSON.
 *
 * Bytes from outside: bounded, no recursion of our own, every refusal says what was wanted and found.
 */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/environment.h"
#include "cluster/store_impl.h"

/* A number of at most nine digits; -1 when there is none. Moves *at behind it. */
static long number_at(const char **at, int *width)
{
    long value = 0;

    for (*width = 0; isdigit((unsigned char)**at); (*at)++) {
        if (++*width > 9)
            return -1;
        value = value * 10 + (**at - '0');
    }
    return *width > 0 ? value : -1;
}

typedef struct node_scan {
    int index, count;
    char *host;
    bool found;
} node_scan;

static void node_found(node_scan *scan, const char *start, size_t start_nbytes, long number, int width, const char *end,
                       size_t end_nbytes)
{
    if (scan->count++ != scan->index)
        return;
    scan->found = true;
    if (number < 0)
        snprintf(scan->host, 256, "%.*s", (int)start_nbytes, start);
    else
        snprintf(scan->host, 256, "%.*s%0*ld%.*s", (int)start_nbytes, start, width, number, (int)end_nbytes, end);
}

static bool is_name(const char *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++) {
        if (!isalnum((unsigned char)text[i]) && !strchr(".-_", text[i]))
            return false;
    }
    return true;
}

/* The ranges between brackets; *at is behind '['. */
static bool ranges_scan(node_scan *scan, const char *start, size_t start_nbytes, const char *inside, const char *close)
{
    const char *end = close + 1;
    size_t end_nbytes = strcspn(end, ",[");

    if (end[end_nbytes] == '[' || !is_name(end, end_nbytes) || start_nbytes + end_nbytes > 200)
        return false; /* several dimensions: not used by clusters of today */
    for (;;) {
        int width, last_width;
        long first = number_at(&inside, &width), last = first;

        if (first >= 0 && *inside == '-') {
            inside++;
            last = number_at(&inside, &last_width);
        }
        if (first < 0 || last < first || last - first >= TRI_ENVIRONMENT_RANKS || scan->count > TRI_ENVIRONMENT_RANKS)
            return false;
        for (long number = first; number <= last; number++)
            node_found(scan, start, start_nbytes, number, width, end, end_nbytes);
        if (inside == close)
            return true;
        if (*inside++ != ',')
            return false;
    }
}

tri_status tri_environment_node(const char *list, int index, char host[256], int *count)
{
    node_scan scan = {.index = index, .host = host};
    const char *at = list;
    bool ok = *list != 0;

    host[0] = 0;
    while (ok && *at) {
        size_t start_nbytes = strcspn(at, ",[]");
        const char *stop = at + start_nbytes, *close;

        ok = is_name(at, start_nbytes);
        if (*stop == '[') {
            close = strchr(stop, ']');
            ok = ok && close && ranges_scan(&scan, at, start_nbytes, stop + 1, close);
            if (ok)
                stop = close + 1 + strcspn(close + 1, ",[");
        } else if (ok && *stop != ']' && start_nbytes > 0 && start_nbytes < 256) {
            node_found(&scan, at, start_nbytes, -1, 0, "", 0);
        } else {
            ok = false;
        }
        ok = ok && scan.count <= TRI_ENVIRONMENT_RANKS && (*stop == 0 || (*stop == ',' && stop[1]));
        at = ok && *stop ? stop + 1 : stop;
    }
    if (!ok)
        return tri_fail(TRI_ECONFIG, "want a node list such as node[01-03,7],x, got '%.100s'", list);
    *count = scan.count;
    if (!scan.found)
        return tri_fail(TRI_ENOTFOUND, "node list %.100s: want host %d, it has %d", list, index, scan.count);
    return TRI_OK;
}

tri_status tri_environment_tasks(const char *list, int index, int *tasks)
{
    const char *at = list;
    long node = 0;

    for (;;) {
        int width;
        long each = number_at(&at, &width), times = 1;

        if (each >= 0 && strncmp(at, "(x", 2) == 0) {
            at += 2;
            times = number_at(&at, &width);
            if (*at++ != ')')
                break;
        }
        if (each < 1 || each > TRI_ENVIRONMENT_RANKS || times < 1 || node > TRI_ENVIRONMENT_RANKS)
            break;
        node += times;
        if (index < node) {
            *tasks = (int)each;
            return TRI_OK;
        }
        if (*at++ != ',')
            break;
    }
    return tri_fail(TRI_ECONFIG, "SLURM_STEP_TASKS_PER_NODE: want tasks such as 2(x3),1 with a node %d, got '%.100s'",
                    index, list);
}

static bool is_same_host(const char *name, const char *own)
{
    size_t nbytes = strlen(name), own_nbytes = strlen(own);

    return strcmp(name, own) == 0 ||
           (nbytes > own_nbytes && name[own_nbytes] == '.' && !memcmp(name, own, own_nbytes)) ||
           (own_nbytes > nbytes && own[nbytes] == '.' && !memcmp(name, own, nbytes));
}

tri_status tri_environment_host_file(const char *text, const char *own, int *rank, int *world, char first[256])
{
    *rank = -1;
    *world = 0;
    for (int line = 1; *text; line++) {
        size_t nbytes = strcspn(text, "\n"), blank = strspn(text, " \t\r"), name = strcspn(text + blank, ": \t\r\n#");
        char host[256];

        if (blank < nbytes && name > 0) {
            if (name >= sizeof host || !is_name(text + blank, name) || *world >= TRI_ENVIRONMENT_RANKS)
                return tri_fail(TRI_ECONFIG, "line %d: want a host name, such as in 'node1 slots=1', got '%.*s'", line,
                                (int)(nbytes < 60 ? nbytes : 60), text);
            snprintf(host, sizeof host, "%.*s", (int)name, text + blank);
            if (*world == 0)
                memcpy(first, host, sizeof host);
            if (is_same_host(host, own) && *rank >= 0)
                return tri_fail(TRI_ECONFIG, "line %d: want this host (%.60s) once, got it again", line, own);
            if (is_same_host(host, own))
                *rank = *world;
            ++*world;
        }
        text += nbytes + (text[nbytes] == '\n');
    }
    if (*rank < 0)
        return tri_fail(TRI_ECONFIG, "want a line with this host (%.60s), got %d others", own, *world);
    return TRI_OK;
}

/* host:port of a task; the host without its port. */
static tri_status tf_address(const json_t *task, const char *type, size_t index, char host[256], int *port)
{
    const char *text = json_string_value(task), *colon = text ? strrchr(text, ':') : NULL;
    char *end = NULL;
    long value = colon ? strtol(colon + 1, &end, 10) : 0;
    size_t nbytes = colon ? (size_t)(colon - text) : 0;

    if (!colon || !isdigit((unsigned char)colon[1]) || *end || value < 1 || value > 65535 || nbytes < 1 || nbytes > 255)
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: cluster.%.20s[%zu]: want host:port, got '%.100s'", type, index,
                        text ? text : "no text");
    memcpy(host, text, nbytes);
    host[nbytes] = 0;
    *port = (int)value;
    return TRI_OK;
}

typedef struct tf_scan {
    const char *type; /* of this task */
    int index;
    int rank, world; /* rank: -1 until found */
    char host[256], first_host[256];
    int first_port;
} tf_scan;

/* Counts the tasks of one type; with mine set, counts only those on that host, and before this rank. */
static tri_status tf_type_scan(const json_t *cluster, const char *type, tf_scan *scan, tri_cluster_place *place)
{
    const json_t *tasks = json_object_get(cluster, type);
    char host[256];
    int port;

    if (tasks && !json_is_array(tasks))
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: cluster.%s: want a list of host:port, got something else", type);
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        TRI_TRY(tf_address(json_array_get(tasks, i), type, i, host, &port));
        if (place) { /* second round: this rank's host is known */
            if (strcmp(host, scan->host) == 0) {
                place->local_rank += scan->world < scan->rank;
                place->local_world++;
            }
        } else if (strcmp(type, scan->type) == 0 && (int)i == scan->index) {
            scan->rank = scan->world;
            memcpy(scan->host, host, sizeof host);
        }
        if (scan->world++ == 0) {
            memcpy(scan->first_host, host, sizeof host);
            scan->first_port = port;
        }
        if (scan->world > TRI_ENVIRONMENT_RANKS)
            return tri_fail(TRI_ECONFIG, "TF_CONFIG: want at most %d tasks, got more", TRI_ENVIRONMENT_RANKS);
    }
    return TRI_OK;
}

static tri_status tf_place(const json_t *root, tri_cluster_place *place)
{
    static const char *const types[] = {"chief", "master", "worker", "ps"};
    const json_t *cluster = json_object_get(root, "cluster"), *task = json_object_get(root, "task");
    const json_t *index = json_object_get(task, "index");
    tf_scan scan = {.type = json_string_value(json_object_get(task, "type")), .rank = -1};
    tri_store_url url;
    bool known = false;

    place->rank = place->local_rank = 0;
    place->world = place->local_world = 1;
    if (!json_is_object(root))
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: want a JSON object, got something else");
    if (!cluster || (json_is_object(cluster) && json_object_size(cluster) == 0))
        return TRI_OK; /* TensorFlow too takes this as one process */
    if (!json_is_object(cluster))
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: cluster: want an object of lists, got something else");
    if (!scan.type)
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: task.type: want chief, master, worker or ps, got nothing");
    for (size_t i = 0; i < TRI_COUNT_OF(types); i++)
        known = known || strcmp(types[i], scan.type) == 0;
    if (!known)
        return tri_fail(TRI_ECONFIG,
                        "TF_CONFIG: task.type: want chief, master, worker or ps (Trireme's ranks are these; an "
                        "evaluator is a process of 'trireme train' alone), got '%.40s'",
                        scan.type);
    if (!json_is_integer(index) || json_integer_value(index) < 0 || json_integer_value(index) >= TRI_ENVIRONMENT_RANKS)
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: task.index: want a whole number from 0 on, got %s",
                        index ? "something else" : "nothing");
    scan.index = (int)json_integer_value(index);
    for (size_t i = 0; i < TRI_COUNT_OF(types); i++)
        TRI_TRY(tf_type_scan(cluster, types[i], &scan, NULL));
    if (scan.rank < 0)
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: task: want one that cluster lists, got %s %d of %zu", scan.type,
                        scan.index, json_array_size(json_object_get(cluster, scan.type)));
    place->rank = scan.rank;
    place->world = scan.world;
    place->servers = (int)json_array_size(json_object_get(cluster, "ps"));
    place->local_world = 0;
    scan.world = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(types); i++)
        TRI_TRY(tf_type_scan(cluster, types[i], &scan, place));
    place->serves = place->rank == 0;
    place->host_from = "TF_CONFIG";
    snprintf(place->store_url, sizeof place->store_url, "tcp://%s:%d", scan.first_host, scan.first_port);
    if (place->world > 1) /* the first host may be no host, such as [] */
        TRI_TRY_IN(tri_store_url_parse(place->store_url, &url), "TF_CONFIG: cluster");
    return TRI_OK;
}

tri_status tri_environment_tf_config(const char *text, tri_cluster_place *place)
{
    json_error_t problem;
    json_t *root;
    tri_status status;

    if (strlen(text) > (4u << 20))
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: want at most 4 MiB, got %zu bytes", strlen(text));
    root = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
    if (!root)
        return tri_fail(TRI_ECONFIG, "TF_CONFIG: want JSON, got an error in line %d, column %d: %s", problem.line,
                        problem.column, problem.text);
    status = tf_place(root, place);
    json_decref(root);
    return status;
}

bool tri_environment_tf_evaluates(const char *text)
{
    json_t *root = strlen(text) <= (4u << 20) ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *type = json_string_value(json_object_get(json_object_get(root, "task"), "type"));
    bool evaluates = type && strcmp(type, "evaluator") == 0;

    json_decref(root);
    return evaluates;
}
