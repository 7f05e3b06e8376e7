/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_config_write.c: a configuration as `model:` fields, and back as JSON text: two spaces a level, keys in their
 * order, numbers as short as they can be.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "interop/hf_config_impl.h"

/* --- to `model:` --- */

/* A text in double quotes, for JSON and YAML alike. */
static tri_status print_quoted(const char *text, tri_string *out)
{
    tri_string list = {0};
    tri_json json = tri_json_object(&list);
    tri_json_text(&json, "", text);
    tri_status status = tri_json_end(&json); /* {"":"..."} */
    if (status == TRI_OK)
        status = tri_string_append_bytes(out, list.text + 4, list.nbytes - 5);
    tri_string_fini(&list);
    return status;
}

static tri_status print_json(const json_t *value, int indent, tri_string *out);

/* "{rope_type: llama3, factor: 8}"; "default" is no scaling. */
static tri_status print_rope(const json_t *rope, tri_string *out)
{
    const char *key, *type = json_string_value(json_object_get(rope, "rope_type"));
    json_t *value;
    if (type == NULL)
        type = json_string_value(json_object_get(rope, "type"));
    if (!json_is_object(rope) || type == NULL || strcmp(type, "default") == 0)
        return TRI_OK;
    TRI_TRY(tri_string_append(out, "rope_scaling: {rope_type: "));
    TRI_TRY(print_quoted(type, out));
    json_object_foreach((json_t *)(uintptr_t)rope, key, value)
    {
        if (strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0 || strcmp(key, "rope_theta") == 0)
            continue;
        TRI_TRY(tri_string_append(out, ", "));
        TRI_TRY(print_quoted(key, out));
        TRI_TRY(tri_string_append(out, ": "));
        TRI_TRY(print_json(value, 0, out));
    }
    return tri_string_append(out, "}\n");
}

static tri_status print_field(const tri_hf_config *config, int index, tri_string *out)
{
    const tri_family_field *field = &config->family->fields[index];
    const tri_hf_value *value = &config->values[index];
    if (field->use != TRI_FIELD_USED || (!value->given && field->fallback == NULL && field->type != TRI_FIELD_ROPE))
        return TRI_OK;
    if (field->type == TRI_FIELD_ROPE) {
        const json_t *rope = json_object_get(config->root, field->name);
        return print_rope(json_is_object(rope) ? rope : json_object_get(config->root, "rope_parameters"), out);
    }
    TRI_TRY(tri_string_appendf(out, "%s: ", field->name));
    if (field->type == TRI_FIELD_TEXT)
        TRI_TRY(print_quoted(value->text, out));
    else if (field->type == TRI_FIELD_BOOL)
        TRI_TRY(tri_string_append(out, value->number != 0 ? "true" : "false"));
    else if (field->type == TRI_FIELD_INT)
        TRI_TRY(tri_string_appendf(out, "%" PRId64, (int64_t)value->number));
    else
        TRI_TRY(tri_string_append_real(out, value->number));
    return tri_string_append(out, "\n");
}

tri_status tri_hf_config_model(const tri_hf_config *config, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "name: %s\n", config->family->name));
    for (int i = 0; i < config->family->field_count; i++)
        TRI_TRY(print_field(config, i, out));
    return TRI_OK;
}

/* --- from `model:` --- */

static json_t *value_from_text(const tri_family_field *field, const char *text)
{
    switch (field->type) {
    case TRI_FIELD_INT:
        return json_integer(strtoll(text, NULL, 10));
    case TRI_FIELD_REAL:
        return json_real(strtod(text, NULL));
    case TRI_FIELD_BOOL:
        return json_boolean(strcmp(text, "true") == 0 || strcmp(text, "yes") == 0 || strcmp(text, "on") == 0);
    default:
        return json_string(text);
    }
}

/* A number where the text reads as one, whole numbers as such. */
static json_t *value_from_scalar(const char *text)
{
    char *end;
    if (text == NULL)
        return json_null();
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (end != text && *end == 0 && errno == 0)
        return json_integer(whole);
    double number = strtod(text, &end);
    return end != text && *end == 0 && isfinite(number) ? json_real(number) : json_string(text);
}

static json_t *value_from_map(const tri_yaml *map)
{
    json_t *object = json_object();
    for (const tri_yaml *child = map->child; child != NULL && object != NULL; child = child->next)
        if (json_object_set_new(object, child->key, value_from_scalar(child->text)) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static tri_status set_new(tri_hf_config *config, const char *key, json_t *value)
{
    tri_free(config->text); /* it is not as it was read */
    config->text = NULL;
    if (value == NULL || json_object_set_new(config->root, key, value) != 0)
        return tri_fail(TRI_ENOMEM, "%s: no memory for %s", config->origin, key);
    return TRI_OK;
}

static bool is_same(const json_t *before, const json_t *value)
{
    return json_is_number(before) && json_is_number(value) ? json_number_value(before) == json_number_value(value)
                                                           : json_equal(before, value);
}

/* Only what says something else than the file does: a value that stays keeps its spelling. */
static tri_status set_field(tri_hf_config *config, const tri_family_field *field, json_t *value)
{
    const json_t *before = json_object_get(config->root, field->name);
    if (value != NULL && before != NULL && is_same(before, value)) {
        json_decref(value);
        return TRI_OK;
    }
    return set_new(config, field->name, value);
}

static bool is_same_map(const json_t *before, const json_t *map)
{
    const char *key;
    json_t *value;
    bool same = json_object_size(before) == json_object_size(map);
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        same = same && is_same(json_object_get(before, key), value);
    }
    return same;
}

/* No scaling, as `model:` says it. */
static bool is_none(const tri_yaml *given)
{
    return given->kind == TRI_YAML_SCALAR && (!given->text[0] || strcmp(given->text, "null") == 0);
}

/* rope_parameters as rope_theta and rope_scaling of `model:` have it; what neither says stays. */
static tri_status rope_update(tri_hf_config *config, const tri_yaml *theta, const tri_yaml *scaling)
{
    const json_t *before = json_object_get(config->root, "rope_parameters"),
                 *base = json_object_get(before, "rope_theta");
    json_t *rope = NULL;
    if (scaling != NULL && scaling->kind == TRI_YAML_MAP)
        rope = value_from_map(scaling);
    else if (scaling != NULL && is_none(scaling))
        rope = json_pack("{ss}", "rope_type", "default");
    else
        rope = json_copy((json_t *)(uintptr_t)before);
    json_t *value = theta != NULL ? json_real(strtod(theta->text, NULL)) : json_incref((json_t *)(uintptr_t)base);
    if (rope == NULL || (value != NULL && json_object_set_new(rope, "rope_theta", value) != 0)) {
        json_decref(rope);
        return tri_fail(TRI_ENOMEM, "%s: no memory for rope_parameters", config->origin);
    }
    if (is_same_map(before, rope)) {
        json_decref(rope);
        return TRI_OK;
    }
    return set_new(config, "rope_parameters", rope);
}

tri_status tri_hf_config_update(tri_hf_config *config, const tri_yaml *model, const tri_hf_facts *facts)
{
    const bool newer = json_is_object(json_object_get(config->root, "rope_parameters"));
    if (newer)
        TRI_TRY(rope_update(config, tri_yaml_find(model, "rope_theta"), tri_yaml_find(model, "rope_scaling")));
    for (int i = 0; i < config->family->field_count; i++) {
        const tri_family_field *field = &config->family->fields[i];
        const tri_yaml *given = tri_yaml_find(model, field->name);
        const bool of_rope = field->type == TRI_FIELD_ROPE || strcmp(field->name, "rope_theta") == 0;
        int64_t fact = facts->numbers[field->role];
        if (newer && of_rope && json_object_get(config->root, field->name) == NULL)
            continue; /* it is in rope_parameters alone */
        if (given == NULL && fact > 0)
            TRI_TRY(set_field(config, field, json_integer(fact)));
        else if (given != NULL && given->kind == TRI_YAML_MAP)
            TRI_TRY(set_field(config, field, value_from_map(given)));
        else if (given != NULL && field->type == TRI_FIELD_ROPE && is_none(given))
            TRI_TRY(set_field(config, field, json_null()));
        else if (given != NULL && given->kind == TRI_YAML_SCALAR && field->use == TRI_FIELD_USED)
            TRI_TRY(set_field(config, field, value_from_text(field, given->text)));
    }
    return tri_hf_config_read_fields(config);
}

tri_status tri_hf_config_untie(tri_hf_config *config)
{
    for (int i = 0; i < config->family->field_count; i++)
        if (config->family->fields[i].role == TRI_ROLE_TIED)
            TRI_TRY(set_field(config, &config->family->fields[i], json_false()));
    return tri_hf_config_read_fields(config);
}

/* Every field with its default, so that no other program's default counts. */
static tri_status put_fallbacks(tri_hf_config *config)
{
    json_t *names = json_pack("[s]", config->family->architecture);
    TRI_TRY(set_new(config, "architectures", names));
    TRI_TRY(set_new(config, "model_type", json_string(config->family->name)));
    for (int i = 0; i < config->family->field_count; i++) {
        const tri_family_field *field = &config->family->fields[i];
        const char *text = field->ours != NULL ? field->ours : field->fallback;
        if (text != NULL)
            TRI_TRY(set_new(config, field->name, value_from_text(field, text)));
    }
    return TRI_OK;
}

tri_status tri_hf_config_make(const tri_family *family, const tri_yaml *model, const tri_hf_facts *facts,
                              tri_hf_config **out)
{
    TRI_TRY(tri_hf_config_create("model", out));
    tri_hf_config *config = *out;
    config->family = family;
    config->root = json_object();
    tri_status status = config->root != NULL ? put_fallbacks(config) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_hf_config_update(config, model, facts);
    if (status != TRI_OK) {
        tri_hf_config_close(config);
        *out = NULL;
    }
    return status;
}

/* --- to JSON --- */

/* A real stays a real for whoever reads the file: "10000.0". */
static tri_status print_real(double value, tri_string *out)
{
    size_t start = out->nbytes;
    TRI_TRY(tri_string_append_real(out, value));
    return strpbrk(out->text + start, ".en") == NULL ? tri_string_append(out, ".0") : TRI_OK;
}

static tri_status new_line(int indent, tri_string *out)
{
    return tri_string_appendf(out, "\n%*s", 2 * indent, "");
}

static tri_status print_list(const json_t *list, int indent, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "["));
    for (size_t i = 0; i < json_array_size(list); i++) {
        TRI_TRY(tri_string_append(out, i > 0 ? "," : ""));
        TRI_TRY(new_line(indent + 1, out));
        TRI_TRY(print_json(json_array_get(list, i), indent + 1, out));
    }
    if (json_array_size(list) > 0)
        TRI_TRY(new_line(indent, out));
    return tri_string_append(out, "]");
}

static tri_status print_object(const json_t *object, int indent, tri_string *out)
{
    const char *key, *comma = "";
    json_t *value;
    TRI_TRY(tri_string_append(out, "{"));
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        TRI_TRY(tri_string_append(out, comma));
        TRI_TRY(new_line(indent + 1, out));
        TRI_TRY(print_quoted(key, out));
        TRI_TRY(tri_string_append(out, ": "));
        TRI_TRY(print_json(value, indent + 1, out));
        comma = ",";
    }
    if (json_object_size(object) > 0)
        TRI_TRY(new_line(indent, out));
    return tri_string_append(out, "}");
}

/* jansson's own text has 17 digits for each number. The parser limits the depth. */
static tri_status print_json(const json_t *value, int indent, tri_string *out)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return print_object(value, indent, out);
    case JSON_ARRAY:
        return print_list(value, indent, out);
    case JSON_STRING:
        return print_quoted(json_string_value(value), out);
    case JSON_INTEGER:
        return tri_string_appendf(out, "%" PRId64, (int64_t)json_integer_value(value));
    case JSON_REAL:
        return print_real(json_real_value(value), out);
    case JSON_TRUE:
        return tri_string_append(out, "true");
    case JSON_FALSE:
        return tri_string_append(out, "false");
    default:
        return tri_string_append(out, "null");
    }
}

static const char *const torch_names[TRI_DTYPE_COUNT] = {
    [TRI_F32] = "float32", [TRI_F64] = "float64", [TRI_BF16] = "bfloat16", [TRI_F16] = "float16"};

static const char *dtype_key(const tri_hf_config *config)
{
    return json_object_get(config->root, "dtype") != NULL ? "dtype" : "torch_dtype";
}

bool tri_hf_config_dtype(const tri_hf_config *config, tri_dtype *out)
{
    const char *name = json_string_value(json_object_get(config->root, dtype_key(config)));
    for (int dtype = 0; dtype < TRI_DTYPE_COUNT && name != NULL; dtype++)
        if (torch_names[dtype] != NULL && strcmp(name, torch_names[dtype]) == 0) {
            *out = (tri_dtype)dtype;
            return true;
        }
    return false;
}

tri_status tri_hf_config_print(tri_hf_config *config, tri_dtype dtype, tri_string *out)
{
    const char *name = torch_names[dtype], *key = dtype_key(config);
    const char *before = json_string_value(json_object_get(config->root, key));
    TRI_ASSERT(name != NULL);
    if (before == NULL || strcmp(before, name) != 0)
        TRI_TRY(set_new(config, key, json_string(name)));
    if (config->text != NULL)
        return tri_string_append(out, config->text);
    TRI_TRY(print_json(config->root, 0, out));
    return tri_string_append(out, "\n");
}
