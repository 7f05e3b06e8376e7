/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_names.c: the table's rules, one for each layer, become views. What a configuration asks for is enumerated; what is
 * in the files beyond that is unknown, unless a rule passes it over.
 */
#include "interop/hf_names.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 4 /* names in a message */

void tri_name_list_add(tri_name_list *list, const char *name)
{
    size_t used = strlen(list->text);
    if (list->count++ < SHOWN)
        snprintf(list->text + used, sizeof(list->text) - used, "%s'%.80s'", used > 0 ? ", " : "", name);
}

const char *tri_name_list_print(tri_name_list *list)
{
    size_t used = strlen(list->text);
    if (list->count > SHOWN)
        snprintf(list->text + used, sizeof(list->text) - used, " and %d more", list->count - SHOWN);
    return list->text;
}

/* What is the same for all rules of a pass. */
typedef struct names_pass {
    const tri_hf_config *config;
    const tri_family *family;
    const tri_tensor_set *set;
    tri_arena *arena;
    bool prefixed; /* names with '@' carry the family's prefix */
    tri_map known; /* names of the set that rules asked for */
    tri_name_list missing;
    tri_tensor_view *views;
    int count;
} names_pass;

/* A rule's name for one layer. NULL when memory is out. */
static char *name_make(const names_pass *pass, const char *pattern, int64_t layer)
{
    const char *prefix = pattern[0] == '@' && pass->prefixed ? pass->family->prefix : "";
    const char *rest = pattern + (pattern[0] == '@'), *number = strchr(rest, '#');
    if (number == NULL)
        return tri_arena_format(pass->arena, "%s%s", prefix, rest);
    return tri_arena_format(pass->arena, "%s%.*s%" PRId64 "%s", prefix, (int)(number - rest), rest, layer, number + 1);
}

static bool rule_holds(const names_pass *pass, const tri_name_rule *rule)
{
    bool tied = tri_hf_config_number(pass->config, TRI_ROLE_TIED) != 0;
    switch (rule->when) {
    case TRI_WHEN_ALWAYS:
        return true;
    case TRI_WHEN_TIED:
        return tied;
    case TRI_WHEN_UNTIED:
        return !tied;
    case TRI_WHEN_ATTENTION_BIAS:
        return tri_hf_config_number(pass->config, TRI_ROLE_ATTENTION_BIAS) != 0;
    case TRI_WHEN_MLP_BIAS:
        return tri_hf_config_number(pass->config, TRI_ROLE_MLP_BIAS) != 0;
    }
    return false;
}

/* Rows that a part must have, 0: any. */
static int64_t rows_wanted(const names_pass *pass, tri_rule_rows rows)
{
    const tri_hf_config *config = pass->config;
    int64_t width = tri_hf_config_number(config, TRI_ROLE_HEAD_WIDTH);
    switch (rows) {
    case TRI_ROWS_ALL:
        return 0;
    case TRI_ROWS_QUERY:
        return width * tri_hf_config_number(config, TRI_ROLE_HEADS);
    case TRI_ROWS_KEY:
        return width * tri_hf_config_number(config, TRI_ROLE_KEY_HEADS);
    case TRI_ROWS_INNER:
        return tri_hf_config_number(config, TRI_ROLE_INNER);
    }
    return 0;
}

static tri_status find_stored(names_pass *pass, const char *name, const tri_stored_tensor **out)
{
    *out = tri_tensor_set_find(pass->set, name);
    if (*out == NULL) {
        tri_name_list_add(&pass->missing, name);
        return TRI_OK;
    }
    if (!tri_tensor_view_reads((*out)->dtype))
        return tri_fail(TRI_EUNSUPPORTED, "%s: tensor '%.100s': want elements f32, bf16, f16 or f64, got %s",
                        tri_tensor_set_origin(pass->set), name, tri_dtype_name((*out)->dtype));
    return tri_map_set(&pass->known, name, 1);
}

static tri_status wrong_shape(const names_pass *pass, const tri_stored_tensor *tensor, const char *wanted)
{
    char found[96];
    return tri_fail(TRI_EFORMAT, "%s: tensor '%.100s': want %s, got %s", tri_tensor_set_origin(pass->set), tensor->name,
                    wanted, tri_shape_print(tensor->shape, found));
}

/* Puts one tensor of theirs below what the view has. */
static tri_status part_add(const names_pass *pass, const tri_name_rule *rule, int part, const tri_stored_tensor *from,
                           tri_tensor_view *view)
{
    char wanted[64];
    tri_shape shape = from->shape;
    int64_t rows = rows_wanted(pass, rule->rows[part]);
    if (rule->transposed && shape.ndim != 2)
        return wrong_shape(pass, from, "a matrix");
    if (rule->transposed) {
        shape.dim[0] = from->shape.dim[1];
        shape.dim[1] = from->shape.dim[0];
    }
    if (shape.ndim < 1 || shape.ndim > 2 || (rows > 0 && shape.dim[0] != rows)) {
        snprintf(wanted, sizeof(wanted), rows > 0 ? "%" PRId64 " rows" : "a matrix or a list", rows);
        return wrong_shape(pass, from, wanted);
    }
    if (part > 0 && (shape.ndim != view->shape.ndim || (shape.ndim == 2 && shape.dim[1] != view->shape.dim[1])))
        return wrong_shape(pass, from, "the columns of the parts before it");
    view->parts[view->part_count++] =
        (tri_view_part){.from = from, .rows = shape.dim[0], .transposed = rule->transposed};
    if (part > 0)
        view->shape.dim[0] += shape.dim[0];
    else
        view->shape = shape;
    return TRI_OK;
}

/* One parameter of ours. */
static tri_status rule_to_ours(names_pass *pass, const tri_name_rule *rule, int64_t layer)
{
    tri_tensor_view *view = &pass->views[pass->count];
    *view = (tri_tensor_view){.name = name_make(pass, rule->ours, layer)};
    bool whole = true;
    if (view->name == NULL)
        return TRI_ENOMEM;
    for (int part = 0; part < TRI_VIEW_MAX_PARTS && rule->theirs[part] != NULL; part++) {
        const tri_stored_tensor *from;
        const char *name = name_make(pass, rule->theirs[part], layer);
        if (name == NULL)
            return TRI_ENOMEM;
        TRI_TRY(find_stored(pass, name, &from));
        whole = whole && from != NULL;
        if (whole)
            TRI_TRY(part_add(pass, rule, part, from, view));
    }
    pass->count += whole;
    return TRI_OK;
}

/* Their tensors of one parameter of ours. */
static tri_status rule_to_theirs(names_pass *pass, const tri_name_rule *rule, int64_t layer)
{
    const tri_stored_tensor *from;
    const char *name = name_make(pass, rule->ours, layer);
    if (name == NULL)
        return TRI_ENOMEM;
    TRI_TRY(find_stored(pass, name, &from));
    if (from == NULL)
        return TRI_OK;
    if (from->shape.ndim < 1 || from->shape.ndim > 2 || (rule->transposed && from->shape.ndim != 2))
        return wrong_shape(pass, from, rule->transposed ? "a matrix" : "a matrix or a list");
    int64_t first = 0;
    for (int part = 0; part < TRI_VIEW_MAX_PARTS && rule->theirs[part] != NULL; part++) {
        tri_tensor_view *view = &pass->views[pass->count];
        int64_t rows = rows_wanted(pass, rule->rows[part]);
        *view = (tri_tensor_view){.name = name_make(pass, rule->theirs[part], layer), .shape = from->shape};
        if (view->name == NULL)
            return TRI_ENOMEM;
        view->shape.dim[0] = rows > 0 ? rows : from->shape.dim[0];
        view->parts[view->part_count++] = (tri_view_part){
            .from = from, .first_row = first, .rows = view->shape.dim[0], .transposed = rule->transposed};
        if (rule->transposed) {
            view->shape = (tri_shape){2, {from->shape.dim[1], from->shape.dim[0]}};
            view->parts[0].rows = from->shape.dim[1];
        }
        first += view->shape.dim[0];
        pass->count++;
    }
    if (!rule->transposed && first != from->shape.dim[0]) {
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "%" PRId64 " rows", first);
        return wrong_shape(pass, from, wanted);
    }
    return TRI_OK;
}

typedef tri_status (*rule_fn)(names_pass *pass, const tri_name_rule *rule, int64_t layer);

/* A rule for every layer, or once. */
static tri_status rule_walk(names_pass *pass, const tri_name_rule *rule, rule_fn run)
{
    bool layered = strchr(rule->theirs[0], '#') != NULL;
    int64_t layers = layered ? tri_hf_config_number(pass->config, TRI_ROLE_LAYERS) : 1;
    for (int64_t layer = 0; layer < layers; layer++)
        TRI_TRY(run(pass, rule, layer));
    return TRI_OK;
}

/* Whether a name is the pattern's, for any layer, with or without the prefix. */
static bool name_matches(const tri_family *family, const char *pattern, const char *name)
{
    if (pattern[0] == '@') {
        size_t length = strlen(family->prefix);
        pattern++;
        if (strncmp(name, family->prefix, length) == 0)
            name += length;
    }
    for (; *pattern != 0; pattern++) {
        if (*pattern == '#') {
            size_t digits = strspn(name, "0123456789");
            if (digits == 0)
                return false;
            name += digits;
        } else if (*pattern != *name++)
            return false;
    }
    return *name == 0;
}

static bool is_passed_over(const names_pass *pass, const char *name)
{
    for (int r = 0; r < pass->family->rule_count; r++) {
        const tri_name_rule *rule = &pass->family->rules[r];
        if (rule->ours == NULL && rule_holds(pass, rule) && name_matches(pass->family, rule->theirs[0], name))
            return true;
    }
    return false;
}

static tri_status check_names(names_pass *pass)
{
    const char *origin = tri_tensor_set_origin(pass->set), *name = pass->family->name;
    int layers = (int)tri_hf_config_number(pass->config, TRI_ROLE_LAYERS), missing = pass->missing.count;
    tri_name_list unknown = {0};
    for (int i = 0; i < tri_tensor_set_count(pass->set); i++) {
        const char *found = tri_tensor_set_at(pass->set, i)->name;
        int64_t asked;
        if (!tri_map_find(&pass->known, found, &asked) && !is_passed_over(pass, found))
            tri_name_list_add(&unknown, found);
    }
    if (missing > 0)
        return tri_fail(TRI_EFORMAT, "%s: %d tensor%s of a %s of %d layers missing: %s%s%s", origin, missing,
                        missing > 1 ? "s" : "", name, layers, tri_name_list_print(&pass->missing),
                        unknown.count > 0 ? "; unknown: " : "", tri_name_list_print(&unknown));
    if (unknown.count > 0)
        return tri_fail(TRI_EFORMAT, "%s: %d tensor%s that a %s of %d layers does not have: %s", origin, unknown.count,
                        unknown.count > 1 ? "s" : "", name, layers, tri_name_list_print(&unknown));
    return TRI_OK;
}

static tri_status names_run(names_pass *pass, rule_fn run)
{
    size_t most = 0;
    for (int r = 0; r < pass->family->rule_count; r++)
        for (int part = 0; part < TRI_VIEW_MAX_PARTS && pass->family->rules[r].theirs[part] != NULL; part++)
            most += strchr(pass->family->rules[r].theirs[part], '#') != NULL
                        ? (size_t)tri_hf_config_number(pass->config, TRI_ROLE_LAYERS)
                        : 1;
    pass->views = tri_arena_alloc(pass->arena, most + 1, sizeof(*pass->views));
    if (pass->views == NULL)
        return TRI_ENOMEM;
    for (int r = 0; r < pass->family->rule_count; r++)
        if (pass->family->rules[r].ours != NULL && rule_holds(pass, &pass->family->rules[r]))
            TRI_TRY(rule_walk(pass, &pass->family->rules[r], run));
    return check_names(pass);
}

/* A prefix is there when the first name with '@' is, with it. */
static bool set_has_prefix(const names_pass *pass)
{
    size_t length = strlen(pass->family->prefix);
    for (int i = 0; i < tri_tensor_set_count(pass->set); i++)
        if (strncmp(tri_tensor_set_at(pass->set, i)->name, pass->family->prefix, length) == 0)
            return true;
    return false;
}

static tri_status names_make(const tri_hf_config *config, const tri_tensor_set *set, bool to_ours, tri_arena *arena,
                             tri_tensor_view **views, int *count)
{
    names_pass pass = {.config = config, .family = tri_hf_config_family(config), .set = set, .arena = arena};
    pass.prefixed = to_ours ? set_has_prefix(&pass) : tri_hf_config_has_prefix(config);
    tri_status status = names_run(&pass, to_ours ? rule_to_ours : rule_to_theirs);
    tri_map_fini(&pass.known);
    *views = pass.views;
    *count = pass.count;
    return status;
}

tri_status tri_hf_names_ours(const tri_hf_config *config, const tri_tensor_set *theirs, tri_arena *arena,
                             tri_tensor_view **views, int *count)
{
    return names_make(config, theirs, true, arena, views, count);
}

tri_status tri_hf_names_theirs(const tri_hf_config *config, const tri_tensor_set *ours, tri_arena *arena,
                               tri_tensor_view **views, int *count)
{
    return names_make(config, ours, false, arena, views, count);
}

/* --- a head beside tied embeddings --- */

#define COMPARED_COUNT 4096 /* elements at once */

static bool elements_equal(const tri_tensor_view *one, const tri_tensor_view *other)
{
    double left[COMPARED_COUNT], right[COMPARED_COUNT];
    int64_t all = tri_shape_count(one->shape);
    if (!tri_shape_equal(one->shape, other->shape))
        return false;
    for (int64_t first = 0, count; first < all; first += count) {
        count = all - first < COMPARED_COUNT ? all - first : COMPARED_COUNT;
        tri_tensor_view_read_as(one, TRI_F64, first, count, left);
        tri_tensor_view_read_as(other, TRI_F64, first, count, right);
        for (int64_t i = 0; i < count; i++)
            if (left[i] != right[i] && !(isnan(left[i]) && isnan(right[i])))
                return false;
    }
    return true;
}

/* Under our name or theirs, with the prefix or without; NULL when it is not there. */
static const tri_stored_tensor *find_embedding(const tri_family *family, const tri_tensor_set *set)
{
    for (int i = 0; i < tri_tensor_set_count(set); i++) {
        const tri_stored_tensor *tensor = tri_tensor_set_at(set, i);
        for (int r = 0; r < family->rule_count; r++) {
            const tri_name_rule *rule = &family->rules[r];
            if (rule->ours != NULL && strcmp(rule->ours, family->embedding) == 0 &&
                (strcmp(tensor->name, rule->ours) == 0 || name_matches(family, rule->theirs[0], tensor->name)))
                return tensor;
        }
    }
    return NULL;
}

tri_status tri_hf_names_head_differs(const tri_hf_config *config, const tri_tensor_set *set, bool *differs,
                                     const tri_stored_tensor **head, const tri_stored_tensor **embedding)
{
    const tri_family *family = tri_hf_config_family(config);
    tri_tensor_view one, other;
    *differs = false;
    *head = *embedding = NULL;
    for (int r = 0; r < family->rule_count; r++)
        if (family->rules[r].when == TRI_WHEN_TIED)
            *head = tri_tensor_set_find(set, family->rules[r].theirs[0]);
    *embedding = find_embedding(family, set);
    if (tri_hf_config_number(config, TRI_ROLE_TIED) == 0 || *head == NULL || *embedding == NULL)
        return TRI_OK;
    TRI_TRY(tri_tensor_view_whole(*head, (*head)->name, &one));
    TRI_TRY(tri_tensor_view_whole(*embedding, (*embedding)->name, &other));
    *differs = !elements_equal(&one, &other);
    return TRI_OK;
}
