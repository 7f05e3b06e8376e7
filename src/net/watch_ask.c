/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_ask.c: what other threads of the rank ask its watch, and tell the others through it.
 */
#include <string.h>

#include "net/watch_impl.h"

void tri_watch_client_set(tri_watch *watch, const tri_watch_client *client)
{
    tri_mutex_lock(&watch->client_mutex);
    watch->client = client ? *client : (tri_watch_client){.arg = NULL};
    tri_mutex_unlock(&watch->client_mutex);
}

void tri_watch_waker_set(tri_watch *watch, void (*wake)(void *arg), void *arg)
{
    tri_mutex_lock(&watch->mutex);
    watch->waker = wake;
    watch->waker_arg = arg;
    tri_mutex_unlock(&watch->mutex);
}

bool tri_watch_has_trouble(const tri_watch *watch)
{
    return atomic_load_explicit((atomic_bool *)(uintptr_t)&watch->trouble, memory_order_relaxed);
}

tri_status tri_watch_trouble(const tri_watch *watch)
{
    if (!atomic_load((atomic_bool *)(uintptr_t)&watch->trouble))
        return TRI_OK;
    if (watch->subject >= 0 && watch->subject != watch->rank)
        return tri_fail_copy(TRI_EPEER, watch->text);
    return tri_fail_copy(watch->cause == TRI_EMISMATCH ? TRI_EMISMATCH : TRI_EABORT, watch->text);
}

void tri_watch_blame(const tri_watch *watch, int *origin, tri_status *cause)
{
    if (!atomic_load((atomic_bool *)(uintptr_t)&watch->trouble))
        return;
    *origin = watch->origin;
    *cause = watch->cause;
}

void tri_watch_tell(tri_watch *watch, tri_status cause, int origin, const char *text)
{
    tri_mutex_lock(&watch->mutex);
    (void)tri_watch_trouble_set(watch, cause, origin < 0 ? watch->rank : origin, -1, TRI_VERDICT_NONE, text);
    tri_watch_spread(watch);
    tri_mutex_unlock(&watch->mutex);
    tri_watch_rouse(watch);
}

tri_watch_state tri_watch_state_of(const tri_watch *watch, int peer)
{
    return (tri_watch_state)atomic_load_explicit(&watch->peers[peer].state, memory_order_acquire);
}

tri_verdict tri_watch_verdict_of(const tri_watch *watch, int peer)
{
    return (tri_verdict)atomic_load_explicit(&watch->peers[peer].verdict, memory_order_relaxed);
}

/* Of a page that its owner may be writing: tries again, not for ever. */
static size_t page_note(const watch_page *page, unsigned char bytes[TRI_WATCH_NOTE_NBYTES])
{
    watch_page *at = (watch_page *)(uintptr_t)page;
    uint64_t words[TRI_WATCH_NOTE_NBYTES / 8];

    for (int attempt = 0; attempt < 100; attempt++) {
        uint32_t stamp = atomic_load(&at->note_stamp);
        uint32_t nbytes = atomic_load_explicit(&at->note_nbytes, memory_order_acquire);

        if (stamp % 2 != 0 || nbytes > TRI_WATCH_NOTE_NBYTES)
            continue;
        for (size_t i = 0; i < (nbytes + 7) / 8; i++)
            words[i] = atomic_load_explicit(&at->note[i], memory_order_acquire);
        if (atomic_load_explicit(&at->note_stamp, memory_order_relaxed) != stamp)
            continue;
        memcpy(bytes, words, nbytes);
        return nbytes;
    }
    return 0;
}

size_t tri_watch_note(tri_watch *watch, int peer, unsigned char bytes[TRI_WATCH_NOTE_NBYTES], int64_t *age_ns)
{
    watch_peer *at = &watch->peers[peer];
    size_t nbytes;

    tri_mutex_lock(&watch->mutex);
    *age_ns = tri_now_ns() - at->heard_ns;
    if (at->page) {
        nbytes = page_note(at->page, bytes);
    } else {
        nbytes = at->note_nbytes;
        memcpy(bytes, at->note, nbytes);
    }
    tri_mutex_unlock(&watch->mutex);
    return nbytes;
}

void tri_watch_ask(tri_watch *watch, int peer)
{
    const watch_head head = {.kind = WATCH_ASK};

    tri_mutex_lock(&watch->mutex);
    watch->peers[peer].answer_nbytes = 0;
    watch->peers[peer].asked_beat = watch->peers[peer].beat_count;
    tri_watch_say(&watch->peers[peer], &head, NULL);
    tri_mutex_unlock(&watch->mutex);
}

bool tri_watch_may_answer(tri_watch *watch, int peer, uint64_t beats)
{
    const watch_peer *at = &watch->peers[peer];

    tri_mutex_lock(&watch->mutex);
    bool may = tri_watch_is(at, TRI_WATCH_ALIVE) && at->answer_nbytes == 0 && at->beat_count - at->asked_beat < beats;
    tri_mutex_unlock(&watch->mutex);
    return may;
}

size_t tri_watch_answer(tri_watch *watch, int peer, char text[TRI_WATCH_TEXT_NBYTES])
{
    size_t nbytes;

    tri_mutex_lock(&watch->mutex);
    nbytes = watch->peers[peer].answer_nbytes;
    memcpy(text, watch->peers[peer].answer, nbytes);
    text[nbytes] = 0;
    tri_mutex_unlock(&watch->mutex);
    return nbytes;
}
