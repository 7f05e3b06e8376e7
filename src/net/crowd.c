/* SPDX-License-Identifier: Apache-2.0
 *
 * crowd.c: the callers of a listener that have proven nothing yet.
 */
#include "net/crowd.h"

#include <netinet/in.h>
#include <sys/resource.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/runtime.h"

#define SILENCE_NS   (100 * TRI_NS_PER_MS)
#define CROWDED_PART 4  /* crowded from this fraction of the limit on */
#define FILES_PART   4  /* of the open files */
#define LIMIT_LEAST  16 /* however few files there may be */
#define PER_ADDRESS  2  /* each address may have this fraction of the limit */

uint64_t tri_caller_address(const struct sockaddr *address)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;

    if (address->sa_family == AF_INET)
        return XXH3_64bits(&((const struct sockaddr_in *)(const void *)address)->sin_addr, sizeof(struct in_addr));
    if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
        return XXH3_64bits(six->s6_addr + 12, sizeof(struct in_addr));
    if (address->sa_family == AF_INET6)
        return XXH3_64bits(six->s6_addr, 8);
    return 0;
}

void tri_crowd_init(tri_crowd *crowd, int limit)
{
    struct rlimit files;

    *crowd = (tri_crowd){.limit = limit};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / FILES_PART < (rlim_t)limit)
        crowd->limit = (int)(files.rlim_cur / FILES_PART);
    if (crowd->limit < LIMIT_LEAST)
        crowd->limit = LIMIT_LEAST;
}

static void list_append(tri_caller_list *list, tri_caller *caller, int in)
{
    caller->before[in] = list->last;
    if (list->last)
        list->last->next[in] = caller;
    else
        list->first = caller;
    list->last = caller;
    list->count++;
}

static void list_remove(tri_caller_list *list, tri_caller *caller, int in)
{
    if (caller->before[in])
        caller->before[in]->next[in] = caller->next[in];
    else
        list->first = caller->next[in];
    if (caller->next[in])
        caller->next[in]->before[in] = caller->before[in];
    else
        list->last = caller->before[in];
    list->count--;
}

void tri_crowd_add(tri_crowd *crowd, tri_caller *caller, uint64_t from, int64_t now_ns)
{
    *caller = (tri_caller){.from = from, .since_ns = now_ns};
    list_append(&crowd->all, caller, TRI_IN_CROWD);
    list_append(&crowd->shares[from % TRI_CROWD_SHARES], caller, TRI_IN_SHARE);
}

void tri_crowd_remove(tri_crowd *crowd, tri_caller *caller)
{
    list_remove(&crowd->all, caller, TRI_IN_CROWD);
    list_remove(&crowd->shares[caller->from % TRI_CROWD_SHARES], caller, TRI_IN_SHARE);
}

bool tri_crowd_admits(const tri_crowd *crowd, uint64_t from, int64_t now_ns, tri_caller **leaves)
{
    const tri_caller_list *share = &crowd->shares[from % TRI_CROWD_SHARES], *largest = crowd->shares;

    *leaves = NULL;
    if (share->count >= crowd->limit / PER_ADDRESS) {
        *leaves = now_ns - share->first->since_ns >= SILENCE_NS ? share->first : NULL;
        return *leaves != NULL;
    }
    if (crowd->all.count < crowd->limit)
        return true;
    for (int i = 1; i < TRI_CROWD_SHARES; i++) {
        if (crowd->shares[i].count > largest->count)
            largest = &crowd->shares[i];
    }
    *leaves = largest->first;
    return true;
}

tri_caller *tri_crowd_silent(const tri_crowd *crowd, int64_t now_ns, int64_t *next_ns)
{
    *next_ns = TRI_FOREVER;
    if (crowd->all.count <= crowd->limit / CROWDED_PART)
        return NULL;
    for (tri_caller *caller = crowd->all.first; caller; caller = caller->next[TRI_IN_CROWD]) {
        if (caller->has_spoken)
            continue;
        if (now_ns - caller->since_ns >= SILENCE_NS)
            return caller;
        *next_ns = caller->since_ns + SILENCE_NS;
        return NULL; /* those behind it are younger */
    }
    return NULL;
}
