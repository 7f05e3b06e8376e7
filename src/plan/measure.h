/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h: what the ranks of a job measure together, so that a plan is made from what this machine does: everybody
 * computes and talks as in training, at the same time; the slowest rank's figures count.
 *
 * All calls are collective, and all ranks get the same figures.
 */
#ifndef TRI_PLAN_MEASURE_H
#define TRI_PLAN_MEASURE_H

#include "comm/comm.h"
#include "optim/optim.h"
#include "plan/cluster.h"

/* Who measures what computes: as many ranks of a host at a time as it has cores for; the others wait meanwhile. */
typedef struct tri_plan_crew {
    tri_comm *comm; /* NULL: alone */
    int threads;    /* of each rank */
    bool computes;  /* this rank is one of those who compute while measuring */
    double crowd;   /* workers that share a core, at least 1 */
} tri_plan_crew;

tri_plan_crew tri_plan_crew_of(tri_comm *comm, int threads);
int tri_plan_crew_count(const tri_plan_crew *crew);
/* Everybody's figures become the largest; also a meeting point. */
tri_status tri_plan_crew_agree(const tri_plan_crew *crew, double *figures, int count);
/* The status of all: `mine` where it is a failure, or that another rank has failed. */
tri_status tri_plan_crew_status(const tri_plan_crew *crew, tri_status mine);

/* Hosts, memory, seconds of an optimizer and of calls: a described cluster that is this one. price: of each host, an
 * hour. Ends with tri_plan_cluster_fini() whatever is returned. */
tri_status tri_plan_cluster_measure(const tri_plan_crew *crew, const tri_optim_config *optim, double price,
                                    tri_plan_cluster *cluster);
/* What a worker has of a card. */
typedef struct tri_plan_card {
    double flops, memory_rate; /* that a worker who has it alone may reach */
    double memory_nbytes;      /* of the worker */
    int workers;               /* that share it */
} tri_plan_card;
/* The same of workers on cards, of which nothing but their calls, which are the hosts', is measured. */
tri_status tri_plan_cluster_of_cards(const tri_plan_crew *crew, const tri_plan_card *card, double price,
                                     tri_plan_cluster *cluster);
/* Seconds of a value of such an optimizer, and of the norm, on this rank alone. */
tri_status tri_plan_optim_measure(const tri_optim_config *optim, int threads, double *optim_s, double *norm_s);
/* Bytes that the processes of this host may take together: the least of what is free, of the control group's limit and,
 * for `ranks` processes, of the limit of address space; infinite: not known. */
double tri_plan_host_memory(int ranks);

#endif
