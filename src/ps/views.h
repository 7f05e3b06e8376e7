/* SPDX-License-Identifier: Apache-2.0
 *
 * views.h: the row of views in the job's store: each is made once, from the one before, by whoever notices first that
 * it is due.
 */
#ifndef TRI_PS_VIEWS_H
#define TRI_PS_VIEWS_H

#include "cluster/store.h"
#include "ps/view.h"

/* A call waits so long, or limit_ms, for a store that is silent: its host may be busy, or stand still for a while.
 * Then TRI_ETIMEOUT. */
#define TRI_PS_VIEWS_MS 60000

/* The key in the store under which server `number` publishes its address. */
#define TRI_PS_ADDRESS_KEY_NBYTES 32
void tri_ps_address_key(int number, char key[TRI_PS_ADDRESS_KEY_NBYTES]);
/* The view behind *view, if there is one; else *found is false. */
tri_status tri_ps_views_next(tri_store *store, int64_t limit_ms, ps_view *view, bool *found);
/* The newest one, if it is newer than *view. */
tri_status tri_ps_views_look(tri_store *store, int64_t limit_ms, ps_view *view);
/* *view becomes the next one: the change to it, or what somebody else was first with. TRI_EINVAL: it cannot be. */
tri_status tri_ps_views_claim(tri_store *store, const ps_change *change, ps_view *view);
/* How often a server of this number has been started, this time included. */
tri_status tri_ps_views_start(tri_store *store, int number, int64_t *count);
/* How often a server of a run without backups was lost, so that the run, or its part, goes back to a checkpoint; `more`
 * is added to it. */
tri_status tri_ps_views_era(tri_store *store, int64_t more, int64_t *era);
/* A server says on which host it is when it is started for the first time; that stays. */
tri_status tri_ps_views_host_claim(tri_store *store, int number, uint64_t host);
/* The hosts of all servers, [servers]; waits for those that have not begun. A stop signal ends it (TRI_ECANCELED). */
tri_status tri_ps_views_hosts(tri_store *store, int servers, int64_t deadline_ns, uint64_t *hosts);
/* A worker has said goodbye to all servers that it knew; whether it has; and whether all have. */
tri_status tri_ps_views_left(tri_store *store, int worker);
tri_status tri_ps_views_has_left(tri_store *store, int worker, int64_t limit_ms, bool *has);
tri_status tri_ps_views_all_left(tri_store *store, int workers, bool *all);

#endif
