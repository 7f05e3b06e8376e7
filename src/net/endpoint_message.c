/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_message.c: the head of a message to and from 64 bytes, and the messages of a connection that wait to be
 * sent.
 *
 * Those that wait are a heap. What is offered to the way is taken out of it in the order of the wire; after the write
 * all that were not begun go back, so that a message of a higher priority waits for one other at most.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"
#include "net/bytes.h"
#include "net/endpoint_impl.h"

#define CHECKED_NBYTES (TRI_MESSAGE_NBYTES - 8)
#define WORDS_AT       16
/* Messages that follow another one in a write, so that many small ones go with one call. */
#define OFFER_NBYTES ((size_t)256 << 10)

/* Of a message: its head and the places of its body. */
#define PIECES (1 + TRI_MESSAGE_PARTS)

_Static_assert(WORDS_AT + 8 * TRI_MESSAGE_WORDS == CHECKED_NBYTES, "a head has 64 bytes");

void tri_message_encode(const tri_message *message, unsigned char bytes[TRI_MESSAGE_NBYTES])
{
    tri_bytes_write_u32(bytes, TRI_MESSAGE_MAGIC);
    tri_bytes_write_u16(bytes + 4, message->kind);
    tri_bytes_write_u16(bytes + 6, message->flags);
    tri_bytes_write_u64(bytes + 8, message->nbytes);
    for (size_t i = 0; i < TRI_MESSAGE_WORDS; i++)
        tri_bytes_write_u64(bytes + WORDS_AT + 8 * i, message->words[i]);
    tri_bytes_write_u64(bytes + CHECKED_NBYTES, XXH3_64bits(bytes, CHECKED_NBYTES));
}

tri_status tri_message_decode(const unsigned char bytes[TRI_MESSAGE_NBYTES], size_t body_limit, tri_message *message)
{
    uint32_t magic = tri_bytes_read_u32(bytes);
    uint64_t check = XXH3_64bits(bytes, CHECKED_NBYTES), read = tri_bytes_read_u64(bytes + CHECKED_NBYTES);
    uint64_t nbytes = tri_bytes_read_u64(bytes + 8);

    if (magic != TRI_MESSAGE_MAGIC)
        return tri_fail(TRI_EFORMAT, "message: want magic %08x, got %08x", TRI_MESSAGE_MAGIC, magic);
    if (read != check)
        return tri_fail(TRI_EFORMAT, "message: want check %016llx, got %016llx", (unsigned long long)check,
                        (unsigned long long)read);
    if (nbytes > body_limit)
        return tri_fail(TRI_EFORMAT, "message of kind %d: want a body of at most %zu bytes, got %llu",
                        tri_bytes_read_u16(bytes + 4), body_limit, (unsigned long long)nbytes);
    message->kind = tri_bytes_read_u16(bytes + 4);
    message->flags = tri_bytes_read_u16(bytes + 6);
    message->nbytes = nbytes;
    for (size_t i = 0; i < TRI_MESSAGE_WORDS; i++)
        message->words[i] = tri_bytes_read_u64(bytes + WORDS_AT + 8 * i);
    return TRI_OK;
}

/* ---- the heap */

static bool goes_before(const queued_message *a, const queued_message *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->order < b->order;
}

/* There is room. */
static void heap_push(endpoint_queue *queue, queued_message *message)
{
    size_t at = queue->count++;

    for (; at > 0 && goes_before(message, queue->waiting[(at - 1) / 2]); at = (at - 1) / 2)
        queue->waiting[at] = queue->waiting[(at - 1) / 2];
    queue->waiting[at] = message;
}

/* Of a heap that is not empty. */
static queued_message *heap_pop(endpoint_queue *queue)
{
    queued_message *first = queue->waiting[0], *last = queue->waiting[--queue->count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < queue->count && goes_before(queue->waiting[child + 1], queue->waiting[child]))
            child++;
        if (child >= queue->count || !goes_before(queue->waiting[child], last))
            break;
        queue->waiting[at] = queue->waiting[child];
        at = child;
    }
    queue->waiting[at] = last;
    return first;
}

/* Room for one more, also when all that are under way come back. */
static tri_status heap_reserve(endpoint_queue *queue)
{
    size_t capacity = queue->capacity ? 2 * queue->capacity : 16;
    queued_message **grown;

    if (queue->count + queue->under_way < queue->capacity)
        return TRI_OK;
    grown = tri_realloc(queue->waiting, capacity * sizeof(*grown));
    if (!grown)
        return TRI_ENOMEM;
    queue->waiting = grown;
    queue->capacity = capacity;
    return TRI_OK;
}

tri_status tri_endpoint_queue_push(endpoint_queue *queue, unsigned priority, const tri_message *message,
                                   const tri_part body[TRI_MESSAGE_PARTS], tri_message_sent sent, void *arg)
{
    size_t nbytes = (size_t)message->nbytes, copied = sent ? 0 : nbytes;
    queued_message *made;

    TRI_TRY(heap_reserve(queue));
    made = tri_alloc(sizeof *made + copied);
    if (!made)
        return TRI_ENOMEM;
    made->next = NULL;
    made->order = queue->orders++;
    made->priority = priority;
    made->nbytes = TRI_MESSAGE_NBYTES + nbytes;
    made->done_nbytes = 0;
    for (size_t i = 0, at = 0; i < TRI_MESSAGE_PARTS; at += body[i++].nbytes) {
        made->body[i] = sent ? body[i] : (tri_part){made->copy + at, body[i].nbytes};
        if (!sent && body[i].nbytes > 0)
            memcpy(made->copy + at, body[i].bytes, body[i].nbytes);
    }
    made->sent = sent;
    made->arg = arg;
    tri_message_encode(message, made->head);
    queue->nbytes += made->nbytes;
    heap_push(queue, made);
    return TRI_OK;
}

/* ---- those under way */

static void way_append(endpoint_queue *queue, queued_message *message)
{
    message->next = NULL;
    if (queue->first)
        queue->last->next = message;
    else
        queue->first = message;
    queue->last = message;
    queue->under_way++;
}

static size_t parts_add(const queued_message *message, tri_part *parts)
{
    tri_part pieces[PIECES] = {{message->head, TRI_MESSAGE_NBYTES}};
    size_t count = 0, done = message->done_nbytes;

    memcpy(pieces + 1, message->body, sizeof message->body);
    for (size_t i = 0; i < PIECES; i++) {
        size_t skipped = done < pieces[i].nbytes ? done : pieces[i].nbytes;

        done -= skipped;
        if (skipped < pieces[i].nbytes)
            parts[count++] = (tri_part){(const unsigned char *)pieces[i].bytes + skipped, pieces[i].nbytes - skipped};
    }
    return count;
}

size_t tri_endpoint_queue_offer(endpoint_queue *queue, tri_part parts[TRI_ENDPOINT_PARTS], size_t *nbytes)
{
    size_t count = 0;
    const queued_message *message = queue->first;

    *nbytes = 0;
    /* All that are promised come first, however many: they fitted once. */
    for (; message; message = message->next) {
        count += parts_add(message, parts + count);
        *nbytes += message->nbytes - message->done_nbytes;
    }
    while (queue->count > 0 && count + PIECES <= TRI_ENDPOINT_PARTS &&
           (count == 0 || *nbytes + queue->waiting[0]->nbytes <= OFFER_NBYTES)) {
        queued_message *more = heap_pop(queue);

        way_append(queue, more);
        count += parts_add(more, parts + count);
        *nbytes += more->nbytes;
    }
    return count;
}

void tri_endpoint_queue_taken(endpoint_queue *queue, size_t taken, size_t promised)
{
    queued_message *message = queue->first, **kept = &queue->first;

    queue->nbytes -= taken;
    queue->last = NULL;
    for (; message; message = *kept) {
        size_t left = message->nbytes - message->done_nbytes, part = taken < left ? taken : left;

        message->done_nbytes += part;
        taken -= part;
        left -= part;
        if (message->done_nbytes == 0 && promised == 0) {
            *kept = message->next;
            queue->under_way--;
            heap_push(queue, message);
            continue;
        }
        promised -= promised < left ? promised : left;
        queue->last = message;
        kept = &message->next;
    }
}

/* The first of those under way. */
static queued_message *way_pop(endpoint_queue *queue)
{
    queued_message *message = queue->first;

    queue->first = message->next;
    queue->under_way--;
    if (!queue->first)
        queue->last = NULL;
    return message;
}

queued_message *tri_endpoint_queue_sent(endpoint_queue *queue)
{
    return queue->first && queue->first->done_nbytes == queue->first->nbytes ? way_pop(queue) : NULL;
}

queued_message *tri_endpoint_queue_pop(endpoint_queue *queue)
{
    queued_message *message = queue->first ? way_pop(queue) : queue->count > 0 ? heap_pop(queue) : NULL;

    if (message)
        queue->nbytes -= message->nbytes - message->done_nbytes;
    return message;
}
