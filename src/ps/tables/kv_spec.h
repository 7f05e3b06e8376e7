/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_spec.h: what a table of rows by key is, as client and server both know it.
 *
 * The client says it once, as a text: options of one X-list, an optimizer's, and what the job gives. Included by files
 * of ps/ and their tests only.
 */
#ifndef TRI_PS_KV_SPEC_H
#define TRI_PS_KV_SPEC_H

#include "optim/optim.h"
#include "ps/ps.h"
#include "ps/rpc/coding.h"
#include "ps/tables/sparse.h"
#include "ps/tables/spec.h"

#define TRI_PS_TABLE_OPTIONS(X)                                                                                        \
    X(INT, dim, "1", 1, 1048576, NULL, "values of a row")                                                              \
    X(NAME, merge, "add", 0, 0, NULL,                                                                                  \
      "what a push does to a row: add, assign, min, max, optim (a step of the optimizer), or a function that the "     \
      "servers have registered")                                                                                       \
    X(ENUM, initial, "zero", 0, 0, ps_initial, "initial values of a row")                                              \
    X(REAL, scale, "0.01", 0, 1e6, NULL,                                                                               \
      "initial values: uniform in [-scale, scale), normal with this standard deviation")                               \
    X(INT, seed, "0", 0, 1e15, NULL, "seed of initial values")                                                         \
    X(ENUM, consistency, "async", 0, 0, ps_consistency,                                                                \
      "bsp: pushes of a step are added up in the canonical order and merged once; ssp, async: each push at once")      \
    X(INT, staleness, "2", 0, 1e9, NULL, "ssp: steps that a worker may be ahead of the slowest one")                   \
    X(INT, shards, "8", 1, 1048576, NULL, "bsp: parts that each batch is cut into, a power of two")                    \
    X(INT, steps, "0", 0, 1e15, NULL, "steps of the run, for the schedule of the learning rate")                       \
    X(ENUM, values, "f32", 0, 0, ps_values, "element type on the wire")                                                \
    X(INT, evict_age, "0", 0, 1e9, NULL, "evict rows without a push for this many steps; 0: never")                    \
    X(INT, evict_fewer, "0", 0, 1e9, NULL, "evict rows with fewer pushes than this since the last pass; 0: never")     \
    X(INT, evict_most, "0", 0, 1e15, NULL, "rows to keep, over all servers; the oldest are evicted first; 0: all")     \
    X(INT, evict_every, "100", 1, 1e9, NULL, "steps between two passes of eviction")
typedef struct ps_table_config {
    TRI_PS_TABLE_OPTIONS(TRI_OPTION_FIELD)
} ps_table_config;
extern const tri_option_table tri_ps_table_options; /* section "table" */

typedef struct ps_kv_spec {
    char name[PS_NAME_NBYTES];
    int workers;
    ps_table_config table;
    tri_optim_config optim;
    bool steps; /* merge: optim */
} ps_kv_spec;

/* options: a YAML text, "merge: optim, optim: {name: ftrl}" (braces around may be left out) or one option a line; NULL:
 * defaults. TRI_ECONFIG. */
tri_status ps_kv_spec_make(const char *name, int dim, int workers, const char *options, ps_kv_spec *out);
/* What messages call a table of this name. */
uint32_t ps_kv_table_id(const char *name);
tri_status ps_kv_spec_print(const ps_kv_spec *spec, tri_string *out);
/* The bytes of a stranger: TRI_ECONFIG says what is wrong. */
tri_status ps_kv_spec_parse(const char *text, size_t nbytes, ps_kv_spec *out);

#endif
