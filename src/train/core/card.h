/* SPDX-License-Identifier: Apache-2.0
 *
 * card.h: memory of cards, which ranks of a host may share.
 */
#ifndef TRI_TRAIN_CARD_H
#define TRI_TRAIN_CARD_H

#include "train/core/job.h"

/* Of a card's free memory, what a plan that is made ahead gives to workers: their contexts, and gaps between arrays,
 * are in no plan. */
#define TRI_CARD_SHARE 0.9

/* Number of this process among those of its host, for tri_device_open_of(). */
int tri_card_place(const tri_comm *comm);
/* What each of `workers` of this machine has free on the cards of train.device; infinite: the device is the host. */
tri_status tri_card_free(const tri_config *config, int workers, double *nbytes);

/* A card as all ranks see it that are on it. */
typedef struct tri_card_crew {
    int ranks;
    double free_nbytes, needed_nbytes; /* before any of them allocates; of all of them */
    int neediest;                      /* the rank of them that needs most */
} tri_card_crew;
/* The card of this rank. Collective over comm (NULL: alone), each rank with its device. */
tri_status tri_card_meet(tri_comm *comm, const tri_device *device, tri_card_crew *crew);
/* Before a run allocates on a card: what it needs there is free, or all ranks fail with the same line. Collective; does
 * nothing without cards. given: a program's model, or NULL. */
tri_status tri_job_card_check(tri_job *job, const tri_model *given, const tri_dataset_info *info);

#endif
