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
/* Memory of the first card of train.device, and how many cards workers of this machine are spread over; 0: it is the
 * host. */
tri_status tri_card_room(const tri_config *config, tri_device_room *room);
/* What each of `workers` of this machine has free on the cards of train.device; infinite: the device is the host. */
tri_status tri_card_free(const tri_config *config, int workers, double *nbytes);

/* A card as all ranks see it that are on it. */
typedef struct tri_card_crew {
    int ranks, first;                  /* how many; the lowest of them */
    double free_nbytes, needed_nbytes; /* before any of them allocates; of all of them */
    int neediest;                      /* the rank of them that needs most */
} tri_card_crew;
/* The card of this rank. Collective over comm (NULL: alone), each rank with its device. */
tri_status tri_card_meet(tri_comm *comm, const tri_device *device, tri_card_crew *crew);

/* What each rank says to all, for those who ask for more than a crew. */
enum {
    TRI_FACT_CARD,
    TRI_FACT_FREE,
    TRI_FACT_WEIGHTS,
    TRI_FACT_GRADIENTS,
    TRI_FACT_OPTIMIZER,
    TRI_FACT_ACTIVATIONS,
    TRI_FACT_NEEDED,
    TRI_FACT_COUNT
};
/* needed: bytes that this rank's arrays take there, by `memory`. facts: those of all ranks (tri_free). Collective. */
tri_status tri_card_facts(tri_comm *comm, const tri_device *device, const tri_job_memory *memory, size_t needed,
                          int64_t **facts, int *count);
tri_card_crew tri_card_crew_of(const int64_t *facts, int count, int rank);

#endif
