/* SPDX-License-Identifier: Apache-2.0
 *
 * post_line.c: what a line can do next, what it sends, and how it ends; which way the bytes go is the table's affair.
 *
 * Invariant: a line is in `ready` exactly when a read may give something that the owner wants, and in `owing` when
 * something waits that the way may take; whatever changes one of these calls tri_post_line_arm().
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "net/post_impl.h"

#define NOTE_NS TRI_NS_PER_S
/* Sent in one turn before it is another line's turn. */
#define FLUSH_NBYTES (4 * TRI_POST_TURN_NBYTES)

/* ---- lists */

void tri_post_node_head(post_node *head)
{
    head->next = head->before = head;
}

void tri_post_node_append(post_node *head, post_node *node)
{
    node->before = head->before;
    node->next = head;
    head->before->next = node;
    head->before = node;
}

void tri_post_node_remove(post_node *node)
{
    if (!node->next)
        return;
    node->before->next = node->next;
    node->next->before = node->before;
    node->next = node->before = NULL;
}

/* Puts a node in or takes it out, as it shall be. */
static void node_set(post_node *head, post_node *node, bool in)
{
    if (!in)
        tri_post_node_remove(node);
    else if (!node->next)
        tri_post_node_append(head, node);
}

/* ---- what a line can do */

void tri_post_line_arm(tri_line *line)
{
    tri_post *post = line->post;

    /* The owner hears of a caller before it hears from it. */
    node_set(&post->ready, &line->ready,
             tri_post_line_reads(line) && !line->news.next && (line->readable || line->inbox.rest));
    node_set(&post->owing, &line->owing,
             line->state == LINE_OPEN && !line->full && !tri_post_queue_is_empty(&line->queue));
}

void tri_post_line_readable(tri_line *line)
{
    line->readable = true;
    tri_post_line_arm(line);
}

void tri_post_line_writable(tri_line *line)
{
    line->full = false;
    tri_post_line_arm(line);
}

tri_status tri_post_line_create(tri_post *post, size_t nbytes, tri_line **out)
{
    tri_line *line = tri_alloc_zero(1, nbytes);

    *out = line;
    if (!line)
        return TRI_ENOMEM;
    line->post = post;
    tri_post_node_append(&post->lines, &line->all);
    return TRI_OK;
}

void tri_post_line_called(tri_line *line)
{
    line->post->called_count++;
    tri_post_node_append(&line->post->fresh, &line->news);
}

void tri_line_pause(tri_line *line, bool paused)
{
    line->paused = paused;
    /* Whether anything has come meanwhile nobody has looked. */
    line->readable |= !paused;
    tri_post_line_arm(line);
}

/* ---- the end of it */

void tri_post_line_break(tri_line *line, const char *why)
{
    if (line->state != LINE_OPEN)
        return;
    line->state = LINE_BROKEN;
    snprintf(line->why, sizeof line->why, "%s", why);
    tri_post_node_remove(&line->news);
    tri_post_node_append(&line->post->broken, &line->news);
    tri_post_line_arm(line);
}

/* None of the letters that wait will be sent. */
static void queue_drop(tri_line *line, tri_status status)
{
    post_letter *letter;

    while ((letter = tri_post_queue_pop(&line->queue)) != NULL) {
        line->post->handled += letter->sent != NULL;
        if (letter->sent)
            letter->sent(letter->arg, status);
        tri_free(letter);
    }
}

void tri_post_line_end(tri_line *line, tri_status status)
{
    tri_post *post = line->post;

    TRI_ASSERT(line->state != LINE_ENDED);
    line->state = LINE_ENDED;
    post->called_count -= !line->dialed;
    tri_post_line_arm(line);
    tri_post_node_remove(&line->news);
    tri_post_node_remove(&line->all);
    tri_post_node_append(&post->ended, &line->all);
    post->ops->line_end(line);
    queue_drop(line, status);
}

void tri_post_line_destroy(tri_line *line)
{
    tri_post_node_remove(&line->all);
    tri_free(line->queue.waiting);
    tri_free(line->inbox.own);
    tri_free(line->inbox.rest);
    tri_free(line);
}

void tri_post_note(tri_post *post, const char *format, ...)
{
    int64_t now_ns = tri_now_ns();
    char text[TRI_POST_WHY_NBYTES], others[64] = "";
    va_list args;

    if (post->noted_ns > 0 && now_ns - post->noted_ns < NOTE_NS) {
        post->unnoted++;
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (post->unnoted > 0)
        snprintf(others, sizeof others, "; so were %llu since the last one named", (unsigned long long)post->unnoted);
    tri_log(TRI_LOG_WARN, "%s: %s%s", post->name, text, others);
    post->noted_ns = now_ns;
    post->unnoted = 0;
}

/* ---- out */

/* Tells who wants to know of the letters that have gone. False: the line has ended meanwhile. */
static bool sent_tell(tri_line *line)
{
    post_letter *letter;

    while ((letter = tri_post_queue_sent(&line->queue)) != NULL) {
        line->post->handled += letter->sent != NULL;
        if (letter->sent)
            letter->sent(letter->arg, TRI_OK);
        tri_free(letter);
        if (line->state != LINE_OPEN)
            return false;
    }
    return true;
}

void tri_post_line_flush(tri_line *line)
{
    size_t count, offered, taken = 0, promised, all = 0;
    tri_part parts[TRI_POST_PARTS];

    if (line->flushing)
        return;
    line->flushing = true;
    while (line->state == LINE_OPEN && !line->mute && !line->full && all < FLUSH_NBYTES &&
           (count = tri_post_queue_offer(&line->queue, parts, &offered)) > 0) {
        tri_status status = line->post->ops->write(line, parts, count, &taken, &promised);

        if (status != TRI_OK) {
            tri_post_queue_taken(&line->queue, 0, 0);
            /* What the other end said before it left is still heard; then reading tells that it has. */
            line->mute = line->readable = true;
            if (status != TRI_EPEER)
                tri_post_line_break(line, tri_last_error());
            break;
        }
        all += taken;
        tri_post_queue_taken(&line->queue, taken, promised);
        if (!sent_tell(line))
            break;
    }
    if (line->mute && line->state != LINE_ENDED)
        queue_drop(line, TRI_EPEER);
    line->flushing = false;
    tri_post_line_arm(line);
}
