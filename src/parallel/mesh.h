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
    int zero; /* data ranks in a row that spread one copy of the state over themselves; where nothing is spread: all */
    int data_rank, tensor_rank, stage;
    /* Ranks that differ in one of the three alone; NULL where that is 1, but for data. */
    tri_group *data_group, *tensor_group, *pipeline_group;
    tri_group *model_group;   /* ranks that share the same data: tensor x pipeline; NULL where that is 1 */
    tri_group *zero_group;    /* of the data group, those with one copy; the data group itself where that is all */
    tri_group *replica_group; /* of the data group, those with the same of each copy; NULL: there is one */
    bool owned;               /* the groups of the edges are ours; else data_group is the world's */
} tri_mesh;

/* Sizes from parallel.data, tensor and pipeline, one of which may be auto, and zero_ranks; TRI_ECONFIG with the
 * arithmetic when they do not make `ranks`. All ranks are taken to be on one host. Groups stay NULL. */
tri_status tri_mesh_shape(const tri_parallel_config *config, int ranks, tri_mesh *mesh);
/* zero of a mesh of that shape, from parallel.zero_ranks; host[r] says where rank r is (NULL: all on one). TRI_ECONFIG
 * unless it divides the data ranks; where it is host: unless as many of these are on each, at least two and one after
 * the other. */
tri_status tri_mesh_zero_find(const tri_parallel_config *config, const int *host, tri_mesh *mesh);
/* This rank's place in a mesh of that shape. */
void tri_mesh_place(tri_mesh *mesh, int rank);
/* Among those that spread one copy of the state over themselves. */
static inline int tri_mesh_zero_rank(const tri_mesh *mesh)
{
    return mesh->data_rank % mesh->zero;
}
/* The rank at a place. */
int tri_mesh_rank(const tri_mesh *mesh, int data_rank, int tensor_rank, int stage);
/* Shape, place and groups; collective over all ranks. Ends with tri_mesh_close() whatever is returned. */
tri_status tri_mesh_open(const tri_parallel_config *config, tri_comm *comm, tri_mesh *mesh);
void tri_mesh_close(tri_mesh *mesh);
/* "data 2 x tensor 2 x pipeline 2", with several copies of the state also ", state over 2"; text holds 64 bytes. */
const char *tri_mesh_print(const tri_mesh *mesh, char text[64]);

#endif
