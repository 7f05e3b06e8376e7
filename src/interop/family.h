/* SPDX-License-Identifier: Apache-2.0
 *
 * family.h: what differs between the models of Hugging Face that we know, as data: names of tensors, fields of
 * config.json.
 *
 * In names '#' stands for the number of a layer, and a leading '@' for the prefix of the family ("transformer."), which
 * a file may leave out.
 */
#ifndef TRI_INTEROP_FAMILY_H
#define TRI_INTEROP_FAMILY_H

#include <stdbool.h>

#include "checkpoint/tensor_view.h"

/* Which rows of ours a tensor of theirs is. */
typedef enum tri_rule_rows { TRI_ROWS_ALL, TRI_ROWS_QUERY, TRI_ROWS_KEY, TRI_ROWS_INNER } tri_rule_rows;
/* Under which configuration a tensor is there. */
typedef enum tri_rule_when {
    TRI_WHEN_ALWAYS,
    TRI_WHEN_TIED,
    TRI_WHEN_UNTIED,
    TRI_WHEN_ATTENTION_BIAS,
    TRI_WHEN_MLP_BIAS
} tri_rule_when;

typedef struct tri_name_rule {
    const char *ours; /* NULL: theirs[0] is no weight of ours and is passed over */
    const char *theirs[TRI_VIEW_MAX_PARTS];
    tri_rule_rows rows[TRI_VIEW_MAX_PARTS]; /* where ours is several of theirs, one below the other */
    bool transposed;                        /* theirs is [in, out] */
    tri_rule_when when;
} tri_name_rule;

typedef enum tri_field_type {
    TRI_FIELD_INT,
    TRI_FIELD_REAL,
    TRI_FIELD_BOOL,
    TRI_FIELD_TEXT,
    TRI_FIELD_ROPE
} tri_field_type;
/* What the conversion of names needs to know. */
typedef enum tri_field_role {
    TRI_ROLE_NONE,
    TRI_ROLE_LAYERS,
    TRI_ROLE_WIDTH,
    TRI_ROLE_HEADS,
    TRI_ROLE_KEY_HEADS,
    TRI_ROLE_HEAD_WIDTH,
    TRI_ROLE_INNER,
    TRI_ROLE_VOCABULARY,
    TRI_ROLE_POSITIONS,
    TRI_ROLE_TIED,
    TRI_ROLE_ATTENTION_BIAS,
    TRI_ROLE_MLP_BIAS,
    TRI_ROLE_COUNT
} tri_field_role;

typedef enum tri_field_use {
    TRI_FIELD_USED,
    TRI_FIELD_FIXED /* there is no model here with another value than the fallback; not a field of `model:` */
} tri_field_use;

typedef struct tri_family_field {
    const char *name; /* in config.json and under `model:` */
    tri_field_type type;
    tri_field_role role;
    double low, high;     /* of numbers */
    const char *fallback; /* where config.json says nothing, as Hugging Face has it; NULL: follows from others */
    const char *choices;  /* of texts: "a|b" */
    tri_field_use use;
    const char *ours; /* default of the model here, where it is another; NULL: the fallback */
} tri_family_field;

#define TRI_FAMILY_MAX_FIELDS 24

typedef struct tri_family {
    const char *name;         /* of the model here, and model_type there */
    const char *architecture; /* that a new config.json names */
    const char *prefix;       /* of '@' */
    const char *embedding;    /* our name of the tensor whose rows are the vocabulary */
    const char *gate_up;      /* and of one whose rows are twice the inner width; NULL: it follows from the width */
    const tri_name_rule *rules;
    int rule_count;
    const tri_family_field *fields;
    int field_count;
} tri_family;

extern const tri_family tri_families[];
extern const int tri_family_count;
/* NULL when there is none of that name. */
const tri_family *tri_family_find(const char *name);

#endif
