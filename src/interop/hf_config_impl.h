/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_config_impl.h: a configuration as a JSON tree with the values of the family's fields beside it.
 *
 * Included by hf_config*.c only.
 */
#ifndef TRI_INTEROP_HF_CONFIG_IMPL_H
#define TRI_INTEROP_HF_CONFIG_IMPL_H

#include <jansson.h>

#include "interop/hf_config.h"

typedef struct tri_hf_value {
    bool given;       /* by the file */
    double number;    /* booleans: 0 or 1 */
    const char *text; /* of the tree or of the table; NULL: not known */
} tri_hf_value;

struct tri_hf_config {
    char *origin;
    char *text; /* as it was read; NULL once something was changed */
    json_t *root;
    const tri_family *family;
    tri_hf_value values[TRI_FAMILY_MAX_FIELDS];
    int64_t numbers[TRI_ROLE_COUNT];
};

/* Without a tree. */
tri_status tri_hf_config_create(const char *origin, tri_hf_config **out);
/* The values of all fields from the tree, whose family is known. */
tri_status tri_hf_config_read_fields(tri_hf_config *config);

#endif
