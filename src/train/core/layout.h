/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h: the layout of a run by plan/: for `trireme plan`, and for `parallel: auto`.
 */
#ifndef TRI_TRAIN_LAYOUT_H
#define TRI_TRAIN_LAYOUT_H

#include "plan/search.h"
#include "train/core/config.h"

typedef struct tri_layout_setup {
    const tri_config *config;    /* its model is found (tri_config_model_find) */
    const tri_model *given;      /* instead of the configuration's; or NULL */
    tri_comm *comm;              /* whose ranks measure; NULL: alone */
    tri_plan_cluster *described; /* taken; NULL: the ranks of comm, as they are measured */
    double price;                /* of a measured host, an hour */
    void (*progress)(void *arg, const char *what);
    void *progress_arg;
} tri_layout_setup;

/* Does not move. */
typedef struct tri_layouts {
    tri_plan_setup setup;
    tri_plan_crew crew;
    tri_plan_cluster cluster;
    tri_plan_models models;
    tri_plan_list plan;
} tri_layouts;

/* What the configuration gives of data, tensor, pipeline, sync, schedule and chunks stays so. Opens the training data
 * for the shape of its samples. Collective over comm; ends with tri_layouts_close() whatever is returned. */
tri_status tri_layouts_find(const tri_layout_setup *setup, tri_layouts *layouts);
void tri_layouts_close(tri_layouts *layouts);

/* parallel.layout auto: finds the layout for the ranks of comm, collective, and writes it into the configuration, whose
 * layout is given from then on; text: what was chosen and why. Else nothing happens. */
tri_status tri_config_layout_find(tri_config *config, const tri_model *given, tri_comm *comm, tri_string *text);

#endif
