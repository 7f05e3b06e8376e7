/* SPDX-License-Identifier: Apache-2.0
 *
 * formed.pml: how a generation forms whose state is spread over its processes, and its steps (docs/design/recovery.md),
 * for spin: all orders of all words, kills and stops of a few processes.
 *
 * Generations are agreed upon in one step here; members.pml has them in all their requests. A process is a row of the
 * arrays below; what it decides by is C, formed.h.
 */
#ifndef N
#define N 3
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef STOPS
#define STOPS 1
#endif
#ifndef STEPS
#define STEPS 1
#endif
#define GENERATIONS (2 * KILLS + 2 * STOPS + 2) /* more than the faults can ask for */
#define CALLS (STEPS + 1)

/* where a process is: it has said what it has, and waits for a list; parts come; steps; at its end */
#define SPEAK 0
#define FORM 1
#define WORK 2
#define DONE 3

/* --- the store, by generation: bits are processes --- */
byte latest;
byte list[GENERATIONS + 2];
byte from_g[GENERATIONS + 2], from_s[GENERATIONS + 2]; /* the state that all find in its notes; 0: none */
byte formed[GENERATIONS + 2]; /* gen/<g>/formed: unclaimed, yes, no */
bool over;

/* --- what the members of a generation tell each other --- */
byte came[GENERATIONS + 2], sent[GENERATIONS + 2], gathered[GENERATIONS + 2];
bool told[GENERATIONS + 2]; /* the first rank's word */
byte sums[(GENERATIONS + 2) * CALLS], ready[(GENERATIONS + 2) * CALLS];

/* --- processes --- */
byte at[N], gen[N], calls[N];
bool dead[N], stopped[N];
bool complete[N], settled[N]; /* its parts are all there; and it knows that all have theirs */
byte set_g[N], set_s[N];
bool set_next[N];
byte kept_g[N], kept_s[N];                  /* what it had before */
bool kept_next[N];

byte made[GENERATIONS + 2]; /* steps that somebody has made with its sets */
byte front, front_gen;      /* the newest step, and the generation that made it first */
byte kills = KILLS, stops = STOPS;
byte broken; /* what must not be: a line of formed.h */

c_code {
#include "formed.h"
}

#define RUNS (!dead[i] && !stopped[i])
#define IN(who) (who[gen[i]] & (1 << i))

proctype worker(byte i)
{
    do
    :: atomic { RUNS && at[i] == SPEAK && gen[i] < latest -> c_code { enter(Pworker->i); check(); }; assert(broken == 0) }
    :: atomic { RUNS && at[i] == FORM && !IN(came) -> came[gen[i]] = came[gen[i]] | (1 << i) }
    :: atomic { RUNS && c_expr { (may_send(Pworker->i)) } -> sent[gen[i]] = sent[gen[i]] | (1 << i) }
    :: atomic { RUNS && c_expr { (may_fill(Pworker->i)) } -> c_code { fill(Pworker->i); } }
    :: atomic { RUNS && at[i] == FORM && complete[i] && !IN(gathered) -> gathered[gen[i]] = gathered[gen[i]] | (1 << i) }
    :: atomic { RUNS && c_expr { (may_tell(Pworker->i)) } -> c_code { tell(Pworker->i); check(); }; assert(broken == 0) }
    :: atomic { RUNS && c_expr { (may_hear(Pworker->i)) } -> c_code { kept_drop(Pworker->i); check(); }; assert(broken == 0) }
    :: atomic { RUNS && c_expr { (may_sum(Pworker->i)) } -> c_code { now.sums[call_of(Pworker->i)] |= 1 << Pworker->i; } }
    :: atomic { RUNS && c_expr { (may_ready(Pworker->i)) } -> c_code { ready(Pworker->i); } }
    :: atomic { RUNS && c_expr { (may_move(Pworker->i)) } -> c_code { move(Pworker->i); check(); }; assert(broken == 0) }
    :: atomic { RUNS && c_expr { (has_trouble(Pworker->i)) } -> c_code { give_up(Pworker->i); check(); }; assert(broken == 0) }
    :: atomic { RUNS && at[i] == WORK && set_s[i] == STEPS -> over = true; at[i] = DONE }
    :: atomic { RUNS && at[i] != DONE && over -> at[i] = DONE }
    :: dead[i] || at[i] == DONE -> break
    od
}

/* Whoever is first claims the list; which of those that are silent are in it depends on what is known of them. */
proctype agree(byte mask)
{
end:
    do
    :: atomic { c_expr { (may_list(Pagree->mask)) } -> c_code { make_list(Pagree->mask); check(); }; assert(broken == 0) }
    od
}

proctype fate(byte i)
{
end:
    do
    :: atomic { kills > 0 && at[i] != DONE && !dead[i] -> kills--; dead[i] = true }
    :: atomic { stops > 0 && at[i] != DONE && RUNS -> stops--; stopped[i] = true }
    :: atomic { stopped[i] -> stopped[i] = false }
    od
}

init {
    byte i;

    atomic {
        i = 0;
        do
        :: i < N -> run worker(i); run fate(i); i++
        :: else -> break
        od;
        i = 1;
        do
        :: i < (1 << N) -> run agree(i); i++
        :: else -> break
        od
    }
}
