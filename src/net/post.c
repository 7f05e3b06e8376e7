/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c: an endpoint for letters: opening, dialing, turns, and its end.
 *
 * Invariant of a turn: a line gives up its memory only when no turn is under way, so handlers may hang up on any line
 * at any time. Letters go at the beginning of a turn and when all lines have been heard, many with one call.
 */
#include "net/post.h"

#include <string.h>

#include "base/memory.h"
#include "net/post_impl.h"

#define CLOSE_NS TRI_NS_PER_S

static tri_line *line_of(post_node *node, size_t offset)
{
    return (tri_line *)(void *)((char *)node - offset);
}

#define LINE_OF(node, member) line_of((node), offsetof(tri_line, member))

/* ---- opening */

static void post_free(tri_post *post)
{
    tri_free(post->scratch);
    tri_free(post->spare);
    tri_free(post->name);
    tri_free(post->token);
    tri_free(post);
}

/* What both ways have. */
static tri_status post_init(tri_post *post, const tri_post_ops *ops, const tri_post_setup *setup)
{
    post->ops = ops;
    post->setup = *setup;
    post->config = *setup->config;
    post->name = tri_strdup(setup->name);
    post->token = tri_strdup(setup->token);
    post->setup.name = post->name;
    post->setup.token = post->token;
    post->setup.config = &post->config;
    tri_post_node_head(&post->lines);
    tri_post_node_head(&post->ready);
    tri_post_node_head(&post->owing);
    tri_post_node_head(&post->fresh);
    tri_post_node_head(&post->broken);
    tri_post_node_head(&post->ended);
    post->scratch = tri_alloc_bulk(ops->scratch_nbytes);
    return post->name && post->token && post->scratch ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_post_open(const tri_post_setup *setup, tri_post **out)
{
    const tri_post_ops *ops = setup->hub ? &tri_post_hub : &tri_post_tcp;
    tri_post *post = tri_alloc_zero(1, ops->nbytes);
    tri_status status;

    *out = NULL;
    TRI_ASSERT(setup->handlers.letter && setup->handlers.closed);
    if (!post)
        return TRI_ENOMEM;
    status = post_init(post, ops, setup);
    if (status == TRI_OK)
        status = ops->open(post);
    if (status != TRI_OK) {
        post_free(post);
        return tri_fail_context(status, "%s", setup->name);
    }
    *out = post;
    return TRI_OK;
}

const char *tri_post_address(const tri_post *post)
{
    return post->setup.listens ? post->ops->address(post) : "";
}

/* ---- lines */

/* Frees those that nobody can be using any more. */
static void ended_reap(tri_post *post)
{
    while (!post->in_turn && !tri_post_is_empty(&post->ended))
        tri_post_line_destroy(LINE_OF(post->ended.next, all));
}

static tri_status dial(tri_post *post, const char *address, bool once, int64_t deadline_ns, tri_line **out)
{
    *out = NULL;
    ended_reap(post);
    TRI_TRY_IN(post->ops->dial(post, address, once, deadline_ns, out), "%s", post->name);
    (*out)->dialed = true;
    return TRI_OK;
}

tri_status tri_post_dial(tri_post *post, const char *address, int64_t deadline_ns, tri_line **out)
{
    return dial(post, address, false, deadline_ns, out);
}

tri_status tri_post_redial(tri_post *post, const char *address, int64_t deadline_ns, tri_line **out)
{
    return dial(post, address, true, deadline_ns, out);
}

tri_status tri_post_send(tri_line *line, unsigned priority, const tri_letter *letter, const void *body,
                         tri_post_sent sent, void *arg)
{
    const tri_part whole[TRI_LETTER_PARTS] = {{body, (size_t)letter->nbytes}};

    return tri_post_send_parts(line, priority, letter, whole, sent, arg);
}

tri_status tri_post_send_parts(tri_line *line, unsigned priority, const tri_letter *letter,
                               const tri_part body[TRI_LETTER_PARTS], tri_post_sent sent, void *arg)
{
    size_t nbytes = 0;

    for (int i = 0; i < TRI_LETTER_PARTS; i++)
        nbytes += body[i].nbytes;
    TRI_ASSERT(nbytes == letter->nbytes);
    TRI_TRY(tri_post_queue_push(&line->queue, priority, letter, body, sent, arg));
    tri_post_line_arm(line);
    return TRI_OK;
}

size_t tri_line_queued(const tri_line *line)
{
    return line->queue.nbytes;
}

void tri_line_flush(tri_line *line)
{
    tri_post_line_flush(line);
}

uint64_t tri_line_heard(const tri_line *line)
{
    return line->heard;
}

void tri_line_note_set(tri_line *line, void *note)
{
    line->note = note;
}

void *tri_line_note(const tri_line *line)
{
    return line->note;
}

const char *tri_line_from(const tri_line *line)
{
    return line->from;
}

bool tri_line_is_near(const tri_line *line)
{
    return line->is_near;
}

void tri_line_hang_up(tri_line *line)
{
    if (line->state != LINE_ENDED)
        tri_post_line_end(line, TRI_ECANCELED);
}

/* ---- turns */

/* Callers: the owner may not want them. */
static void fresh_tell(tri_post *post)
{
    const tri_post_handlers *handlers = &post->setup.handlers;

    while (!tri_post_is_empty(&post->fresh)) {
        tri_line *line = LINE_OF(post->fresh.next, news);

        tri_post_node_remove(&line->news);
        if (post->setup.line_limit > 0 && post->called_count > post->setup.line_limit) {
            tri_post_note(post, "%s was refused: want at most %d lines", line->from, post->setup.line_limit);
            tri_line_hang_up(line);
            continue;
        }
        post->handled += handlers->opened != NULL;
        if (handlers->opened && !handlers->opened(handlers->arg, line))
            tri_line_hang_up(line);
        else
            tri_post_line_arm(line);
    }
}

/* The owner hears that a line has ended, first about its letters. */
static void broken_tell(tri_post *post)
{
    const tri_post_handlers *handlers = &post->setup.handlers;

    while (!tri_post_is_empty(&post->broken)) {
        tri_line *line = LINE_OF(post->broken.next, news);

        tri_post_node_remove(&line->news);
        line->mute = true;
        tri_post_line_flush(line);
        if (line->state == LINE_ENDED)
            continue;
        post->handled++;
        handlers->closed(handlers->arg, line, line->why);
        if (line->state != LINE_ENDED)
            tri_post_line_end(line, TRI_EPEER);
    }
}

/* Each line of a list once; it may come again at the end. */
static void each_once(post_node *head, size_t offset, void (*call)(tri_line *line))
{
    post_node mark;

    tri_post_node_append(head, &mark);
    while (head->next != &mark) {
        post_node *node = head->next;

        tri_post_node_remove(node);
        call(line_of(node, offset));
    }
    tri_post_node_remove(&mark);
}

static bool can_go_on(const tri_post *post)
{
    return post->is_woken || !tri_post_is_empty(&post->ready) || !tri_post_is_empty(&post->owing) ||
           !tri_post_is_empty(&post->fresh) || !tri_post_is_empty(&post->broken);
}

tri_status tri_post_turn(tri_post *post, int64_t deadline_ns)
{
    uint64_t before = post->handled;
    tri_status status;

    TRI_ASSERT(!post->in_turn);
    ended_reap(post);
    post->in_turn = true;
    each_once(&post->owing, offsetof(tri_line, owing), tri_post_line_flush);
    do {
        broken_tell(post);
        status = post->ops->poll(post, post->handled != before || can_go_on(post) ? 0 : deadline_ns);
        fresh_tell(post);
        each_once(&post->ready, offsetof(tri_line, ready), tri_post_line_receive);
        broken_tell(post);
        each_once(&post->owing, offsetof(tri_line, owing), tri_post_line_flush);
    } while (status == TRI_OK && post->handled == before && !post->is_woken && tri_now_ns() < deadline_ns);
    post->is_woken = false;
    post->in_turn = false;
    ended_reap(post);
    return status;
}

void tri_post_wake(tri_post *post)
{
    post->ops->wake(post);
}

/* ---- the end */

static bool has_queued(const tri_post *post)
{
    for (const post_node *node = post->lines.next; node != &post->lines; node = node->next) {
        const tri_line *line = LINE_OF((post_node *)(uintptr_t)node, all);

        if (line->state == LINE_OPEN && !line->mute && !tri_post_queue_is_empty(&line->queue))
            return true;
    }
    return false;
}

void tri_post_close(tri_post *post)
{
    int64_t until_ns = tri_now_ns() + CLOSE_NS;

    if (!post)
        return;
    TRI_ASSERT(!post->in_turn);
    post->in_turn = true;
    for (;;) {
        each_once(&post->owing, offsetof(tri_line, owing), tri_post_line_flush);
        if (!has_queued(post) || tri_now_ns() >= until_ns)
            break;
        if (post->ops->poll(post, tri_post_is_empty(&post->owing) ? until_ns : 0) != TRI_OK)
            break;
    }
    if (post->ops->drain)
        post->ops->drain(post, until_ns);
    while (!tri_post_is_empty(&post->lines)) {
        tri_line *line = LINE_OF(post->lines.next, all);

        tri_post_line_break(line, "this end closes");
        broken_tell(post);
    }
    post->in_turn = false;
    ended_reap(post);
    post->ops->close(post);
    post_free(post);
}
