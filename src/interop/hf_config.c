/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_config.c: reading config.json: each field of the family's table is looked up, checked, and kept as a number or a
 * text; fields of no table stay in the tree, for whoever reads the file after us.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "interop/hf_config_impl.h"

#define CONFIG_LIMIT_NBYTES ((uint64_t)1 << 20)

static tri_status field_wrong(const tri_hf_config *config, const tri_family_field *field, const json_t *value,
                              const char *wanted)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    tri_status status = tri_fail(TRI_EFORMAT, "%s: %s: want %s, got %.60s", config->origin, field->name, wanted,
                                 text != NULL ? text : "something else");
    free(text);
    return status;
}

/* Whether a text is among "a|b|c". */
static bool is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = choices; *at != 0; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && strncmp(at, text, length) == 0)
            return true;
    return false;
}

static tri_status read_number(const tri_hf_config *config, const tri_family_field *field, const json_t *value,
                              double *out)
{
    char wanted[96];
    bool whole = field->type == TRI_FIELD_INT;
    *out = json_number_value(value);
    if ((whole ? json_is_integer(value) : json_is_number(value)) && *out >= field->low && *out <= field->high)
        return TRI_OK;
    snprintf(wanted, sizeof(wanted), "a %snumber from %.10g to %.10g", whole ? "whole " : "", field->low, field->high);
    return field_wrong(config, field, value, wanted);
}

static tri_status read_rope(const tri_hf_config *config, const tri_family_field *field, const json_t *value)
{
    const char *key;
    json_t *part;
    if (!json_is_object(value))
        return field_wrong(config, field, value, "null or an object");
    const json_t *type = json_object_get(value, "rope_type");
    if (type == NULL)
        type = json_object_get(value, "type");
    const char *name = json_string_value(type);
    if (type != NULL && !json_is_null(type) && name == NULL)
        return field_wrong(config, field, type, "a text as rope_type");
    if (name != NULL && strcmp(name, "llama3") != 0 && strcmp(name, "default") != 0)
        return tri_fail(TRI_EUNSUPPORTED, "%s: %s: want rope_type llama3 or default, got '%.40s'", config->origin,
                        field->name, name);
    json_object_foreach((json_t *)(uintptr_t)value, key, part)
    {
        if (json_is_object(part) || json_is_array(part) || strlen(key) > 60)
            return field_wrong(config, field, value, "numbers and texts in it");
    }
    return TRI_OK;
}

static tri_status read_value(const tri_hf_config *config, const tri_family_field *field, const json_t *value,
                             tri_hf_value *out)
{
    char wanted[128];
    out->given = true;
    switch (field->type) {
    case TRI_FIELD_INT:
    case TRI_FIELD_REAL:
        return read_number(config, field, value, &out->number);
    case TRI_FIELD_BOOL:
        out->number = json_is_true(value);
        return json_is_boolean(value) ? TRI_OK : field_wrong(config, field, value, "true or false");
    case TRI_FIELD_TEXT:
        out->text = json_string_value(value);
        if (out->text != NULL && (field->choices == NULL || is_choice(field->choices, out->text)))
            return TRI_OK;
        snprintf(wanted, sizeof(wanted), "one of %s", field->choices != NULL ? field->choices : field->fallback);
        return field_wrong(config, field, value, wanted);
    case TRI_FIELD_ROPE:
        return read_rope(config, field, value);
    }
    return TRI_OK;
}

/* What config.json does not say is as Hugging Face has it. */
static void take_fallback(const tri_family_field *field, tri_hf_value *out)
{
    *out = (tri_hf_value){.text = field->fallback};
    if (field->fallback != NULL)
        out->number =
            field->type == TRI_FIELD_BOOL ? strcmp(field->fallback, "true") == 0 : strtod(field->fallback, NULL);
}

/* rope_parameters of newer files holds what rope_theta and rope_scaling hold in older ones. */
static const json_t *find_value(const tri_hf_config *config, const tri_family_field *field)
{
    const json_t *value = json_object_get(config->root, field->name);
    const json_t *rope = json_object_get(config->root, "rope_parameters");
    if (value == NULL && json_is_object(rope) && strcmp(field->name, "rope_theta") == 0)
        value = json_object_get(rope, field->name);
    if (value == NULL && json_is_object(rope) && field->type == TRI_FIELD_ROPE)
        value = rope;
    return json_is_null(value) ? NULL : value;
}

static tri_status read_field(tri_hf_config *config, int index)
{
    const tri_family_field *field = &config->family->fields[index];
    const json_t *value = find_value(config, field);
    tri_hf_value *out = &config->values[index], fallback;
    take_fallback(field, out);
    fallback = *out;
    if (value == NULL)
        return TRI_OK;
    TRI_TRY(read_value(config, field, value, out));
    bool same = field->type == TRI_FIELD_TEXT ? strcmp(out->text, fallback.text) == 0 : out->number == fallback.number;
    if (field->use == TRI_FIELD_FIXED && !same)
        return tri_fail(TRI_EUNSUPPORTED, "%s: %s: the model %s has only %s", config->origin, field->name,
                        config->family->name, field->fallback);
    return TRI_OK;
}

static double *number_of(tri_hf_config *config, tri_field_role role)
{
    for (int i = 0; i < config->family->field_count; i++)
        if (config->family->fields[i].role == role)
            return &config->values[i].number;
    return NULL;
}

int64_t tri_hf_config_number(const tri_hf_config *config, tri_field_role role)
{
    return config->numbers[role];
}

/* Numbers by role; those that follow from others where they are not given. */
static tri_status fill_numbers(tri_hf_config *config)
{
    int64_t *numbers = config->numbers;
    for (int role = 1; role < TRI_ROLE_COUNT; role++) {
        const double *number = number_of(config, (tri_field_role)role);
        numbers[role] = number != NULL ? (int64_t)*number : 0;
    }
    if (numbers[TRI_ROLE_KEY_HEADS] == 0)
        numbers[TRI_ROLE_KEY_HEADS] = numbers[TRI_ROLE_HEADS];
    if (numbers[TRI_ROLE_INNER] == 0)
        numbers[TRI_ROLE_INNER] = 4 * numbers[TRI_ROLE_WIDTH];
    if (numbers[TRI_ROLE_HEAD_WIDTH] == 0) {
        if (numbers[TRI_ROLE_WIDTH] % numbers[TRI_ROLE_HEADS] != 0)
            return tri_fail(TRI_EFORMAT, "%s: a width of %" PRId64 " does not divide by %" PRId64 " heads",
                            config->origin, numbers[TRI_ROLE_WIDTH], numbers[TRI_ROLE_HEADS]);
        numbers[TRI_ROLE_HEAD_WIDTH] = numbers[TRI_ROLE_WIDTH] / numbers[TRI_ROLE_HEADS];
    }
    if (numbers[TRI_ROLE_HEADS] % numbers[TRI_ROLE_KEY_HEADS] != 0)
        return tri_fail(TRI_EFORMAT, "%s: %" PRId64 " heads do not divide by %" PRId64 " heads of keys and values",
                        config->origin, numbers[TRI_ROLE_HEADS], numbers[TRI_ROLE_KEY_HEADS]);
    return TRI_OK;
}

tri_status tri_hf_config_read_fields(tri_hf_config *config)
{
    for (int i = 0; i < config->family->field_count; i++)
        TRI_TRY(read_field(config, i));
    return fill_numbers(config);
}

static tri_status read_text(tri_hf_config *config, const char *text, size_t nbytes)
{
    json_error_t error;
    config->root = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
    if (config->root == NULL)
        return tri_fail(TRI_EFORMAT, "%s:%d: %s", config->origin, error.line, error.text);
    if (!json_is_object(config->root))
        return tri_fail(TRI_EFORMAT, "%s: want an object of fields", config->origin);
    const char *type = json_string_value(json_object_get(config->root, "model_type"));
    if (type == NULL)
        return tri_fail(TRI_EFORMAT, "%s: want model_type, a text", config->origin);
    config->family = tri_family_find(type);
    if (config->family == NULL)
        return tri_fail(TRI_EUNSUPPORTED, "%s: model_type '%.60s' is not supported, only %s and %s", config->origin,
                        type, tri_families[0].name, tri_families[1].name);
    TRI_TRY(tri_hf_config_read_fields(config));
    config->text = tri_strndup(text, nbytes);
    return config->text != NULL ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_hf_config_create(const char *origin, tri_hf_config **out)
{
    tri_hf_config *config = tri_alloc_zero(1, sizeof(*config));
    *out = NULL;
    if (config == NULL)
        return TRI_ENOMEM;
    config->origin = tri_strdup(origin);
    if (config->origin == NULL) {
        tri_free(config);
        return TRI_ENOMEM;
    }
    *out = config;
    return TRI_OK;
}

tri_status tri_hf_config_parse(const char *text, size_t nbytes, const char *origin, tri_hf_config **out)
{
    TRI_TRY(tri_hf_config_create(origin, out));
    tri_status status = read_text(*out, text, nbytes);
    if (status != TRI_OK) {
        tri_hf_config_close(*out);
        *out = NULL;
    }
    return status;
}

tri_status tri_hf_config_open(const char *path, tri_hf_config **out)
{
    char *text = NULL;
    size_t nbytes = 0;
    *out = NULL;
    TRI_TRY(tri_fs_read(path, CONFIG_LIMIT_NBYTES, &text, &nbytes));
    tri_status status = tri_hf_config_parse(text, nbytes, path, out);
    tri_free(text);
    return status;
}

void tri_hf_config_close(tri_hf_config *config)
{
    if (config == NULL)
        return;
    json_decref(config->root);
    tri_free(config->text);
    tri_free(config->origin);
    tri_free(config);
}

const tri_family *tri_hf_config_family(const tri_hf_config *config)
{
    return config->family;
}

bool tri_hf_config_has_prefix(const tri_hf_config *config)
{
    const char *name = json_string_value(json_array_get(json_object_get(config->root, "architectures"), 0));
    size_t length = name != NULL ? strlen(name) : 0;
    /* GPT2Model, LlamaModel; but not GPT2LMHeadModel. */
    return !(length > 5 && strcmp(name + length - 5, "Model") == 0 && strstr(name, "Head") == NULL);
}
