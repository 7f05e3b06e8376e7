/* SPDX-License-Identifier: Apache-2.0
 *
 * formed.h: what a process of formed.pml decides by; `now` is the state of the model. Beside each rule stands the
 * function of the product that it is.
 *
 * A set is (generation of its layout, steps that it has made, ready for the next one). After step s of generation g the
 * process of rank r has role r and the mirror of half the way around; nothing else of it is looked at.
 *
 * DROP=n (environment) leaves out a rule of docs/design/recovery.md: 21 to 23 of how a generation forms, 24 to 26 of
 * a step.
 */
#include "rules.h"

enum { NO_SET = 1, NO_STEP, NO_LOST_STATE, NO_TWO_RUNS, NO_END };
enum { UNCLAIMED, YES, NO };

static int rank_of(int g, int i)
{
    return count_of(now.list[g] & ((1 << i) - 1));
}

/* --- sets --- */

/* Roles of generation g that a process has with its set of it: train/elastic/assignment.c, tri_assignment_mirror(). */
static int roles_of(int g, int i)
{
    int ranks = count_of(now.list[g]), rank = rank_of(g, i);
    return 1 << rank | (ranks > 1 ? 1 << (rank + ranks / 2) % ranks : 0);
}

/* What it says that it has: reform_roles.c, tri_job_assignment_note(). */
typedef struct set {
    int g, s, next;
} set;

static set kept_of(int i)
{
    return (set){now.kept_g[i], now.kept_s[i], now.kept_next[i]};
}

static set set_of(int i)
{
    return (set){now.complete[i] ? now.set_g[i] : 0, now.set_s[i], now.set_next[i]};
}

/* train/elastic/assignment.c, tri_assignment_source() */
static int gives(set one, int g, int s)
{
    return one.g == g && g > 0 && (one.s == s || (one.next && one.s + 1 == s));
}

static int is_whole(int mask, int g, int s)
{
    int roles = 0;
    for (int i = 0; i < N; i++)
        if (has(mask, i) && (gives(kept_of(i), g, s) || gives(set_of(i), g, s)))
            roles |= roles_of(g, i);
    return roles == (1 << count_of(now.list[g])) - 1;
}

/* The state after the most steps that one of them has made, of several the newest generation's: tri_assignment_find().
 * (25) dropped: those that are ready make a step alone. */
static set find(int mask)
{
    set best = {0, 0, 0};
    for (int i = 0; i < 2 * N; i++) {
        set one = i % 2 ? set_of(i / 2) : kept_of(i / 2);
        int s = one.s + (DROP == 25 && one.next);
        if (!has(mask, i / 2) || !one.g || !is_whole(mask, one.g, s))
            continue;
        if (!best.g || s > best.s || (s == best.s && one.g > best.g))
            best = (set){one.g, s, 0};
    }
    return best;
}

/* --- what must hold --- */

static int newest_formed(void)
{
    int g = now.latest;
    while (g > 0 && now.formed[g] != YES)
        g--;
    return g;
}

/* A and B of docs/design/recovery.md; they are what the claim is for. */
static void check(void)
{
    int a = newest_formed();
    for (int i = 0; i < N; i++) {
        if (!a || !has(now.list[a], i) || now.dead[i] || now.at[i] == DONE)
            continue;
        set one = now.kept_g[i] == a ? kept_of(i) : set_of(i);
        must(one.g == a, NO_SET);
        must(one.g != a || one.s >= now.made[a] || (one.next && one.s + 1 == now.made[a]), NO_STEP);
    }
}

/* A state is lost only if both that had a role of it are dead. */
static void loss_check(void)
{
    int a = newest_formed(), living = 0;
    for (int i = 0; i < N; i++)
        if (has(now.list[a], i) && !now.dead[i])
            living |= roles_of(a, i);
    must(!a || living != (1 << count_of(now.list[a])) - 1, NO_LOST_STATE);
}

/* --- generations: cluster/members.c, in one step; members.pml has them in all their steps --- */

static int is_silent(int i)
{
    return now.dead[i] || now.stopped[i];
}

static int speaks(int i)
{
    return now.at[i] == SPEAK && now.gen[i] == now.latest;
}

/* May these be the next list? All that are heard are in it; who is silent may be, or is left out. A state that may come
 * is waited for. */
static int may_list(int mask)
{
    int missing = 0;
    if (now.over || !mask || mask >> N)
        return 0;
    for (int i = 0; i < N; i++) {
        if (has(mask, i) ? !speaks(i) : speaks(i) && !is_silent(i))
            return 0;
        if (!has(mask, i) && has(now.list[now.latest], i) && !is_silent(i))
            return 0;
        missing |= !has(mask, i) && !now.dead[i];
    }
    return !now.latest || find(mask).g || !missing;
}

static void make_list(int mask)
{
    int g = now.latest + 1;
    set found = find(mask);
    must(g <= GENERATIONS, NO_END);
    if (g > GENERATIONS)
        return;
    if (!found.g)
        loss_check();
    now.list[g] = (uchar)mask;
    now.from_g[g] = (uchar)found.g;
    now.from_s[g] = (uchar)found.s;
    now.latest = (uchar)g;
}

/* reform_roles.c, tri_job_decide(), sets_keep(): what it is ready with is made, if the list names one that has made it;
 * then it is what it had that stays until the new one has formed. */
static void enter(int i)
{
    int g = ++now.gen[i], from_g = now.from_g[g], from_s = now.from_s[g];
    if (!has(now.list[g], i))
        return;
    if (now.set_next[i] && now.complete[i] && now.set_g[i] == from_g && now.set_s[i] + 1 == from_s) {
        now.set_s[i]++;
        now.set_next[i] = 0;
    }
    if (now.kept_next[i] && now.kept_g[i] == from_g && now.kept_s[i] + 1 == from_s) {
        now.kept_s[i]++;
        now.kept_next[i] = 0;
    }
    if (now.complete[i] && !(now.kept_g[i] && now.kept_g[i] == from_g)) {
        now.kept_g[i] = now.set_g[i];
        now.kept_s[i] = now.set_s[i];
        now.kept_next[i] = DROP == 24 ? 0 : now.set_next[i]; /* due.c */
    }
    now.complete[i] = now.settled[i] = now.set_s[i] = now.set_next[i] = now.calls[i] = 0;
    now.set_g[i] = (uchar)g;
    now.at[i] = FORM;
    if (now.made[g] < from_s)
        now.made[g] = (uchar)from_s;
}

/* --- a generation forms: tri_job_assignment_find(), tri_job_check_equal(), tri_job_assignment_settle() --- */

/* Its elements go to all that want them. */
static int may_send(int i)
{
    int g = now.gen[i];
    return now.at[i] == FORM && now.came[g] == now.list[g] && !has(now.sent[g], i);
}

static int may_fill(int i)
{
    return now.at[i] == FORM && !now.complete[i] && now.sent[now.gen[i]] == now.list[now.gen[i]];
}

static void fill(int i)
{
    now.complete[i] = 1;
    now.set_s[i] = now.from_s[now.gen[i]];
}

static void kept_drop(int i)
{
    now.kept_g[i] = now.kept_s[i] = now.kept_next[i] = 0;
    now.settled[i] = 1;
    now.at[i] = WORK;
}

/* Out of the all-gather that all enter when they have all parts; (22) dropped: nobody waits for it. */
static int is_out(int i)
{
    return now.at[i] == FORM && now.complete[i] && (DROP == 22 || now.gathered[now.gen[i]] == now.list[now.gen[i]]);
}

/* The first rank's word, and its claim; (23) dropped: it tells and does not ask. */
static int may_tell(int i)
{
    return is_out(i) && rank_of(now.gen[i], i) == 0 && !now.told[now.gen[i]] &&
           (DROP == 23 || now.formed[now.gen[i]] != NO);
}

static void tell(int i)
{
    int g = now.gen[i];
    now.formed[g] = YES;
    now.told[g] = 1;
    kept_drop(i);
}

static int may_hear(int i)
{
    return now.at[i] == FORM && now.complete[i] && now.told[now.gen[i]];
}

/* --- steps: step.c, mirrors.c --- */

static int call_of(int i)
{
    return now.gen[i] * CALLS + now.calls[i];
}

static int may_sum(int i)
{
    return now.at[i] == WORK && now.set_s[i] < STEPS && now.calls[i] < CALLS && !has(now.sums[call_of(i)], i);
}

/* All sums are there, its own and those of its mirror. */
static int may_ready(int i)
{
    return now.at[i] == WORK && now.calls[i] < CALLS && !now.set_next[i] && has(now.sums[call_of(i)], i) &&
           now.sums[call_of(i)] == now.list[now.gen[i]];
}

static void ready(int i)
{
    now.set_next[i] = 1;
    now.ready[call_of(i)] |= 1 << i;
}

/* Out of the barrier; (26) dropped: there is none. */
static int may_move(int i)
{
    return now.at[i] == WORK && now.set_next[i] && (DROP == 26 || now.ready[call_of(i)] == now.list[now.gen[i]]);
}

static void move(int i)
{
    int g = now.gen[i];
    now.set_s[i]++;
    now.set_next[i] = 0;
    now.calls[i]++;
    if (now.set_s[i] > now.made[g])
        now.made[g] = now.set_s[i];
    if (now.set_s[i] <= now.front)
        return;
    must(g >= now.front_gen, NO_TWO_RUNS);
    now.front = now.set_s[i];
    now.front_gen = (uchar)g;
}

/* --- a peer is lost: elastic.c, generation_find(); reform_roles.c, tri_job_assignment_resolve() --- */

static int has_trouble(int i)
{
    int g = now.gen[i];
    if (now.at[i] != FORM && now.at[i] != WORK)
        return 0;
    for (int j = 0; j < N; j++)
        if (j != i && has(now.list[g], j) &&
            (is_silent(j) || now.gen[j] > g || (now.gen[j] == g && now.at[j] == SPEAK)))
            return 1;
    return now.formed[g] == NO;
}

/* Before it says what it has it asks whether the generation has formed, and its word stands if nobody has claimed. */
static void give_up(int i)
{
    int g = now.gen[i];
    now.at[i] = SPEAK;
    if (now.settled[i])
        return;
    if (now.complete[i] && DROP != 21 && now.formed[g] == UNCLAIMED)
        now.formed[g] = NO;
    if (now.complete[i] && now.formed[g] == YES) {
        kept_drop(i);
        now.at[i] = SPEAK;
    } else if (DROP != 21) /* dropped: nobody asks, and both are said */
        now.complete[i] = 0;
}
