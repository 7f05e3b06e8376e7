/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh.h: the ranks as a box of data x tensor x pipeline, and the groups along its edges.
 *
 * Ranks are numbered with the tensor rank fastest, then the data rank, then the stage: those that talk most, tensor
 * ranks, are neighbours on one host; stages, which talk least, are farthest apart.
 */
#ifndef TRI_PARALLEL_MESH_H
#define TRI_PARALLEL_MESH_H

#include "parallel/sync.h"

typedef struct tri_mesh {
    int data, tensor, pipeline; /* sizes; their product is the number of ranks */
    int data_rank, tensor_rank, stage;
    /* Ranks that differ in one of the three alone; NULL where that is 1, but for data. */
    tri_group *data_group, *tensor_group, *pipeline_group;
    tri_group *model_group; /* ranks that share the same data: tensor x pipeline; NULL where that is 1 */
    bool owned;             /* the groups are ours; else data_group is the world's */
} tri_mesh;

/* Sizes from parallel.data, tensor and pipeline, one of which may be auto; TRI_ECONFIG with the arithmetic when they do
 * not make `ranks`. Groups stay NULL. */
tri_status tri_mesh_shape(const tri_parallel_config *config, int ranks, tri_mesh *mesh);
/* This rank's place in a mesh of that shape. */
void tri_mesh_place(tri_mesh *mesh, int rank);
/* The rank at a place. */
int tri_mesh_rank(const tri_mesh *mesh, int data_rank, int tensor_rank, int stage);
/* Shape, place and groups; collective over all ranks. Ends with tri_mesh_close() whatever is returned. */
tri_status tri_mesh_open(const tri_parallel_config *config, tri_comm *comm, tri_mesh *mesh);
void tri_mesh_close(tri_mesh *mesh);
/* "data 2 x tensor 2 x pipeline 2"; text holds 64 bytes. */
const char *tri_mesh_print(const tri_mesh *mesh, char text[64]);

#endif
