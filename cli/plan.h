/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: a plan as a table for people, or as one JSON object a line.
 */
#ifndef TRI_CLI_PLAN_H
#define TRI_CLI_PLAN_H

#include "train/core/layout.h"

/* described: the workers are those of a file. all: every layout that can be, else the fastest ones. */
tri_status tri_plan_print(const tri_layouts *layouts, bool described, bool all, tri_string *out);
/* One line a layout, then one of what was chosen. */
tri_status tri_plan_print_json(const tri_layouts *layouts, tri_string *out);

#endif
