/* SPDX-License-Identifier: Apache-2.0
 *
 * views.h: the row of views in the job's store: each is made once, by whoever notices first that it is due.
 */
#ifndef TRI_PS_VIEWS_H
#define TRI_PS_VIEWS_H

#include "cluster/store.h"
#include "ps/view.h"

/* The newest one, if it is newer than *view. */
tri_status tri_ps_views_look(tri_store *store, ps_view *view);
/* Makes `next` the view of its version; if somebody else was first, *next becomes theirs. */
tri_status tri_ps_views_claim(tri_store *store, ps_view *next);
/* How often a server of this number has been started, this time included. */
tri_status tri_ps_views_start(tri_store *store, int number, int64_t *count);

#endif
