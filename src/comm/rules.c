/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c: the user's choice of algorithms as text: "all_reduce:0-64k=tree,64k-=halving;broadcast:1M-=scatter".
 *
 * Operations between semicolons, ranges of bytes between commas; the upper end is not included and may be left out; k,
 * M and G are powers of 1024. A rule whose algorithm cannot run a call (halving with three ranks) is passed over.
 */
#include <ctype.h>
#include <string.h>

#include "comm/run.h"

typedef struct rules_text {
    const char *at;
    bool any_order;
    tri_rule *rules;
    int *count;
} rules_text;

static size_t word_length(const char *at)
{
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    return length;
}

static bool word_is(const char *at, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(at, name, length) == 0;
}

static tri_status parse_op(rules_text *text, tri_comm_op *out)
{
    size_t length = word_length(text->at);
    const char *names[TRI_COMM_OP_COUNT];
    size_t count = 0;
    for (int op = 1; op < TRI_COMM_OP_COUNT; op++) {
        if (op == TRI_COMM_BATCH)
            continue;
        names[count++] = tri_comm_op_name((tri_comm_op)op);
        if (word_is(text->at, length, names[count - 1])) {
            *out = (tri_comm_op)op;
            text->at += length;
            if (*text->at != ':')
                return tri_fail(TRI_ECONFIG, "comm.algorithm: want ':' after '%s', got '%.20s'", names[count - 1],
                                text->at);
            text->at++;
            return TRI_OK;
        }
    }
    char word[64] = "";
    memcpy(word, text->at, length < sizeof(word) - 1 ? length : sizeof(word) - 1);
    const char *near = tri_options_nearest(word, names, count);
    return tri_fail(TRI_ECONFIG, "comm.algorithm: want the name of an operation%s%s%s, got '%.20s'",
                    near ? " (such as '" : "", near ? near : "", near ? "')" : "", text->at);
}

static tri_status parse_nbytes(rules_text *text, int64_t *out)
{
    const char *start = text->at;
    int64_t value = 0;
    while (isdigit((unsigned char)*text->at) && value < INT64_C(1) << 40)
        value = value * 10 + (*text->at++ - '0');
    int shift = 0;
    switch (*text->at) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'M':
        shift = 20;
        break;
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (text->at == start || value >= INT64_C(1) << 40 || isdigit((unsigned char)*text->at) ||
        value > INT64_MAX >> shift)
        return tri_fail(TRI_ECONFIG, "comm.algorithm: want a number of bytes such as 64k, got '%.20s'", start);
    if (shift)
        text->at++;
    *out = value << shift;
    return TRI_OK;
}

static tri_status parse_algorithm(rules_text *text, tri_comm_op op, const tri_algorithm **out)
{
    size_t length = word_length(text->at);
    tri_string names = {0};
    for (int i = 0; tri_algorithms[i]; i++) {
        if (tri_algorithms[i]->op != op)
            continue;
        if (word_is(text->at, length, tri_algorithms[i]->name)) {
            *out = tri_algorithms[i];
            text->at += length;
            tri_string_fini(&names);
            return TRI_OK;
        }
        (void)tri_string_appendf(&names, "%s%s", names.nbytes ? ", " : "", tri_algorithms[i]->name);
    }
    tri_status status = tri_fail(TRI_ECONFIG, "comm.algorithm: want an algorithm of %s (%s), got '%.20s'",
                                 tri_comm_op_name(op), tri_string_text(&names), text->at);
    tri_string_fini(&names);
    return status;
}

static tri_status parse_rule(rules_text *text, tri_comm_op op)
{
    const char *start = text->at;
    tri_rule rule = {.op = op, .high = INT64_MAX};
    TRI_TRY(parse_nbytes(text, &rule.low));
    if (*text->at != '-')
        return tri_fail(TRI_ECONFIG, "comm.algorithm: want a range of bytes such as 0-64k or 64k-, got '%.20s'", start);
    text->at++;
    if (*text->at != '=')
        TRI_TRY(parse_nbytes(text, &rule.high));
    if (*text->at != '=')
        return tri_fail(TRI_ECONFIG, "comm.algorithm: want '=' and an algorithm after the range, got '%.20s'",
                        text->at);
    text->at++;
    if (rule.low >= rule.high)
        return tri_fail(TRI_ECONFIG, "comm.algorithm: the range '%.20s' is empty", start);
    TRI_TRY(parse_algorithm(text, op, &rule.algorithm));
    if (!text->any_order &&
        (rule.algorithm == &tri_all_reduce_by_ring || rule.algorithm == &tri_reduce_scatter_by_ring))
        return tri_fail(TRI_ECONFIG, "comm.algorithm: %s by ring needs comm.order = any, got canonical",
                        tri_comm_op_name(op));
    for (int i = 0; i < *text->count; i++) {
        const tri_rule *other = &text->rules[i];
        if (other->op == op && rule.low < other->high && other->low < rule.high)
            return tri_fail(TRI_ECONFIG, "comm.algorithm: two rules of %s overlap at '%.20s'", tri_comm_op_name(op),
                            start);
    }
    if (*text->count == TRI_COMM_RULES_MAX)
        return tri_fail(TRI_ECONFIG, "comm.algorithm: want at most %d rules, got more at '%.20s'", TRI_COMM_RULES_MAX,
                        start);
    text->rules[(*text->count)++] = rule;
    return TRI_OK;
}

tri_status tri_rules_parse(const char *text, bool any_order, tri_rule rules[TRI_COMM_RULES_MAX], int *rule_count)
{
    rules_text rest = {.at = text, .any_order = any_order, .rules = rules, .count = rule_count};
    *rule_count = 0;
    while (*rest.at) {
        tri_comm_op op;
        TRI_TRY(parse_op(&rest, &op));
        TRI_TRY(parse_rule(&rest, op));
        while (*rest.at == ',') {
            rest.at++;
            TRI_TRY(parse_rule(&rest, op));
        }
        if (*rest.at && *rest.at != ';')
            return tri_fail(TRI_ECONFIG, "comm.algorithm: want ',' or ';' after a rule, got '%.20s'", rest.at);
        if (*rest.at == ';')
            rest.at++;
    }
    return TRI_OK;
}

const tri_algorithm *tri_rules_find(const tri_comm *comm, tri_comm_op op, int64_t nbytes)
{
    for (int i = 0; i < comm->rule_count; i++) {
        const tri_rule *rule = &comm->rules[i];
        if (rule->op == op && nbytes >= rule->low && nbytes < rule->high)
            return rule->algorithm;
    }
    return NULL;
}
