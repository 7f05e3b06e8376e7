/* SPDX-License-Identifier: Apache-2.0
 *
 * stand.h: where a process shows its figures: in the run's folder, and at an address of its own where nobody gathers
 * them.
 */
#ifndef TRI_MONITOR_STAND_H
#define TRI_MONITOR_STAND_H

#include "monitor/figures.h"
#include "monitor/monitor.h"

typedef struct tri_stand_place {
    const char *folder; /* of the run */
    int rank, local_rank;
    bool serves; /* a parameter server: it makes no steps, so a thread of the stand leaves its figures once a second */
} tri_stand_place;

typedef struct tri_stand tri_stand;
/* As monitor.metrics says; *out NULL: it says nothing. */
tri_status tri_stand_open(const tri_monitor_config *config, const tri_stand_place *place, tri_stand **out);
tri_figures *tri_stand_figures(tri_stand *stand);
/* NULL does nothing. */
void tri_stand_close(tri_stand *stand);

#endif
