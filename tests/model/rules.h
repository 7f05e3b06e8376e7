/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.h: what the models share: rules that can be left out, and what must hold; `now` is the state of the model.
 */

/* DROP=n (environment): the rule that is left out; 0: none is. */
static int rule_dropped(void)
{
    static int rule = -1;
    if (rule < 0)
        rule = getenv("DROP") ? atoi(getenv("DROP")) : 0;
    return rule;
}
#define DROP rule_dropped()

/* What was broken first stays. */
static void must(int holds, int what)
{
    if (!holds && !now.broken)
        now.broken = what;
}

/* --- sets of processes --- */

static int has(int mask, int i)
{
    return mask >> i & 1;
}

static int count_of(int mask)
{
    return __builtin_popcount((unsigned)mask);
}
