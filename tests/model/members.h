/* SPDX-License-Identifier: Apache-2.0
 *
 * members.h: what a process of members.pml decides by; `now` is the state of the model. Beside each rule stands the
 * function of the product that it is.
 *
 * DROP=n (environment) leaves out rule n of docs/design/recovery.md; 17, 18 and 19 are parts of 6 and 7 that were
 * missing before the simulator and this model asked for them, 20 is a part of 10.
 */
#include "rules.h"

enum { NO_TWO_LISTS = 1, NO_LOST_STATE, NO_OTHER_INPUTS, NO_TWO_RUNS, NO_END };

/* Its links are silent, or closed: it is dead, stopped, cut off (tri_comm_has_lost). */
static int is_silent(int j)
{
    return now.dead[j] || now.stopped[j] || now.deaf[j];
}

/* Others have gone on without it, or are done; or no other one of its generation is left that has a state, and could go
 * on without its own: it is waited for then (7), for which there is no limit here. */
static int is_left(int i)
{
    int others = 0;
    for (int j = 0; j < ALL; j++)
        others |= j != i && !now.dead[j] && now.state[j] && now.gen[j] == now.gen[i] && has(now.list[now.gen[i]], j);
    if (!others)
        return 1;
    for (int g = now.gen[i] + 1; g <= GENERATIONS; g++)
        if (now.list[g] && !has(now.list[g], i))
            return 1;
    return now.over;
}

static int has_quit(int j, int g)
{
    return now.dead[j] || now.gen[j] > g || has(now.inside[g + 1], j) || now.at[j] == DONE;
}

/* What nobody can ask for any more is forgotten (tri_members_sweep), so that fewer states differ. */
static void forget(void)
{
    int oldest = GENERATIONS;
    for (int j = 0; j < ALL; j++)
        if (!now.dead[j] && now.at[j] != DONE && now.at[j] != BORN && now.gen[j] < oldest)
            oldest = now.gen[j];
    for (int g = 0; g < oldest; g++) {
        now.list[g] = 1;
        now.newest[g] = now.absent[g] = now.inside[g] = now.outside[g] = now.came[g] = 0;
        for (int c = g * CALLS; c < (g + 1) * CALLS; c++)
            now.given[c] = now.of_step[c] = 0;
    }
}

static void die(int i)
{
    now.dead[i] = 1;
    now.deaf[i] = now.unlinked[i] = 0;
    now.stopped[i] = now.calls[i] = now.lost[i] = now.looked[i] = now.seen[i] = now.seen_absent[i] = now.gen[i] = 0;
    forget();
}

static void enter(int i, int g) /* members.c, adopt() */
{
    now.gen[i] = (uchar)g;
    now.lost[i] = now.calls[i] = now.seen[i] = now.seen_absent[i] = 0;
    now.looked[i] = now.unlinked[i] = 0;
    now.at[i] = has(now.list[g], i) ? FORM : OUT;
    must(g <= GENERATIONS, NO_END);
    forget();
}

static void newcomer(int i) /* members.c, newest_find(), register_newcomer() */
{
    int g = now.gen[i];
    while (now.list[g + 1])
        g++;
    if (g != now.gen[i])
        enter(i, g);
    if (now.over)
        now.at[i] = DONE;
    else if (now.at[i] == OUT) {
        now.outside[g + 1] |= 1 << i;
        now.at[i] = NEWCOMER;
    }
}

/* --- (5), (6), (7): members.c, leads(), missing_find(), list_make() --- */

/* (10) Where links were never made a member takes for lost whoever has not registered, at any time, be it too early
 * (members.c: is_silent(), missing_find()). */
static int is_away(int i, int j)
{
    if (has(now.gone, j))
        return 1;
    if (now.at[i] == MEMBER && now.unlinked[i])
        return DROP != 10 && i != j && !has(now.inside[now.gen[i] + 1], j);
    return now.at[i] == MEMBER && (has(now.lost[i], j) || is_silent(j));
}

static int best_of(int mask)
{
    int best = -1;
    for (int j = 0; j < ALL; j++)
        if (has(mask, j) && now.state[j] > (best < 0 ? 0 : now.state[best]))
            best = j;
    return best;
}

static int first_of(int mask, int most)
{
    int some = 0;
    for (int j = 0; j < ALL && count_of(some) < most; j++)
        some |= mask & 1 << j;
    return some;
}

/* The next list as i would make it; -1: not yet. */
static int list_of(int i, int *left_out)
{
    int g = now.gen[i], old = 0, news = now.outside[g + 1] & ~now.gone, some = 0, silent;
    for (int j = 0; j < ALL; j++) {
        if (!has(now.list[g], j))
            continue;
        int here = has(now.inside[g + 1], j), away = is_away(i, j);
        old |= (here && !away) << j;
        if (DROP != 5 && !away && (!here || now.at[i] == NEWCOMER || (j < i && !(now.unlinked[i] && DROP != 20))))
            return -1; /* (10): the first may have registered and be deaf (leads()) */
    }
    if (DROP != 5 && now.at[i] == NEWCOMER && (news & ((1 << i) - 1)))
        return -1;
    silent = now.list[g] & now.inside[g + 1] & ~now.gone;
    if (DROP != 18 && best_of(old) < 0 && best_of(news) >= 0)
        some = 1 << best_of(news); /* whoever alone has a state is in it in any case (list_shorten) */
    else if (DROP != 19 && best_of(old) < 0 && best_of(silent) >= 0)
        some = 1 << best_of(silent);
    some |= first_of(old & ~some, N - count_of(some));
    some |= first_of(news & ~some, N - count_of(some));
    *left_out = now.list[g] | (DROP == 17 ? 0 : now.absent[g]);
    for (int j = 0; j < ALL; j++) {
        if (has(now.inside[g + 1] | news, j) && !now.state[j]) /* it has said that it has none */
            *left_out &= ~(1 << j);
        *left_out |= (has(news, j) && now.state[j] > 0) << j;
    }
    *left_out &= ~now.gone & ~some;
    if (DROP != 7 && g > 0 && best_of(some) < 0 && best_of(news) < 0 && *left_out)
        return -1;
    return some ? some : -1;
}

static int may_claim(int i)
{
    int left_out;
    if ((now.at[i] != MEMBER && now.at[i] != NEWCOMER) || now.list[now.gen[i] + 1])
        return 0;
    return (now.at[i] == MEMBER || !now.over) && list_of(i, &left_out) >= 0;
}

static void look(int i)
{
    int left_out = 0;
    now.seen[i] = (uchar)list_of(i, &left_out);
    now.seen_absent[i] = (uchar)left_out;
    now.looked[i] = 1;
}

/* Nothing is lost while one has it: a list in which nobody has a state is of those that alone are left. */
static void loss_check(int g)
{
    for (int j = 0; j < ALL; j++)
        must(now.newest[g] || g == 1 || now.dead[j] || !now.state[j] || now.over, NO_LOST_STATE);
}

static void claim(int i) /* members.c, claim(): the first one stands */
{
    int g = now.gen[i] + 1, best = best_of(now.seen[i]);
    for (int j = 0; j < ALL; j++) /* (6) dropped: whoever has gone by the one before goes by another one */
        must(DROP != 6 || !now.list[g] || now.list[g] == now.seen[i] || now.gen[j] != g || now.dead[j], NO_TWO_LISTS);
    if (DROP == 6 || !now.list[g]) {
        now.list[g] = now.seen[i];
        now.absent[g] = now.seen_absent[i];
        now.newest[g] = best < 0 ? 0 : now.state[best];
        loss_check(g);
    }
    enter(i, g);
}

/* --- (9): reform.c, state_find(), state_share() --- */

/* One that has the newest state and is still there. */
static int source_of(int i)
{
    int g = now.gen[i];
    for (int j = 0; j < ALL; j++)
        if (has(now.list[g], j) && !is_silent(j) && now.gen[j] == g && (now.at[j] == FORM || now.at[j] == WORK) &&
            now.state[j] >= now.newest[g])
            return j;
    return -1;
}

static int may_take(int i)
{
    int g = now.gen[i];
    if (now.came[g] != now.list[g])
        return 0;
    return DROP == 9 || !now.newest[g] || now.state[i] >= now.newest[g] || source_of(i) >= 0;
}

static void take(int i)
{
    int g = now.gen[i];
    if (!now.state[i] && (DROP == 9 || !now.newest[g]))
        now.state[i] = 1; /* that of the seed */
    else if (DROP != 9 && now.state[i] < now.newest[g])
        now.state[i] = now.newest[g];
    now.at[i] = WORK;
}

/* --- steps: step.c, reform.c, generation_run() --- */

static int works(int i)
{
    return now.at[i] == WORK || (DROP == 3 && now.at[i] == MEMBER && now.state[i]);
}

static int call_of(int i)
{
    return now.gen[i] * CALLS + now.calls[i];
}

static int may_give(int i)
{
    return works(i) && now.calls[i] < CALLS && !has(now.given[call_of(i)], i);
}

/* Its part of a sum, or at the end of the barrier: the step has the same inputs whoever makes it. */
static void give(int i)
{
    int call = call_of(i);
    if (!now.given[call])
        now.of_step[call] = now.state[i];
    must(now.of_step[call] == now.state[i], NO_OTHER_INPUTS);
    now.given[call] |= 1 << i;
}

static int may_step(int i)
{
    return works(i) && now.calls[i] < CALLS && now.given[call_of(i)] == now.list[now.gen[i]];
}

static void step(int i)
{
    if (now.state[i] > STEPS) {
        now.over = 1;
        now.at[i] = DONE;
        return;
    }
    now.state[i]++;
    now.calls[i]++;
    if (now.state[i] <= now.front)
        return;
    must(now.gen[i] >= now.front_gen, NO_TWO_RUNS);
    now.front = now.state[i];
    now.front_gen = now.gen[i];
}

/* --- (3): train/elastic/elastic.c, generations_run() --- */

static int has_trouble(int i)
{
    int g = now.gen[i], trouble = 0;
    if (now.at[i] != FORM && now.at[i] != WORK)
        return 0;
    for (int j = 0; j < ALL; j++)
        trouble |= j != i && has(now.list[g], j) && (is_silent(j) || has(now.gone, j) || has_quit(j, g));
    return trouble || (now.outside[g + 1] && count_of(now.list[g]) < N && now.at[i] == WORK);
}

static void give_up(int i)
{
    int g = now.gen[i];
    now.unlinked[i] = now.at[i] == FORM && now.came[g] != now.list[g];
    for (int j = 0; j < ALL && !now.unlinked[i]; j++)
        now.lost[i] |= (j != i && has(now.list[g], j) && is_silent(j)) << j;
    now.inside[g + 1] |= 1 << i;
    now.at[i] = MEMBER;
}
