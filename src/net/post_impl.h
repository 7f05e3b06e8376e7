/* SPDX-License-Identifier: Apache-2.0
 *
 * post_impl.h: what the files of the post share: endpoints, lines, letters that wait, and the table of ways.
 *
 * A line is OPEN, or BROKEN (its end is known, the owner has not heard), or ENDED (nobody will hear of it again; its
 * memory goes when no call of a handler can still be using it). For post*.c, their tests and the fuzz target only.
 */
#ifndef TRI_NET_POST_IMPL_H
#define TRI_NET_POST_IMPL_H

#include <stdatomic.h>

#include "net/post.h"

#define TRI_LETTER_MAGIC UINT32_C(0x50495254) /* "TRIP" */
/* What a line may move in a turn before it is another's turn. */
#define TRI_POST_TURN_NBYTES ((size_t)1 << 20)
#define TRI_POST_WHY_NBYTES  256
#define TRI_POST_FROM_NBYTES 64
/* Pieces of letters that go with one call. */
#define TRI_POST_PARTS 64

/* In a ring with a head; NULL: in none. */
typedef struct post_node {
    struct post_node *next, *before;
} post_node;

/* A letter that waits. */
typedef struct post_letter {
    struct post_letter *next; /* of those under way */
    uint64_t order;           /* among all of the line */
    unsigned priority;
    size_t nbytes, done_nbytes; /* head and body */
    tri_part body[TRI_LETTER_PARTS];
    tri_post_sent sent; /* NULL: `copy` is the body */
    void *arg;
    unsigned char head[TRI_LETTER_NBYTES];
    unsigned char copy[];
} post_letter;

/* Those of one line. */
typedef struct post_queue {
    post_letter **waiting; /* a heap: the highest priority first, of equal ones the earliest */
    size_t count, capacity;
    post_letter *first, *last; /* under way: taken out of the heap, in the order of the wire */
    size_t under_way;          /* how many */
    size_t nbytes;             /* of all, not yet taken */
    uint64_t orders;
} post_queue;

/* What of a line's stream has been read: part of a head, or a head and part of its body. */
typedef struct post_inbox {
    unsigned char head[TRI_LETTER_NBYTES];
    size_t head_nbytes;
    bool has_letter;
    bool reads_wide; /* the latest letter was small: more than one may be had with one call */
    tri_letter letter;
    unsigned char *body; /* NULL: no place yet */
    size_t body_nbytes;
    unsigned char *own;  /* a body without a place of the owner's */
    size_t own_nbytes;   /* that there is room for */
    unsigned char *rest; /* read before the line was paused */
    size_t rest_first, rest_upto;
} post_inbox;

typedef enum line_state { LINE_OPEN, LINE_BROKEN, LINE_ENDED } line_state;

/* First member of each way's line. */
struct tri_line {
    tri_post *post;
    line_state state;
    bool dialed;  /* by this end */
    bool is_near; /* both ends are on this machine */
    bool paused;
    bool readable; /* a read may give something */
    bool full;     /* a write took less than it was given */
    bool mute;     /* a write failed: nothing is sent any more */
    bool flushing;
    uint64_t heard; /* bytes that were read */
    void *note;
    post_node all;   /* of post->lines, or of post->ended */
    post_node ready; /* of post->ready: has something to be read */
    post_node owing; /* of post->owing: has something to be sent, and the way takes some */
    post_node news;  /* of post->fresh or post->broken: the owner is to hear of it */
    post_queue queue;
    post_inbox inbox;
    char from[TRI_POST_FROM_NBYTES];
    char why[TRI_POST_WHY_NBYTES]; /* BROKEN */
};

/* Room for bytes that are read. */
typedef struct post_room {
    unsigned char *bytes;
    size_t nbytes;
} post_room;

typedef struct tri_post_ops {
    const char *name;
    size_t nbytes;         /* of its struct */
    size_t scratch_nbytes; /* what one read may give of small letters */
    /* The post is zeros but for what is in tri_post; after a failure nothing is open. */
    tri_status (*open)(tri_post *post);
    const char *(*address)(const tri_post *post);
    /* A line that is proven, in no list yet. */
    /* once: somebody was there before; if nobody is now, that is known at once. */
    tri_status (*dial)(tri_post *post, const char *address, bool once, int64_t deadline_ns, tri_line **out);
    /* Notes which lines can go on (tri_post_line_readable, _writable), who has called (tri_post_line_called) and
     * wakes; without any of them it returns at the deadline, or for no reason. Calls no handler. */
    tri_status (*poll)(tri_post *post, int64_t deadline_ns);
    /* Reads into two rooms, one after the other, without blocking. Clears `readable` when there is no more by now.
     * TRI_EPEER: the line has ended, and all was given before. */
    tri_status (*read)(tri_line *line, const post_room rooms[2], size_t *given);
    /* Writes up to TRI_POST_PARTS parts without blocking. *promised: so many bytes beyond those taken must be given
     * again unchanged. Sets `full` when it takes no more by now. TRI_EPEER: reading comes to an end too. */
    tri_status (*write)(tri_line *line, const tri_part *parts, size_t count, size_t *taken, size_t *promised);
    void (*wake)(tri_post *post);
    /* Before all lines end: gives what was sent the time to arrive. NULL: it needs none. */
    void (*drain)(tri_post *post, int64_t deadline_ns);
    /* Closes it for the other end; and frees what there is besides tri_line. */
    void (*line_end)(tri_line *line);
    /* All that `open` opened. */
    void (*close)(tri_post *post);
} tri_post_ops;

extern const tri_post_ops tri_post_tcp, tri_post_hub;

/* First member of each way's post. */
struct tri_post {
    const tri_post_ops *ops;
    tri_post_setup setup;
    char *name, *token;
    tri_net_config config;
    post_node lines, ready, owing, fresh, broken, ended; /* heads */
    int called_count;                                    /* lines that others dialed */
    bool in_turn;
    bool is_woken;
    uint64_t handled;       /* calls of handlers */
    unsigned char *scratch; /* [ops->scratch_nbytes]: what was read and is no body with a place of its own */
    unsigned char *spare;   /* of the latest body of the post's own, for the next one: the cache has it; or NULL */
    size_t spare_nbytes;
    /* What went wrong is said once a second. */
    int64_t noted_ns;
    uint64_t unnoted;
};

/* ---- lists */
void tri_post_node_head(post_node *head);
void tri_post_node_append(post_node *head, post_node *node);
/* Also of one that is in no list. */
void tri_post_node_remove(post_node *node);
static inline bool tri_post_is_empty(const post_node *head)
{
    return head->next == head;
}

/* ---- post_letter.c: heads, and letters that wait */
void tri_letter_encode(const tri_letter *letter, unsigned char bytes[TRI_LETTER_NBYTES]);
/* TRI_EFORMAT when magic or check are wrong, or the body is longer than the limit. */
tri_status tri_letter_decode(const unsigned char bytes[TRI_LETTER_NBYTES], size_t body_limit, tri_letter *letter);
/* TRI_ENOMEM: nothing has changed. */
tri_status tri_post_queue_push(post_queue *queue, unsigned priority, const tri_letter *letter,
                               const tri_part body[TRI_LETTER_PARTS], tri_post_sent sent, void *arg);
/* What shall be written next; those letters are under way then. */
size_t tri_post_queue_offer(post_queue *queue, tri_part parts[TRI_POST_PARTS], size_t *nbytes);
/* Of what was offered `taken` bytes have gone. Those that are neither begun nor promised wait again. */
void tri_post_queue_taken(post_queue *queue, size_t taken, size_t promised);
/* A letter that has gone as a whole, no longer in the queue; NULL: none. */
post_letter *tri_post_queue_sent(post_queue *queue);
/* Any letter, no longer in the queue; NULL: none is left. */
post_letter *tri_post_queue_pop(post_queue *queue);
static inline bool tri_post_queue_is_empty(const post_queue *queue)
{
    return queue->count == 0 && !queue->first;
}

/* ---- post_line.c: what one line can do, what it sends, and its end */
/* In the state OPEN, in post->lines; nbytes: of the way's struct, zeros but for the line. */
tri_status tri_post_line_create(tri_post *post, size_t nbytes, tri_line **out);
/* As a result of a poll. */
void tri_post_line_readable(tri_line *line);
void tri_post_line_writable(tri_line *line);
/* Puts it into the lists of those that can go on, or takes it out. */
void tri_post_line_arm(tri_line *line);
static inline bool tri_post_line_reads(const tri_line *line)
{
    return line->state == LINE_OPEN && !line->paused;
}
/* Others dialed: the owner hears of it in the next turn. */
void tri_post_line_called(tri_line *line);
/* Sends what the way takes. */
void tri_post_line_flush(tri_line *line);
/* It has come to an end that the owner must hear of. */
void tri_post_line_break(tri_line *line, const char *why);
/* Ends it: no handler is called for it any more but `sent`. */
void tri_post_line_end(tri_line *line, tri_status status);
/* The memory of a line that has ended. */
void tri_post_line_destroy(tri_line *line);
/* Says what somebody else did wrong, once a second. */
void tri_post_note(tri_post *post, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- post_read.c: reads and handles letters, up to TRI_POST_TURN_NBYTES */
void tri_post_line_receive(tri_line *line);

#endif
