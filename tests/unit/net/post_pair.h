/* SPDX-License-Identifier: Apache-2.0
 *
 * post_pair.h: two endpoints for letters in one thread, the first of which listens, and what has happened to each.
 *
 * cmocka's asserts jump, which a fiber must not; bodies use PAIR_CHECK, and pair_holds() says whether all held.
 */
#ifndef TRI_TESTS_POST_PAIR_H
#define TRI_TESTS_POST_PAIR_H

#include "net/post.h"

typedef struct post_way {
    const char *name;
    bool over_hub, in_sim, encrypts;
} post_way;
#define POST_WAYS 4
extern const post_way post_ways[POST_WAYS];

#define PAIR_WAIT_MS      30000
#define PAIR_EVENTS       4096
#define PAIR_LIMIT_NBYTES ((size_t)64 << 20)

typedef struct pair_end pair_end;

typedef enum pair_what { PAIR_OPENED, PAIR_PLACED, PAIR_LETTER, PAIR_CLOSED, PAIR_SENT } pair_what;

typedef struct pair_event {
    pair_what what;
    tri_line *line;  /* NULL: sent */
    uint64_t id;     /* words[0] of the letter */
    uint64_t nbytes; /* of its body */
    tri_status status;
    char why[128]; /* closed */
} pair_event;

struct pair_end {
    tri_post *post;
    tri_line *line; /* the latest one that was opened or dialed */
    struct post_pair *pair;
    pair_event events[PAIR_EVENTS];
    int count;
    /* What a handler does besides noting the event; NULL: nothing. False: hang up, or refused. */
    bool (*then)(pair_end *end, const pair_event *event);
    unsigned char *place;      /* where bodies shall lie; NULL: in the post's memory */
    const unsigned char *body; /* of the letter that is being handled */
};

typedef struct post_pair {
    const post_way *way;
    tri_net_config config;
    tri_hub *hub;
    pair_end ends[2]; /* the listener, the dialer */
    void (*body)(struct post_pair *pair);
    int failures;
} post_pair;

/* Opens, dials, runs the body and closes, over one way. False: something did not hold. */
bool pair_holds(const post_way *way, void (*body)(post_pair *pair));
/* What an endpoint of the pair is opened with. */
tri_post_setup pair_setup(post_pair *pair, int index);
/* Dials the listener from an endpoint, while the listener turns. */
tri_status pair_dial(post_pair *pair, tri_post *from, const char *address, tri_line **line);
/* Both ends have a turn. */
void pair_turn(post_pair *pair);
/* The letter with an id, without words; its `sent` is noted at the end it was sent from. */
void pair_send(pair_end *end, tri_line *line, unsigned priority, uint64_t id, const void *body, size_t nbytes);
/* Events of a kind so far, or the n-th of them (NULL: not yet). */
int pair_count(const pair_end *end, pair_what what);
const pair_event *pair_event_of(const pair_end *end, pair_what what, int n);
void pair_fail(post_pair *pair, const char *file, int line, const char *condition);

#define PAIR_CHECK(pair, condition) ((condition) ? (void)0 : pair_fail((pair), __FILE__, __LINE__, #condition))
/* Turns both until it holds. */
#define PAIR_UNTIL(pair, condition)                                                                                    \
    do {                                                                                                               \
        int64_t until_ns_ = tri_deadline_after_ms(PAIR_WAIT_MS);                                                       \
        while (!(condition) && tri_now_ns() < until_ns_)                                                               \
            pair_turn(pair);                                                                                           \
        PAIR_CHECK(pair, condition);                                                                                   \
    } while (0)

#endif
