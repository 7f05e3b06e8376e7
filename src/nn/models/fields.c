/* SPDX-License-Identifier: Apache-2.0
 *
 * fields.c: reads the fields of a model or layer from YAML; what is unknown fails with its line and the nearest name.
 */
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "base/status.h"
#include "nn/models/models.h"

tri_status tri_field_int(const tri_yaml *node, const char *name, int64_t low, int64_t high, int64_t *out)
{
    const tri_yaml *field = tri_yaml_find(node, name);
    return field ? tri_yaml_int(field, name, low, high, out) : TRI_OK;
}

tri_status tri_field_real(const tri_yaml *node, const char *name, double low, double high, double *out)
{
    const tri_yaml *field = tri_yaml_find(node, name);
    return field ? tri_yaml_real(field, name, low, high, out) : TRI_OK;
}

tri_status tri_field_bool(const tri_yaml *node, const char *name, bool *out)
{
    const tri_yaml *field = tri_yaml_find(node, name);
    return field ? tri_yaml_bool(field, name, out) : TRI_OK;
}

const char *tri_field_place(const tri_yaml *node, char text[32])
{
    text[0] = '\0';
    if (node && node->line > 0)
        snprintf(text, 32, "line %d: ", node->line);
    return text;
}

tri_status tri_field_unknown(const tri_yaml *node, const char *what, const char *word, const char *const *names)
{
    size_t count = 0;
    while (names[count])
        count++;
    char place[32];
    tri_field_place(node, place);
    const char *nearest = tri_options_nearest(word, names, count);
    if (nearest)
        return tri_fail(TRI_ECONFIG, "%sthere is no %s '%.60s'; did you mean '%s'?", place, what, word, nearest);
    char all[512] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof(all); i++)
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", names[i]);
    return tri_fail(TRI_ECONFIG, "%sthere is no %s '%.60s', only %s", place, what, word, all);
}

tri_status tri_field_order(const tri_yaml *node, const char *name, tri_flatten_order *out)
{
    const tri_yaml *field = tri_yaml_find(node, name);
    char place[32];
    if (!field)
        return TRI_OK;
    const char *text = field->kind == TRI_YAML_SCALAR ? field->text : "something else";
    if (strcmp(text, "hwc") != 0 && strcmp(text, "chw") != 0)
        return tri_fail(TRI_ECONFIG, "%s%s: want hwc or chw (PyTorch's order), got %.40s",
                        tri_field_place(field, place), name, text);
    *out = text[0] == 'h' ? TRI_FLATTEN_HWC : TRI_FLATTEN_CHW;
    return TRI_OK;
}

tri_status tri_fields_check(const tri_yaml *node, const char *what, const char *const *names)
{
    for (const tri_yaml *field = node ? node->child : NULL; field; field = field->next) {
        bool known = false;
        for (const char *const *name = names; *name && !known; name++)
            known = strcmp(*name, field->key) == 0;
        if (!known) {
            char thing[96];
            snprintf(thing, sizeof(thing), "field of %s", what);
            return tri_field_unknown(field, thing, field->key, names);
        }
    }
    return TRI_OK;
}
