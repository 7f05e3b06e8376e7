/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_config.h: config.json of Hugging Face: read into the fields of our models, written back with all that others put
 * there.
 */
#ifndef TRI_INTEROP_HF_CONFIG_H
#define TRI_INTEROP_HF_CONFIG_H

#include "base/containers.h"
#include "base/yaml.h"
#include "interop/family.h"

#define TRI_HF_CONFIG_FILE "config.json"

typedef struct tri_hf_config tri_hf_config;
/* Checks every field that the family knows. TRI_EFORMAT: no JSON, wrong types, numbers out of their bounds;
 * TRI_EUNSUPPORTED: a family or a value that no model here has. `origin` is for messages. */
tri_status tri_hf_config_parse(const char *text, size_t nbytes, const char *origin, tri_hf_config **out);
tri_status tri_hf_config_open(const char *path, tri_hf_config **out);
void tri_hf_config_close(tri_hf_config *config);

const tri_family *tri_hf_config_family(const tri_hf_config *config);
/* The number of a role (booleans 0 or 1), with what follows from others filled in: heads of keys, width of a head,
 * inner width. */
int64_t tri_hf_config_number(const tri_hf_config *config, tri_field_role role);
/* Whether names of tensors carry the prefix in files that are written: not where `architectures` is the bare model. */
bool tri_hf_config_has_prefix(const tri_hf_config *config);
/* Appends the fields of `model:` as YAML lines, the name first. */
tri_status tri_hf_config_model(const tri_hf_config *config, tri_string *out);

/* What a model that is built knows and `model:` may leave out; 0: not known. */
typedef struct tri_hf_facts {
    int64_t numbers[TRI_ROLE_COUNT];
} tri_hf_facts;
/* Puts the fields of `model:`, and facts where it says nothing, into the configuration. */
tri_status tri_hf_config_update(tri_hf_config *config, const tri_yaml *model, const tri_hf_facts *facts);
/* Sets tie_word_embeddings to false, for files whose head is another matrix than their embedding. */
tri_status tri_hf_config_untie(tri_hf_config *config);
/* A configuration for a model that came from nowhere. */
tri_status tri_hf_config_make(const tri_family *family, const tri_yaml *model, const tri_hf_facts *facts,
                              tri_hf_config **out);
/* The type that `torch_dtype` or `dtype` names; false where neither names one. */
bool tri_hf_config_dtype(const tri_hf_config *config, tri_dtype *out);
/* Appends the JSON text, for weights of this type: `torch_dtype` (or `dtype`, if that is there) follows; everything
 * else is as it was read. */
tri_status tri_hf_config_print(tri_hf_config *config, tri_dtype dtype, tri_string *out);

#endif
