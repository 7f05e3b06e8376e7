/* SPDX-License-Identifier: Apache-2.0
 *
 * post.h: letters between endpoints that come and go: one that listens, any number that dial, each over a connection
 * ("line") that both ends have proven the job's token on.
 *
 * Where ranks of a group know each other before the first byte (net.h), here nobody is counted: a server has as many
 * lines as clients have dialed, and a line that ends is an event, not a failure. One thread turns an endpoint
 * (tri_post_turn) and all handlers run in it; tri_post_wake() alone may come from elsewhere. A letter is a head of 64
 * bytes and a body; the receiver says where the body shall lie, so it is read where it is used. Two rows: sockets (TCP,
 * epoll; TLS with comm.encrypt) and a hub (threads of a process, fibers of a simulation). docs/formats/wire.md.
 */
#ifndef TRI_NET_POST_H
#define TRI_NET_POST_H

#include "net/transport.h"

#define TRI_LETTER_NBYTES 64
#define TRI_LETTER_WORDS  5
#define TRI_LETTER_PARTS  3 /* places that a body may lie in */

/* The head of a letter; on the wire little endian with a magic and a check. Words mean what the two ends agree on. */
typedef struct tri_letter {
    uint16_t kind, flags;
    uint64_t nbytes; /* of the body */
    uint64_t words[TRI_LETTER_WORDS];
} tri_letter;

typedef struct tri_post tri_post;
typedef struct tri_line tri_line;

/* All are called inside tri_post_turn(), `closed` also inside tri_post_close(). They may send, pause, dial and hang up,
 * on any line, but not turn. */
typedef struct tri_post_handlers {
    void *arg;
    /* Somebody has dialed and knows the token. NULL: fine. False: hang up. */
    bool (*opened)(void *arg, tri_line *line);
    /* The head of a letter with a body has come: where the body shall lie, at least nbytes, until `letter` or `closed`.
     * NULL slot or NULL: in memory of the post's own, 64-byte aligned, valid while `letter` runs. *refused: hang up
     * instead (a body that nobody asked for). */
    void *(*place)(void *arg, tri_line *line, const tri_letter *letter, bool *refused);
    /* A letter is whole; body NULL: it has none. False: hang up; tri_last_error() says why. */
    bool (*letter)(void *arg, tri_line *line, const tri_letter *letter, void *body);
    /* The line is gone, with all letters that were not sent; it is freed after this call. why: for people. All letters
     * that came before have been handled; a body that was being placed will not come. Not called for lines that this
     * end hangs up on; of a line that is paused when it is read again. */
    void (*closed)(void *arg, tri_line *line, const char *why);
} tri_post_handlers;

typedef struct tri_post_setup {
    const char *name;             /* what messages call this endpoint */
    const tri_net_config *config; /* interface, encrypt, timeout_s */
    const char *token;
    bool listens;
    size_t body_limit; /* a letter with a longer body ends its line */
    int line_limit;    /* lines that others dial at most (further ones are refused), 0: as many as descriptors allow */
    tri_hub *hub;      /* NULL: sockets. Else the place of this endpoint in it, and how many it has: */
    int rank, world;
    tri_post_handlers handlers;
} tri_post_setup;

tri_status tri_post_open(const tri_post_setup *setup, tri_post **out);
/* What others dial; "" where it does not listen. Valid while open; at most TRI_POST_ADDRESS_NBYTES with its 0. */
#define TRI_POST_ADDRESS_NBYTES 512
const char *tri_post_address(const tri_post *post);
/* Tries the places that the address names, again and again, until one proves to know the token, or the deadline.
 * TRI_EPEER: nobody is there, or somebody who does not know the token; TRI_ECONFIG: comm.encrypt differs. Turns
 * nothing: no handler runs meanwhile; who calls this end is answered, so that two may dial each other. Over a hub two
 * ends have one line at a time: a second one is TRI_EINVAL, and when both dial at once it is the same. */
tri_status tri_post_dial(tri_post *post, const char *address, int64_t deadline_ns, tri_line **out);
/* The same for one that was there before: gives up as soon as nobody listens at any of its places. */
tri_status tri_post_redial(tri_post *post, const char *address, int64_t deadline_ns, tri_line **out);
/* Queues a letter; letters of a higher priority (a larger number) overtake those that wait (not the one under way),
 * equal ones keep their order. It goes with the turn that is under way or the next one, so many that are queued
 * together go with few calls of the system, and none is made here. The body stays untouched until `sent` is called,
 * inside a turn: with TRI_OK when all bytes are with the kernel, with TRI_EPEER when the line is gone (before
 * `closed`), TRI_ECANCELED when this end hangs up. sent NULL: the body is copied. TRI_ENOMEM: nothing has happened.
 * Never fails for a line that is going down: its `closed` comes. */
typedef void (*tri_post_sent)(void *arg, tri_status status);
tri_status tri_post_send(tri_line *line, unsigned priority, const tri_letter *letter, const void *body,
                         tri_post_sent sent, void *arg);
/* The same with a body that lies in several places. */
tri_status tri_post_send_parts(tri_line *line, unsigned priority, const tri_letter *letter,
                               const tri_part body[TRI_LETTER_PARTS], tri_post_sent sent, void *arg);
/* Sends what the way takes of it now: before this end is busy for long. */
void tri_line_flush(tri_line *line);
/* Bytes that have come on the line. */
uint64_t tri_line_heard(const tri_line *line);
/* Bytes of letters that wait to be sent. */
size_t tri_line_queued(const tri_line *line);
/* Reads nothing more from a line until it is called with false: the sender waits then, by the transport's own means.
 * That the other end has left is noticed then too. */
void tri_line_pause(tri_line *line, bool paused);
/* The owner's word for a line; NULL at first. */
void tri_line_note_set(tri_line *line, void *note);
void *tri_line_note(const tri_line *line);
/* Where the other end is, for people. */
const char *tri_line_from(const tri_line *line);
/* Both ends are on this machine, over its loopback. */
bool tri_line_is_near(const tri_line *line);
/* Ends a line at once; what waits is dropped (sent: TRI_ECANCELED), and the line is not to be used any more. */
void tri_line_hang_up(tri_line *line);
/* Moves bytes and calls handlers until something was handled, or the deadline, or a wake. TRI_OK in all three cases. */
tri_status tri_post_turn(tri_post *post, int64_t deadline_ns);
/* From any thread: ends the turn that is under way or the next one. */
void tri_post_wake(tri_post *post);
/* Sends what is queued for at most a second, then ends all lines (`sent` with TRI_EPEER for the rest, then `closed`).
 * NULL does nothing. */
void tri_post_close(tri_post *post);

#endif
