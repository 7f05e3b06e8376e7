/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml.h: a YAML document as a tree of maps, lists and scalars that knows its line numbers (libyaml underneath).
 *
 * Aliases, tags and several documents in one file are refused: a configuration needs none of them. Duplicate keys are
 * an error. Depth at most 32, at most 100,000 nodes.
 */
#ifndef TRI_BASE_YAML_H
#define TRI_BASE_YAML_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/containers.h"

typedef enum tri_yaml_kind { TRI_YAML_SCALAR, TRI_YAML_LIST, TRI_YAML_MAP } tri_yaml_kind;

typedef struct tri_yaml {
    tri_yaml_kind kind;
    const char *key;        /* within a map; else NULL */
    const char *text;       /* scalar: its value; else NULL */
    int line;               /* from 1 */
    struct tri_yaml *child; /* first of a list or map */
    struct tri_yaml *next;  /* sibling */
} tri_yaml;

/* Parses; every node lives in the arena. An empty document is an empty map. TRI_ECONFIG: "<origin>:<line>: ...". */
tri_status tri_yaml_parse(tri_arena *arena, const char *text, size_t nbytes, const char *origin, tri_yaml **root);
/* The child of a map by key, or NULL (also when node is NULL or no map). */
tri_yaml *tri_yaml_find(const tri_yaml *node, const char *key);
/* Children of a node. */
int tri_yaml_count(const tri_yaml *node);
/* Scalars as numbers: TRI_ECONFIG with `what`, line and the text found. */
tri_status tri_yaml_int(const tri_yaml *node, const char *what, int64_t low, int64_t high, int64_t *out);
tri_status tri_yaml_real(const tri_yaml *node, const char *what, double low, double high, double *out);
tri_status tri_yaml_bool(const tri_yaml *node, const char *what, bool *out);
/* Sets root.a.b = text, making maps on the way; replaces what stood there. text is parsed as YAML flow (so "[1, 2]"
 * works). */
tri_status tri_yaml_set(tri_arena *arena, tri_yaml *root, const char *dotted, const char *text);
/* Writes a tree as YAML in one line: "[{a: 1, b: [c, d]}]". */
tri_status tri_yaml_print_flow(const tri_yaml *node, tri_string *out);
/* Writes a tree as YAML, block style. */
tri_status tri_yaml_print(const tri_yaml *node, int indent, tri_string *out);

#endif
