/* SPDX-License-Identifier: Apache-2.0
 *
 * stand.h: where a process shows its figures: in the run's folder, and at an address of its own where nobody gathers
 * them; of a parameter server, who makes no steps, also the lines of its log.
 */
#ifndef TRI_MONITOR_STAND_H
#define TRI_MONITOR_STAND_H

#include "monitor/figures.h"
#include "monitor/monitor.h"

typedef struct tri_stand_place {
    const char *folder; /* of the run */
    int rank, local_rank;
    bool serves;  /* a parameter server: it makes no steps, so a thread of the stand looks once a second what is due */
    bool resumes; /* serves: what its log has stays */
} tri_stand_place;

typedef struct tri_stand tri_stand;
/* As monitor.metrics says, and of a server monitor.ranks_every; *out NULL: neither needs anything. */
tri_status tri_stand_open(const tri_monitor_config *config, const tri_stand_place *place, tri_stand **out);
tri_figures *tri_stand_figures(tri_stand *stand);
/* NULL does nothing. */
void tri_stand_close(tri_stand *stand);

#endif
