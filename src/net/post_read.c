/* SPDX-License-Identifier: Apache-2.0
 *
 * post_read.c: the letters that come on a line, out of reads of any length.
 *
 * One call reads what is left of a body to its place and what follows to the post's scratch memory: much while letters
 * are small, one head while they are large. All of the scratch memory is used up before the next line's turn, so
 * nothing of it is kept, unless the owner pauses the line in between.
 */
#include <string.h>

#include "base/memory.h"
#include "net/post_impl.h"

#define SMALL_NBYTES ((size_t)8 << 10)
#define ALIGN        ((size_t)64) /* of bodies without a place */
/* The longest body whose memory is kept for the next one. */
#define SPARE_NBYTES ((size_t)1 << 20)

/* A body without a place gets one: the memory of the one before where that is enough, which is in the cache and needs
 * no zeros. False: out of memory, the line ends. */
static bool own_make(tri_line *line)
{
    post_inbox *in = &line->inbox;
    tri_post *post = line->post;

    in->own_nbytes = post->spare_nbytes;
    if (post->spare && in->letter.nbytes <= post->spare_nbytes) {
        in->own = post->spare;
        post->spare = NULL;
    } else {
        in->own_nbytes = (size_t)in->letter.nbytes;
        in->own = tri_alloc_bulk(in->own_nbytes);
    }
    if (!in->own)
        tri_post_line_break(line, tri_last_error());
    in->body = in->own;
    return in->own != NULL;
}

/* The larger one is kept. */
static void own_leave(tri_post *post, unsigned char *own, size_t nbytes)
{
    if (own && nbytes <= SPARE_NBYTES && (!post->spare || nbytes > post->spare_nbytes)) {
        tri_free(post->spare);
        post->spare = own;
        post->spare_nbytes = nbytes;
        return;
    }
    tri_free(own);
}

static void letter_deliver(tri_line *line, void *body)
{
    post_inbox *in = &line->inbox;
    const tri_post_handlers *handlers = &line->post->setup.handlers;
    tri_letter letter = in->letter;
    unsigned char *own = in->own;
    size_t own_nbytes = in->own_nbytes;

    in->has_letter = false;
    in->head_nbytes = 0;
    in->body = in->own = NULL;
    in->body_nbytes = 0;
    line->post->handled++;
    if (!handlers->letter(handlers->arg, line, &letter, body)) {
        if (line->state != LINE_ENDED)
            tri_post_note(line->post, "%s was hung up on: %s", line->from, tri_last_error());
        tri_line_hang_up(line);
    }
    own_leave(line->post, own, own_nbytes);
}

/* The head is whole. */
static void letter_begin(tri_line *line, const unsigned char head[TRI_LETTER_NBYTES])
{
    post_inbox *in = &line->inbox;
    const tri_post_handlers *handlers = &line->post->setup.handlers;
    bool refused = false;

    if (tri_letter_decode(head, line->post->setup.body_limit, &in->letter) != TRI_OK) {
        tri_post_note(line->post, "%s was cut off: %s", line->from, tri_last_error());
        tri_post_line_break(line, tri_last_error());
        return;
    }
    in->has_letter = true;
    in->reads_wide = in->letter.nbytes < SMALL_NBYTES;
    if (in->letter.nbytes == 0) {
        letter_deliver(line, NULL);
        return;
    }
    if (handlers->place)
        in->body = handlers->place(handlers->arg, line, &in->letter, &refused);
    if (refused && line->state != LINE_ENDED) {
        tri_post_note(line->post, "%s was hung up on: a letter of kind %d that was not wanted", line->from,
                      in->letter.kind);
        tri_line_hang_up(line);
    }
}

/* The next bytes of a head. Returns how many were used. */
static size_t head_take(tri_line *line, const unsigned char *bytes, size_t nbytes)
{
    post_inbox *in = &line->inbox;
    size_t part = TRI_LETTER_NBYTES - in->head_nbytes;

    part = nbytes < part ? nbytes : part;
    if (part == TRI_LETTER_NBYTES) {
        letter_begin(line, bytes);
        return part;
    }
    memcpy(in->head + in->head_nbytes, bytes, part);
    in->head_nbytes += part;
    if (in->head_nbytes == TRI_LETTER_NBYTES)
        letter_begin(line, in->head);
    return part;
}

/* The next bytes of a body, at `first` of an aligned buffer of which all before is not needed any more. Returns how
 * many were used. */
static size_t body_take(tri_line *line, unsigned char *buffer, size_t first, size_t nbytes)
{
    post_inbox *in = &line->inbox;
    size_t left = (size_t)in->letter.nbytes - in->body_nbytes, part = nbytes < left ? nbytes : left;

    if (!in->body && part == left) {
        unsigned char *aligned = buffer + first / ALIGN * ALIGN;

        /* The whole of it lies here. */
        if (first % ALIGN > 0)
            memmove(aligned, buffer + first, part);
        letter_deliver(line, aligned);
        return part;
    }
    if (!in->body && !own_make(line))
        return 0;
    memcpy(in->body + in->body_nbytes, buffer + first, part);
    in->body_nbytes += part;
    if (part == left)
        letter_deliver(line, in->body);
    return part;
}

/* Handles the bytes [first, upto) that were read, until the owner wants no more. Returns the first that was not used.
 */
static size_t bytes_take(tri_line *line, unsigned char *buffer, size_t first, size_t upto)
{
    while (first < upto && tri_post_line_reads(line)) {
        if (line->inbox.has_letter)
            first += body_take(line, buffer, first, upto - first);
        else
            first += head_take(line, buffer + first, upto - first);
    }
    return first;
}

/* The line was paused: what was read beyond that is kept. */
static void rest_keep(tri_line *line, const unsigned char *bytes, size_t nbytes)
{
    post_inbox *in = &line->inbox;

    if (nbytes == 0 || line->state != LINE_OPEN)
        return;
    /* Of the length of a whole read and as well aligned, so that bodies can be lent where they lie. */
    in->rest = tri_alloc_bulk(line->post->ops->scratch_nbytes);
    if (!in->rest) {
        tri_post_line_break(line, tri_last_error());
        return;
    }
    memcpy(in->rest, bytes, nbytes);
    in->rest_first = 0;
    in->rest_upto = nbytes;
}

static void rest_take(tri_line *line)
{
    post_inbox *in = &line->inbox;

    in->rest_first = bytes_take(line, in->rest, in->rest_first, in->rest_upto);
    if (in->rest_first < in->rest_upto)
        return;
    tri_free(in->rest);
    in->rest = NULL;
}

/* What of a read went straight to its place; the other bytes are handled. */
static void read_take(tri_line *line, size_t straight, size_t given)
{
    post_inbox *in = &line->inbox;
    unsigned char *scratch = line->post->scratch;
    size_t used;

    straight = straight < given ? straight : given;
    given -= straight;
    if (straight > 0) {
        in->body_nbytes += straight;
        if (in->body_nbytes == in->letter.nbytes)
            letter_deliver(line, in->body);
    }
    used = bytes_take(line, scratch, 0, given);
    rest_keep(line, scratch + used, given - used);
}

void tri_post_line_receive(tri_line *line)
{
    post_inbox *in = &line->inbox;
    size_t left = TRI_POST_TURN_NBYTES, given;

    if (in->rest)
        rest_take(line);
    while (tri_post_line_reads(line) && line->readable && left > 0) {
        post_room rooms[2] = {{NULL, 0}, {line->post->scratch, TRI_LETTER_NBYTES}};

        if (in->has_letter && !in->body && !own_make(line))
            break;
        if (in->has_letter)
            rooms[0] = (post_room){in->body + in->body_nbytes, (size_t)in->letter.nbytes - in->body_nbytes};
        else if (in->head_nbytes > 0)
            rooms[1].nbytes -= in->head_nbytes;
        if (rooms[0].nbytes > left)
            rooms[0].nbytes = left, rooms[1].nbytes = 0;
        else if (in->reads_wide)
            rooms[1].nbytes = line->post->ops->scratch_nbytes;
        if (line->post->ops->read(line, rooms, &given) != TRI_OK) {
            tri_post_line_break(line, tri_last_error());
            break;
        }
        line->heard += given;
        left -= given < left ? given : left;
        read_take(line, rooms[0].nbytes, given);
    }
    tri_post_line_arm(line);
}
