/* SPDX-License-Identifier: Apache-2.0
 *
 * views.c: views in the store: "ps/claim/<version>" says who makes it, "ps/view/<version>" is it, "ps/latest" counts
 * those that are there.
 */
#include "ps/views.h"

#include <stdio.h>

#include "base/memory.h"

#define LIMIT_MS 2000

static tri_status view_fetch(tri_store *store, uint64_t version, ps_view *view)
{
    char key[64], *bytes;
    size_t nbytes;
    snprintf(key, sizeof(key), "ps/view/%llu", (unsigned long long)version);
    TRI_TRY_IN(tri_store_wait(store, key, &bytes, &nbytes, tri_deadline_after_ms(LIMIT_MS)),
               "while waiting for who serves what");
    tri_status status = ps_view_read(bytes, nbytes, view);
    tri_free(bytes);
    return status;
}

tri_status tri_ps_views_look(tri_store *store, ps_view *view)
{
    int64_t changes;
    TRI_TRY(tri_store_add(store, "ps/latest", 0, &changes, tri_deadline_after_ms(LIMIT_MS)));
    uint64_t newest = 1 + (uint64_t)changes;
    return newest > view->version ? view_fetch(store, newest, view) : TRI_OK;
}

tri_status tri_ps_views_claim(tri_store *store, ps_view *next)
{
    char key[64];
    int64_t claims, changes;
    tri_string bytes = {0};
    snprintf(key, sizeof(key), "ps/claim/%llu", (unsigned long long)next->version);
    TRI_TRY(tri_store_add(store, key, 1, &claims, tri_deadline_after_ms(LIMIT_MS)));
    if (claims > 1)
        return view_fetch(store, next->version, next);
    tri_status status = ps_view_write(next, &bytes);
    snprintf(key, sizeof(key), "ps/view/%llu", (unsigned long long)next->version);
    if (status == TRI_OK)
        status = tri_store_set(store, key, tri_string_text(&bytes), bytes.nbytes, tri_deadline_after_ms(LIMIT_MS));
    tri_string_fini(&bytes);
    TRI_TRY(status);
    return tri_store_add(store, "ps/latest", 1, &changes, tri_deadline_after_ms(LIMIT_MS));
}

tri_status tri_ps_views_start(tri_store *store, int number, int64_t *count)
{
    char key[64];
    snprintf(key, sizeof(key), "ps/start/%d", number);
    return tri_store_add(store, key, 1, count, tri_deadline_after_ms(LIMIT_MS));
}
