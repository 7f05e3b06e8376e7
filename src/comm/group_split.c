/* SPDX-License-Identifier: Apache-2.0
 *
 * group_split.c: groups of those ranks of a group that name the same color, as MPI_Comm_split makes them.
 */
#include <stdlib.h>

#include "comm/run.h"

typedef struct split_choice {
    int32_t color, key;
} split_choice;

typedef struct split_member {
    int32_t key;
    int rank; /* in the parent */
} split_member;

static int member_order(const void *a, const void *b)
{
    const split_member *left = a, *right = b;
    if (left->key != right->key)
        return left->key < right->key ? -1 : 1;
    return left->rank < right->rank ? -1 : 1;
}

static tri_status split_create(tri_group *parent, const split_choice *choices, int color, tri_group **out)
{
    split_member *members = tri_alloc_zero((size_t)parent->count, sizeof(*members));
    int *world_ranks = tri_alloc_zero((size_t)parent->count, sizeof(*world_ranks));
    tri_status status = TRI_ENOMEM;
    if (members && world_ranks) {
        int count = 0;
        for (int r = 0; r < parent->count; r++) {
            if (choices[r].color == color)
                members[count++] = (split_member){choices[r].key, r};
        }
        qsort(members, (size_t)count, sizeof(*members), member_order);
        for (int i = 0; i < count; i++)
            world_ranks[i] = parent->world_rank[members[i].rank];
        uint32_t id = tri_group_inner_id(parent, parent->splits, color);
        status = tri_group_create(parent->comm, id, world_ranks, count, out);
    }
    tri_free(members);
    tri_free(world_ranks);
    return status;
}

tri_status tri_group_split(tri_group *parent, int color, int key, tri_group **out)
{
    *out = NULL;
    split_choice own = {color, key};
    split_choice *choices = tri_alloc_zero((size_t)parent->count, sizeof(*choices));
    if (!choices)
        return TRI_ENOMEM;
    tri_status status = tri_all_gather(parent, &own, choices, sizeof(own) / sizeof(int32_t), TRI_I32, NULL);
    if (status == TRI_OK) {
        parent->splits++;
        if (color >= 0)
            status = split_create(parent, choices, color, out);
    }
    tri_free(choices);
    return status;
}
