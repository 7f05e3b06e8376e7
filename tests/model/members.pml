/* SPDX-License-Identifier: Apache-2.0
 *
 * members.pml: the protocol of generations (docs/design/recovery.md, src/cluster/members.c) with a training in
 * small, for spin: all orders of all requests, kills, stops and joins of a few processes.
 *
 * A process is a row of the arrays below; what it decides by is C, members.h. One step of the model is one request to
 * the store, one look at who is there, one word heard, or one fault. Numbers are rules of the design. Nothing goes in
 * circles but a wait, so what never ends would be a state in which nobody can go on: an invalid end state.
 */
#ifndef N
#define N 3 /* processes that begin; also the most that a list has */
#endif
#ifndef JOINS
#define JOINS 1 /* others, which come at any time */
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef STOPS
#define STOPS 1
#endif
#ifndef DEAF /* that are heard and hear nothing, until the others have gone on */
#define DEAF 0
#endif
#ifndef STEPS
#define STEPS 2
#endif
#define ALL (N + JOINS)
#define GENERATIONS (KILLS + 2 * STOPS + 3 * DEAF + 2 * JOINS + 3) /* more than the faults can ask for */
#define CALLS (STEPS + 2)

/* where a process is: not started; in no list; registered for the next list, from outside or from inside the present
 * one; making links; in steps; at its end */
#define BORN 0
#define OUT 1
#define NEWCOMER 2
#define MEMBER 3
#define FORM 4
#define WORK 5
#define DONE 6

/* --- the store, by generation: bits are processes --- */
byte list[GENERATIONS + 2];    /* gen/<g>, claimed once; 0: not yet */
byte newest[GENERATIONS + 2];  /* the largest progress in it; 0: nobody has a state */
byte absent[GENERATIONS + 2];  /* left out of it, and not known to have ended */
byte inside[GENERATIONS + 2];  /* gen/<g>/in/<id> */
byte outside[GENERATIONS + 2]; /* gen/<g>/new/<i> */
byte gone;                     /* gone/<id> */
bool over;                     /* gen/over */

/* --- processes --- */
byte at[ALL];
bool dead[ALL], stopped[ALL], deaf[ALL];
bool unlinked[ALL]; /* its generation has no links: nobody's watch tells who is there (10) */
byte gen[ALL];    /* the generation it knows of */
byte state[ALL];  /* s + 1: after s steps; 0: none */
byte calls[ALL];  /* collective calls that it has made in this generation */
byte lost[ALL];   /* members of it that its watch has given up */
bool looked[ALL]; /* it has seen who is there, and claims that next: */
byte seen[ALL], seen_absent[ALL];

/* --- what the members of a generation do together; nobody of another one gets a word in (8) --- */
byte came[GENERATIONS + 2];
byte given[(GENERATIONS + 2) * CALLS];   /* whose part of a sum is there */
byte of_step[(GENERATIONS + 2) * CALLS]; /* that it is of */

byte front, front_gen; /* the newest step that anybody has made, and the generation that made it first */
byte kills = KILLS, stops = STOPS, deafs = DEAF;
byte broken; /* what must not be: a line of members.h */

c_code {
#include "members.h"
}

#define RUNS (!dead[i] && !stopped[i] && !deaf[i])

proctype worker(byte i)
{
    do
    /* a process that is in no list: the newest one (10), and a ticket for the next (4) */
    :: atomic { RUNS && at[i] == OUT -> c_code { newcomer(Pworker->i); } }
    /* somebody has closed the next one (6) */
    :: atomic { RUNS && (at[i] == NEWCOMER || at[i] == MEMBER) && list[gen[i] + 1] != 0 ->
        c_code { enter(Pworker->i, now.gen[Pworker->i] + 1); }; assert(broken == 0) }
    :: atomic { RUNS && at[i] == NEWCOMER && over -> at[i] = DONE }
    /* who is there? (5, 7) and, later, the claim (6) */
    :: atomic { RUNS && !looked[i] && c_expr { (may_claim(Pworker->i)) } -> c_code { look(Pworker->i); } }
    :: atomic { RUNS && looked[i] -> c_code { claim(Pworker->i); }; assert(broken == 0) }
    /* links to all of the generation (8), then the newest state (9) */
    :: atomic { RUNS && at[i] == FORM && (came[gen[i]] & (1 << i)) == 0 ->
        came[gen[i]] = came[gen[i]] | (1 << i) }
    :: atomic { RUNS && at[i] == FORM && c_expr { (may_take(Pworker->i)) } -> c_code { take(Pworker->i); };
        assert(broken == 0) }
    /* steps, and the barrier after the last one */
    :: atomic { RUNS && c_expr { (may_give(Pworker->i)) } -> c_code { give(Pworker->i); }; assert(broken == 0) }
    :: atomic { RUNS && c_expr { (may_step(Pworker->i)) } -> c_code { step(Pworker->i); }; assert(broken == 0) }
    /* a peer is lost, or somebody wants to join (3) */
    :: atomic { RUNS && c_expr { (has_trouble(Pworker->i)) } -> c_code { give_up(Pworker->i); } }
    :: dead[i] || at[i] == DONE -> break
    od
}

/* What befalls a process at any time, and what its launcher does (2). */
proctype fate(byte i)
{
end:
    do
    :: atomic { at[i] == BORN -> at[i] = OUT }
    :: atomic { kills > 0 && at[i] != BORN && at[i] != DONE && !dead[i] -> kills--; c_code { die(Pfate->i); } }
    :: atomic { stops > 0 && at[i] != BORN && at[i] != DONE && RUNS -> stops--; stopped[i] = true }
    :: atomic { stopped[i] -> stopped[i] = false }
    :: atomic { deafs > 0 && at[i] != BORN && at[i] != DONE && RUNS -> deafs--; deaf[i] = true }
    :: atomic { deaf[i] && c_expr { (is_left(Pfate->i)) } -> deaf[i] = false }
    :: atomic { (dead[i] || at[i] == DONE) && (gone & (1 << i)) == 0 -> gone = gone | (1 << i) }
    od
}

init {
    byte i;

    atomic {
        list[0] = (1 << N) - 1;
        i = 0;
        do
        :: i < ALL ->
            at[i] = (i < N -> MEMBER : BORN);
            if
            :: i < N -> inside[1] = inside[1] | (1 << i)
            :: else
            fi;
            run worker(i);
            run fate(i);
            i++
        :: else -> break
        od
    }
}
