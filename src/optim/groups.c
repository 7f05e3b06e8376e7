/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.c: optim.groups: a list of rules, each a glob over names of parameters and what is different for them.
 *
 * The first rule that fits a name decides. Buffers are not trained, so no rule speaks of them.
 */
#include "optim/groups.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/yaml.h"

bool optim_glob_fits(const char *glob, const char *text)
{
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*glob == '*') {
            star = glob++;
            retry = text;
        } else if (*glob == '?' || *glob == *text) {
            glob++;
            text++;
        } else if (star) { /* the last * takes one character more */
            glob = star + 1;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return *glob == 0;
}

/* --- reading --- */

static tri_status rule_read(const tri_yaml *node, int number, optim_rule *rule)
{
    static const char *const names[] = {"match", "lr_scale", "weight_decay"};
    char what[64];
    if (node->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "optim.groups: rule %d: want fields such as {match: \"*.bias\", weight_decay: 0}",
                        number);
    *rule = (optim_rule){.lr_scale = 1, .weight_decay = NAN};
    for (const tri_yaml *field = node->child; field; field = field->next) {
        snprintf(what, sizeof(what), "optim.groups: rule %d: %.30s", number, field->key);
        if (strcmp(field->key, "match") == 0) {
            if (field->kind != TRI_YAML_SCALAR || strlen(field->text) >= sizeof(rule->match))
                return tri_fail(TRI_ECONFIG, "%s: want one glob of at most %zu bytes", what, sizeof(rule->match) - 1);
            strcpy(rule->match, field->text);
        } else if (strcmp(field->key, "lr_scale") == 0) {
            TRI_TRY(tri_yaml_real(field, what, 0, 1e6, &rule->lr_scale));
        } else if (strcmp(field->key, "weight_decay") == 0) {
            TRI_TRY(tri_yaml_real(field, what, 0, 1e3, &rule->weight_decay));
        } else {
            const char *nearest = tri_options_nearest(field->key, names, TRI_COUNT_OF(names));
            return tri_fail(TRI_ECONFIG, "%s: want match, lr_scale or weight_decay%s%s%s", what,
                            nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
        }
    }
    if (!rule->match[0])
        return tri_fail(TRI_ECONFIG, "optim.groups: rule %d: want match, a glob over names of parameters", number);
    return TRI_OK;
}

static tri_status rules_read(optim_groups *groups, const tri_optim_config *config)
{
    tri_arena arena = {0};
    tri_yaml *list = NULL;
    groups->rules[0] = (optim_rule){.lr_scale = 1, .weight_decay = NAN};
    groups->count = 1;
    tri_status status = tri_yaml_parse(&arena, config->groups, strlen(config->groups), "optim.groups", &list);
    if (status == TRI_OK && list->kind != TRI_YAML_LIST)
        status = tri_fail(TRI_ECONFIG, "optim.groups: want a list of rules, got '%.100s'", config->groups);
    if (status == TRI_OK && tri_yaml_count(list) >= OPTIM_MAX_GROUPS)
        status = tri_fail(TRI_ECONFIG, "optim.groups: want at most %d rules, got %d", OPTIM_MAX_GROUPS - 1,
                          tri_yaml_count(list));
    for (const tri_yaml *node = list ? list->child : NULL; node && status == TRI_OK; node = node->next) {
        status = rule_read(node, groups->count, &groups->rules[groups->count]);
        groups->count++;
    }
    tri_arena_fini(&arena);
    return status;
}

/* --- who follows which --- */

static int group_of(const optim_groups *groups, const char *name)
{
    for (int g = 1; g < groups->count; g++)
        if (optim_glob_fits(groups->rules[g].match, name))
            return g;
    return 0;
}

/* A rule that decides for nobody in the whole model: a name was mistyped, or an earlier rule takes all that it names.
 */
static tri_status check_used(const optim_groups *groups, const tri_params *params, int group)
{
    const char *match = groups->rules[group].match, *names[256] = {NULL}, *taken = NULL;
    size_t count = 0;
    for (int p = 0; p < params->model_count; p++) {
        const char *name = params->names[p];
        int decides = name ? group_of(groups, name) : 0;
        if (!name)
            continue;
        if (decides == group)
            return TRI_OK;
        if (optim_glob_fits(match, name))
            taken = groups->rules[decides].match;
        if (count < TRI_COUNT_OF(names))
            names[count++] = name;
    }
    if (taken)
        return tri_fail(TRI_ECONFIG, "optim.groups: rule %d: all that '%s' names is taken by earlier rules, as by '%s'",
                        group, match, taken);
    const char *nearest = tri_options_nearest(match, names, count);
    return tri_fail(TRI_ECONFIG, "optim.groups: rule %d: '%s' names no parameter%s%s%s", group, match,
                    count > 0 ? "; there is '" : "",
                    nearest     ? nearest
                    : count > 0 ? names[0]
                                : "",
                    count > 0 ? "'" : "");
}

tri_status optim_groups_init(optim_groups *groups, const tri_optim_config *config, const tri_params *params)
{
    *groups = (optim_groups){0};
    TRI_TRY(rules_read(groups, config));
    groups->of_entry = tri_alloc_zero((size_t)params->entry_count + 1, sizeof(*groups->of_entry));
    if (!groups->of_entry)
        return TRI_ENOMEM;
    for (int e = 0; e < params->entry_count; e++)
        if (!params->entries[e].buffer)
            groups->of_entry[e] = (uint8_t)group_of(groups, params->entries[e].name);
    for (int g = 1; g < groups->count; g++)
        TRI_TRY(check_used(groups, params, g));
    return TRI_OK;
}

void optim_groups_fini(optim_groups *groups)
{
    tri_free(groups->of_entry);
    groups->of_entry = NULL;
}

double optim_groups_decay(const optim_groups *groups, const tri_optim_config *config, const tri_params *params,
                          int entry)
{
    const optim_rule *rule = &groups->rules[groups->of_entry[entry]];
    if (!isnan(rule->weight_decay))
        return rule->weight_decay;
    bool all = config->decay == TRI_DECAY_ALL;
    return all || params->entries[entry].decay ? config->weight_decay : 0;
}

/* --- for people --- */

typedef struct group_sum {
    int entries;
    int64_t elements;
    double decay;
} group_sum;

static tri_status line_append(const char *prefix, const char *title, const group_sum *sum, double lr, tri_string *out)
{
    if (sum->entries == 0)
        return TRI_OK;
    return tri_string_appendf(out, "%s%s: %d parameter%s, %lld element%s, lr %g, weight decay %g\n", prefix, title,
                              sum->entries, sum->entries == 1 ? "" : "s", (long long)sum->elements,
                              sum->elements == 1 ? "" : "s", lr, sum->decay);
}

/* Of one group, those that decay and those that do not. */
static tri_status group_append(const optim_groups *groups, const tri_optim_config *config, const tri_params *params,
                               int group, const char *prefix, tri_string *out)
{
    group_sum sums[2] = {{0}};
    for (int e = 0; e < params->entry_count; e++) {
        double decay = optim_groups_decay(groups, config, params, e);
        if (params->entries[e].buffer || groups->of_entry[e] != group)
            continue;
        group_sum *sum = &sums[decay > 0];
        sum->entries++;
        sum->elements += params->entries[e].count;
        sum->decay = decay;
    }
    char title[160] = "the others";
    if (group > 0)
        snprintf(title, sizeof(title), "rule %d \"%s\"", group, groups->rules[group].match);
    else if (groups->count == 1)
        strcpy(title, "all parameters");
    if (sums[0].entries > 0 && sums[1].entries > 0 && group == 0)
        strcat(title, " by optim.decay");
    for (int decays = 1; decays >= 0; decays--)
        TRI_TRY(line_append(prefix, title, &sums[decays], config->lr * groups->rules[group].lr_scale, out));
    return TRI_OK;
}

tri_status tri_optim_groups_print(const tri_optim_config *config, const tri_params *params, const char *prefix,
                                  tri_string *out)
{
    optim_groups groups;
    tri_status status = optim_groups_init(&groups, config, params);
    for (int g = 1; g < groups.count && status == TRI_OK; g++)
        status = group_append(&groups, config, params, g, prefix, out);
    if (status == TRI_OK)
        status = group_append(&groups, config, params, 0, prefix, out);
    optim_groups_fini(&groups);
    return status;
}
