/* SPDX-License-Identifier: Apache-2.0
 *
 * offers.c: what the algorithms of an operation would be for a call: names, prices, and why one cannot.
 *
 * For those who compare algorithms (trireme sim); calls themselves are selected in select.c, by the same prices.
 */
#include <stdio.h>

#include "comm/run.h"

const char *tri_comm_algorithm_name(tri_comm_op op, int index)
{
    for (int i = 0; tri_algorithms[i]; i++) {
        if (tri_algorithms[i]->op == op && index-- == 0)
            return tri_algorithms[i]->name;
    }
    return NULL;
}

bool tri_comm_needs_any(tri_comm_op op, const char *algorithm)
{
    tri_rule rules[TRI_COMM_RULES_MAX];
    char text[128];
    int count;

    snprintf(text, sizeof(text), "%s:0-=%s", tri_comm_op_name(op), algorithm);
    return tri_rules_parse(text, false, rules, &count) != TRI_OK &&
           tri_rules_parse(text, true, rules, &count) == TRI_OK;
}

int tri_comm_offers(const tri_group *group, tri_comm_op op, int64_t nbytes, bool canonical, tri_comm_offer *offers,
                    int limit)
{
    tri_call call = {.group = (tri_group *)(uintptr_t)group,
                     .op = op,
                     .dtype = nbytes % 4 ? TRI_U8 : TRI_F32,
                     .canonical = canonical || tri_comm_is_tree(op),
                     .count = nbytes % 4 ? nbytes : nbytes / 4,
                     .place = {INT64_C(1) << tri_log_ceil(group->count), 0, group->count}};
    int count = 0, cheapest = -1;
    for (int i = 0; tri_algorithms[i] && count < limit; i++) {
        const tri_algorithm *algorithm = tri_algorithms[i];
        if (algorithm->op != op)
            continue;
        tri_comm_offer *offer = &offers[count++];
        *offer = (tri_comm_offer){.name = algorithm->name};
        offer->cannot = algorithm->cannot ? algorithm->cannot(&call) : NULL;
        if (offer->cannot)
            continue;
        offer->price_us = algorithm->cost_us(&group->price, group->count, (double)nbytes);
        if (cheapest < 0 || offer->price_us < offers[cheapest].price_us)
            cheapest = count - 1;
    }
    if (cheapest >= 0)
        offers[cheapest].cheapest = true;
    return count;
}
