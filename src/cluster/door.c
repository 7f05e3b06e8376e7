/* SPDX-License-Identifier: Apache-2.0
 *
 * door.c: a listener that shows whether a process can be reached, and the trial of those of others. Nothing is said
 * over such a connection, so strangers learn nothing and all get the same answer.
 */
#include "cluster/door.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/runtime.h"
#include "net/probe.h"
#include "net/tcp_address.h"

#define TURN_MS  200
#define LIMIT_MS 1000
#define AT_ONCE  256 /* connections that are tried together */

struct tri_door {
    tri_tcp_door is;
    tri_thread *thread;
    atomic_bool closing;
};

static void door_run(void *arg)
{
    tri_door *door = arg;
    struct pollfd polls[TRI_TCP_PLACES_MAX];

    while (!atomic_load(&door->closing)) {
        for (int i = 0; i < door->is.count; i++)
            polls[i] = (struct pollfd){.fd = door->is.listeners[i], .events = POLLIN};
        poll(polls, (nfds_t)door->is.count, TURN_MS);
        for (int i = 0; i < door->is.count; i++) {
            int fd = accept4(door->is.listeners[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0)
                close(fd);
            else if (errno == EMFILE || errno == ENFILE)
                tri_sleep_ns(TURN_MS * TRI_NS_PER_MS); /* the connection stays in the queue, so poll would not wait */
        }
    }
}

tri_status tri_door_open(const char *interfaces, const char *ports, tri_door **out)
{
    tri_door *door = tri_alloc_zero(1, sizeof *door);

    *out = NULL;
    if (!door)
        return TRI_ENOMEM;
    tri_status status = tri_tcp_door_open(interfaces, ports, &door->is);
    if (status == TRI_OK)
        status = tri_thread_start(&door->thread, "door", door_run, door);
    if (status != TRI_OK) {
        tri_door_close(door);
        return status;
    }
    *out = door;
    return TRI_OK;
}

const char *tri_door_address(const tri_door *door)
{
    return door->is.address;
}

void tri_door_close(tri_door *door)
{
    if (!door)
        return;
    atomic_store(&door->closing, true);
    tri_thread_join(door->thread);
    tri_tcp_door_close(&door->is);
    tri_free(door);
}

/* Some of all places, which may be those of one process and of the next. */
typedef struct trial {
    tri_reach rows[AT_ONCE];
    int owner[AT_ONCE];
    size_t count;
} trial;

static tri_status trial_run(trial *now, tri_member_reach *reach)
{
    tri_status status = now->count > 0 ? tri_reach_try(now->rows, now->count, LIMIT_MS) : TRI_OK;

    for (size_t i = 0; status == TRI_OK && i < now->count; i++) {
        tri_member_reach *one = &reach[now->owner[i]];
        char place[TRI_TCP_WHERE_NBYTES];

        if (now->rows[i].error == 0)
            one->cut = false;
        if (one->where[0] || now->rows[i].error == 0)
            continue;
        tri_tcp_place_where(&now->rows[i].place, place);
        snprintf(one->where, sizeof one->where, "%s (%.80s)", place, strerror(now->rows[i].error));
    }
    now->count = 0;
    return status;
}

tri_status tri_doors_try(const tri_door *own, tri_member_reach *reach, int count)
{
    tri_tcp_place places[TRI_TCP_PLACES_MAX];
    trial *now = tri_alloc_zero(1, sizeof *now);
    tri_status status = now ? TRI_OK : TRI_ENOMEM;

    for (int i = 0; i < count && status == TRI_OK; i++) {
        int found = reach[i].door ? tri_tcp_places(reach[i].door, own->is.address, places) : 0;

        reach[i].cut = found > 0;
        if (now->count + (size_t)found > AT_ONCE)
            status = trial_run(now, reach);
        for (int p = 0; p < found && status == TRI_OK; p++) {
            now->rows[now->count].place = places[p];
            now->owner[now->count++] = i;
        }
    }
    if (status == TRI_OK)
        status = trial_run(now, reach);
    tri_free(now);
    return status;
}
