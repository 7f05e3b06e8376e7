/* SPDX-License-Identifier: Apache-2.0
 *
 * post_letter.c: the head of a letter to and from 64 bytes, and the letters of a line that wait to be sent.
 *
 * Those that wait are a heap. What is offered to the way is taken out of it in the order of the wire; after the write
 * all that were not begun go back, so that a letter of a higher priority waits for one other at most.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"
#include "net/bytes.h"
#include "net/post_impl.h"

#define CHECKED_NBYTES (TRI_LETTER_NBYTES - 8)
#define WORDS_AT       16
/* Letters that follow another one in a write, so that many small ones go with one call. */
#define OFFER_NBYTES ((size_t)256 << 10)

/* Of a letter: its head and the places of its body. */
#define PIECES (1 + TRI_LETTER_PARTS)

_Static_assert(WORDS_AT + 8 * TRI_LETTER_WORDS == CHECKED_NBYTES, "a head has 64 bytes");

void tri_letter_encode(const tri_letter *letter, unsigned char bytes[TRI_LETTER_NBYTES])
{
    tri_bytes_write_u32(bytes, TRI_LETTER_MAGIC);
    tri_bytes_write_u16(bytes + 4, letter->kind);
    tri_bytes_write_u16(bytes + 6, letter->flags);
    tri_bytes_write_u64(bytes + 8, letter->nbytes);
    for (size_t i = 0; i < TRI_LETTER_WORDS; i++)
        tri_bytes_write_u64(bytes + WORDS_AT + 8 * i, letter->words[i]);
    tri_bytes_write_u64(bytes + CHECKED_NBYTES, XXH3_64bits(bytes, CHECKED_NBYTES));
}

tri_status tri_letter_decode(const unsigned char bytes[TRI_LETTER_NBYTES], size_t body_limit, tri_letter *letter)
{
    uint32_t magic = tri_bytes_read_u32(bytes);
    uint64_t check = XXH3_64bits(bytes, CHECKED_NBYTES), read = tri_bytes_read_u64(bytes + CHECKED_NBYTES);
    uint64_t nbytes = tri_bytes_read_u64(bytes + 8);

    if (magic != TRI_LETTER_MAGIC)
        return tri_fail(TRI_EFORMAT, "letter: want magic %08x, got %08x", TRI_LETTER_MAGIC, magic);
    if (read != check)
        return tri_fail(TRI_EFORMAT, "letter: want check %016llx, got %016llx", (unsigned long long)check,
                        (unsigned long long)read);
    if (nbytes > body_limit)
        return tri_fail(TRI_EFORMAT, "letter of kind %d: want a body of at most %zu bytes, got %llu",
                        tri_bytes_read_u16(bytes + 4), body_limit, (unsigned long long)nbytes);
    letter->kind = tri_bytes_read_u16(bytes + 4);
    letter->flags = tri_bytes_read_u16(bytes + 6);
    letter->nbytes = nbytes;
    for (size_t i = 0; i < TRI_LETTER_WORDS; i++)
        letter->words[i] = tri_bytes_read_u64(bytes + WORDS_AT + 8 * i);
    return TRI_OK;
}

/* ---- the heap */

static bool goes_before(const post_letter *a, const post_letter *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->order < b->order;
}

/* There is room. */
static void heap_push(post_queue *queue, post_letter *letter)
{
    size_t at = queue->count++;

    for (; at > 0 && goes_before(letter, queue->waiting[(at - 1) / 2]); at = (at - 1) / 2)
        queue->waiting[at] = queue->waiting[(at - 1) / 2];
    queue->waiting[at] = letter;
}

/* Of a heap that is not empty. */
static post_letter *heap_pop(post_queue *queue)
{
    post_letter *first = queue->waiting[0], *last = queue->waiting[--queue->count];
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
static tri_status heap_reserve(post_queue *queue)
{
    size_t capacity = queue->capacity ? 2 * queue->capacity : 16;
    post_letter **grown;

    if (queue->count + queue->under_way < queue->capacity)
        return TRI_OK;
    grown = tri_realloc(queue->waiting, capacity * sizeof(*grown));
    if (!grown)
        return TRI_ENOMEM;
    queue->waiting = grown;
    queue->capacity = capacity;
    return TRI_OK;
}

tri_status tri_post_queue_push(post_queue *queue, unsigned priority, const tri_letter *letter,
                               const tri_part body[TRI_LETTER_PARTS], tri_post_sent sent, void *arg)
{
    size_t nbytes = (size_t)letter->nbytes, copied = sent ? 0 : nbytes;
    post_letter *made;

    TRI_TRY(heap_reserve(queue));
    made = tri_alloc(sizeof *made + copied);
    if (!made)
        return TRI_ENOMEM;
    made->next = NULL;
    made->order = queue->orders++;
    made->priority = priority;
    made->nbytes = TRI_LETTER_NBYTES + nbytes;
    made->done_nbytes = 0;
    for (size_t i = 0, at = 0; i < TRI_LETTER_PARTS; at += body[i++].nbytes) {
        made->body[i] = sent ? body[i] : (tri_part){made->copy + at, body[i].nbytes};
        if (!sent && body[i].nbytes > 0)
            memcpy(made->copy + at, body[i].bytes, body[i].nbytes);
    }
    made->sent = sent;
    made->arg = arg;
    tri_letter_encode(letter, made->head);
    queue->nbytes += made->nbytes;
    heap_push(queue, made);
    return TRI_OK;
}

/* ---- those under way */

static void way_append(post_queue *queue, post_letter *letter)
{
    letter->next = NULL;
    if (queue->first)
        queue->last->next = letter;
    else
        queue->first = letter;
    queue->last = letter;
    queue->under_way++;
}

static size_t parts_add(const post_letter *letter, tri_part *parts)
{
    tri_part pieces[PIECES] = {{letter->head, TRI_LETTER_NBYTES}};
    size_t count = 0, done = letter->done_nbytes;

    memcpy(pieces + 1, letter->body, sizeof letter->body);
    for (size_t i = 0; i < PIECES; i++) {
        size_t skipped = done < pieces[i].nbytes ? done : pieces[i].nbytes;

        done -= skipped;
        if (skipped < pieces[i].nbytes)
            parts[count++] = (tri_part){(const unsigned char *)pieces[i].bytes + skipped, pieces[i].nbytes - skipped};
    }
    return count;
}

size_t tri_post_queue_offer(post_queue *queue, tri_part parts[TRI_POST_PARTS], size_t *nbytes)
{
    size_t count = 0;
    const post_letter *letter = queue->first;

    *nbytes = 0;
    /* All that are promised come first, however many: they fitted once. */
    for (; letter; letter = letter->next) {
        count += parts_add(letter, parts + count);
        *nbytes += letter->nbytes - letter->done_nbytes;
    }
    while (queue->count > 0 && count + PIECES <= TRI_POST_PARTS &&
           (count == 0 || *nbytes + queue->waiting[0]->nbytes <= OFFER_NBYTES)) {
        post_letter *more = heap_pop(queue);

        way_append(queue, more);
        count += parts_add(more, parts + count);
        *nbytes += more->nbytes;
    }
    return count;
}

void tri_post_queue_taken(post_queue *queue, size_t taken, size_t promised)
{
    post_letter *letter = queue->first, **kept = &queue->first;

    queue->nbytes -= taken;
    queue->last = NULL;
    for (; letter; letter = *kept) {
        size_t left = letter->nbytes - letter->done_nbytes, part = taken < left ? taken : left;

        letter->done_nbytes += part;
        taken -= part;
        left -= part;
        if (letter->done_nbytes == 0 && promised == 0) {
            *kept = letter->next;
            queue->under_way--;
            heap_push(queue, letter);
            continue;
        }
        promised -= promised < left ? promised : left;
        queue->last = letter;
        kept = &letter->next;
    }
}

/* The first of those under way. */
static post_letter *way_pop(post_queue *queue)
{
    post_letter *letter = queue->first;

    queue->first = letter->next;
    queue->under_way--;
    if (!queue->first)
        queue->last = NULL;
    return letter;
}

post_letter *tri_post_queue_sent(post_queue *queue)
{
    return queue->first && queue->first->done_nbytes == queue->first->nbytes ? way_pop(queue) : NULL;
}

post_letter *tri_post_queue_pop(post_queue *queue)
{
    post_letter *letter = queue->first ? way_pop(queue) : queue->count > 0 ? heap_pop(queue) : NULL;

    if (letter)
        queue->nbytes -= letter->nbytes - letter->done_nbytes;
    return letter;
}
