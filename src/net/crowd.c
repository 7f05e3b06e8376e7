/* SPDX-License-Identifier: Apache-2.0
 *
 * crowd.c: callers of a listener that have proven nothing yet.
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
    if (address->sa_family == AF_INET)
        return XXH3_64bits(&((const struct sockaddr_in *)(const void *)address)->sin_addr, sizeof(struct in_addr));
    if (address->sa_family == AF_INET6)
        return XXH3_64bits(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, sizeof(struct in6_addr));
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

void tri_crowd_add(tri_crowd *crowd, tri_caller *caller, uint64_t from, int64_t now_ns)
{
    *caller = (tri_caller){.before = crowd->last, .from = from, .since_ns = now_ns};
    if (crowd->last)
        crowd->last->next = caller;
    else
        crowd->first = caller;
    crowd->last = caller;
    crowd->count++;
}

void tri_crowd_remove(tri_crowd *crowd, tri_caller *caller)
{
    if (caller->before)
        caller->before->next = caller->next;
    else
        crowd->first = caller->next;
    if (caller->next)
        caller->next->before = caller->before;
    else
        crowd->last = caller->before;
    crowd->count--;
}

/* How many callers an address has, and its oldest. */
static int callers_of(const tri_crowd *crowd, uint64_t from, tri_caller **oldest)
{
    int count = 0;

    *oldest = NULL;
    for (tri_caller *caller = crowd->first; caller; caller = caller->next) {
        if (caller->from != from)
            continue;
        *oldest = *oldest ? *oldest : caller;
        count++;
    }
    return count;
}

bool tri_crowd_admits(const tri_crowd *crowd, uint64_t from, int64_t now_ns, tri_caller **leaves)
{
    tri_caller *oldest = NULL, *any = crowd->first;
    int quota = crowd->limit / PER_ADDRESS;

    *leaves = NULL;
    if (crowd->count < quota)
        return true;
    if (callers_of(crowd, from, &oldest) >= quota) {
        *leaves = now_ns - oldest->since_ns >= SILENCE_NS ? oldest : NULL;
        return *leaves != NULL;
    }
    if (crowd->count < crowd->limit)
        return true;
    /* Several addresses have their full share: the one that calls less often comes in. */
    while (any->next && callers_of(crowd, any->from, leaves) < quota / PER_ADDRESS)
        any = any->next;
    *leaves = any;
    return true;
}

tri_caller *tri_crowd_silent(const tri_crowd *crowd, int64_t now_ns, int64_t *next_ns)
{
    *next_ns = TRI_FOREVER;
    if (crowd->count <= crowd->limit / CROWDED_PART)
        return NULL;
    for (tri_caller *caller = crowd->first; caller; caller = caller->next) {
        if (caller->has_spoken)
            continue;
        if (now_ns - caller->since_ns >= SILENCE_NS)
            return caller;
        *next_ns = caller->since_ns + SILENCE_NS;
        return NULL; /* those behind it are younger */
    }
    return NULL;
}
