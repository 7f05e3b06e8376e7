/* SPDX-License-Identifier: Apache-2.0
 *
 * views.c: views in the store. "ps/claim/<version>" says who was first to change the view before it, and how;
 * "ps/view/<version>" is what came of it.
 *
 * Whoever claims adds one, in the upper bits, and the code of the change. So the first knows that it was first, the
 * second what the first has said, and both write the view down: either may die in between. A reader that finds one
 * claim needs nothing else.
 */
#include "ps/views.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/wait.h"

void tri_ps_address_key(int number, char key[TRI_PS_ADDRESS_KEY_NBYTES])
{
    snprintf(key, TRI_PS_ADDRESS_KEY_NBYTES, "ps/server/%d", number);
}

#define CLAIM_BITS 40 /* below: codes of all servers that may claim */

static tri_status claim_add(tri_store *store, uint64_t version, int64_t amount, int64_t limit_ms, int64_t *claims,
                            int64_t *codes)
{
    char key[64];
    int64_t sum;
    snprintf(key, sizeof(key), "ps/claim/%llu", (unsigned long long)version);
    TRI_TRY(tri_store_add(store, key, amount, &sum, tri_deadline_after_ms(limit_ms)));
    *claims = sum >> CLAIM_BITS;
    *codes = sum & ((INT64_C(1) << CLAIM_BITS) - 1);
    return TRI_OK;
}

static void view_key(uint64_t version, char key[64])
{
    snprintf(key, 64, "ps/view/%llu", (unsigned long long)version);
}

static tri_status view_fetch(tri_store *store, int64_t limit_ms, ps_view *view)
{
    char key[64], *bytes;
    size_t nbytes;
    view_key(view->version + 1, key);
    TRI_TRY_IN(tri_store_wait(store, key, &bytes, &nbytes, tri_deadline_after_ms(limit_ms)),
               "while waiting for who serves what");
    tri_status status = ps_view_read(bytes, nbytes, view);
    tri_free(bytes);
    return status;
}

static tri_status view_put(tri_store *store, const ps_view *view)
{
    char key[64];
    tri_string bytes = {0};
    view_key(view->version, key);
    tri_status status = ps_view_write(view, &bytes);
    if (status == TRI_OK)
        status =
            tri_store_set(store, key, tri_string_text(&bytes), bytes.nbytes, tri_deadline_after_ms(TRI_PS_VIEWS_MS));
    tri_string_fini(&bytes);
    return status;
}

tri_status tri_ps_views_next(tri_store *store, int64_t limit_ms, ps_view *view, bool *found)
{
    int64_t claims, codes;
    ps_change change;
    TRI_TRY(claim_add(store, view->version + 1, 0, limit_ms, &claims, &codes));
    *found = claims > 0;
    if (claims > 1)
        return view_fetch(store, limit_ms, view);
    if (claims == 0)
        return TRI_OK;
    TRI_TRY(ps_change_read(codes, &change));
    return ps_view_change(view, &change, view);
}

tri_status tri_ps_views_look(tri_store *store, int64_t limit_ms, ps_view *view)
{
    bool found = true;
    while (found)
        TRI_TRY(tri_ps_views_next(store, limit_ms, view, &found));
    return TRI_OK;
}

tri_status tri_ps_views_claim(tri_store *store, const ps_change *change, ps_view *view)
{
    int64_t claims, codes, code = ps_change_code(change);
    ps_change first;
    ps_view *next = tri_alloc(sizeof(*next));
    if (!next)
        return TRI_ENOMEM;
    tri_status status = ps_view_change(view, change, next); /* before others hear of it: it can be */
    if (status == TRI_OK)
        status =
            claim_add(store, view->version + 1, (INT64_C(1) << CLAIM_BITS) + code, TRI_PS_VIEWS_MS, &claims, &codes);
    if (status == TRI_OK && claims > 2) {
        tri_free(next);
        return view_fetch(store, TRI_PS_VIEWS_MS, view);
    }
    if (status == TRI_OK && claims == 2) {
        status = ps_change_read(codes - code, &first);
        if (status == TRI_OK)
            status = ps_view_change(view, &first, next);
    }
    if (status == TRI_OK)
        status = view_put(store, next);
    if (status == TRI_OK)
        *view = *next;
    tri_free(next);
    return status;
}

tri_status tri_ps_views_start(tri_store *store, int number, int64_t *count)
{
    char key[64];
    snprintf(key, sizeof(key), "ps/start/%d", number);
    return tri_store_add(store, key, 1, count, tri_deadline_after_ms(TRI_PS_VIEWS_MS));
}

static void host_key(int number, char key[64])
{
    snprintf(key, 64, "ps/host/%d", number);
}

tri_status tri_ps_views_host_claim(tri_store *store, int number, uint64_t host)
{
    char key[64], mine[24], *stands;
    size_t nbytes;
    host_key(number, key);
    snprintf(mine, sizeof(mine), "%016" PRIx64, host);
    TRI_TRY(tri_store_claim(store, key, mine, strlen(mine), &stands, &nbytes, tri_deadline_after_ms(TRI_PS_VIEWS_MS)));
    tri_free(stands);
    return TRI_OK;
}

static tri_status host_read(tri_store *store, int number, int64_t until_ns, uint64_t *host)
{
    char key[64], *text;
    size_t nbytes;
    host_key(number, key);
    TRI_TRY(tri_store_wait(store, key, &text, &nbytes, until_ns));
    bool read = sscanf(text, "%16" SCNx64, host) == 1;
    tri_free(text);
    return read ? TRI_OK : tri_fail(TRI_EFORMAT, "store key %s: want the number of a host, got another text", key);
}

tri_status tri_ps_views_hosts(tri_store *store, int servers, int64_t deadline_ns, uint64_t *hosts)
{
    tri_wait wait;
    tri_wait_begin(&wait);
    for (int number = 0; number < servers;) {
        tri_status status = host_read(store, number, tri_wait_until(deadline_ns, TRI_WAIT_SLICE_NS), &hosts[number]);
        if (status == TRI_OK) {
            number++;
            continue;
        }
        TRI_TRY(tri_wait_check("waiting for a parameter server"));
        if (status != TRI_ETIMEOUT || tri_now_ns() >= deadline_ns)
            return tri_fail_context(status, "while waiting for parameter server %d of %d to begin", number, servers);
        if (tri_wait_is_long(&wait))
            tri_log(TRI_LOG_WARN, "waiting for parameter server %d of %d to begin", number, servers);
    }
    return TRI_OK;
}

tri_status tri_ps_views_era(tri_store *store, int64_t more, int64_t *era)
{
    return tri_store_add(store, "ps/era", more, era, tri_deadline_after_ms(TRI_PS_VIEWS_MS));
}

static tri_status left_add(tri_store *store, int worker, int64_t amount, int64_t *count, int64_t limit_ms)
{
    char key[64];
    snprintf(key, sizeof(key), "ps/left/%d", worker);
    return tri_store_add(store, key, amount, count, tri_deadline_after_ms(limit_ms));
}

tri_status tri_ps_views_left(tri_store *store, int worker)
{
    int64_t count;
    return left_add(store, worker, 1, &count, TRI_PS_VIEWS_MS);
}

tri_status tri_ps_views_has_left(tri_store *store, int worker, int64_t limit_ms, bool *has)
{
    int64_t count;
    TRI_TRY(left_add(store, worker, 0, &count, limit_ms));
    *has = count > 0;
    return TRI_OK;
}

tri_status tri_ps_views_all_left(tri_store *store, int workers, bool *all)
{
    int64_t count = 1;
    for (int w = 0; w < workers && count > 0; w++)
        TRI_TRY(left_add(store, w, 0, &count, TRI_PS_VIEWS_MS));
    *all = count > 0;
    return TRI_OK;
}
