/* SPDX-License-Identifier: Apache-2.0
 *
 * measure_calls.h: seconds of what ranks do together, in groups of each length that a layout may have.
 */
#ifndef TRI_PLAN_MEASURE_CALLS_H
#define TRI_PLAN_MEASURE_CALLS_H

#include "plan/measure.h"

/* Fills cluster->groups; hosts are known. Collective; all ranks get the slowest one's figures. */
tri_status tri_plan_calls_measure(const tri_plan_crew *crew, tri_plan_cluster *cluster);

#endif
