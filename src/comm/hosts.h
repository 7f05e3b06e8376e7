/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts.h: how the ranks of a group are placed on hosts, where every host has the same number of them.
 *
 * Rank i of each host talks to rank i of the others (`across`) and to its neighbours on the host (`local`): what goes
 * between hosts goes once, shared out among all ranks of a host.
 */
#ifndef TRI_COMM_HOSTS_H
#define TRI_COMM_HOSTS_H

#include "comm/run.h"

struct tri_hosts {
    int count;         /* hosts, at least 2 */
    int locals;        /* ranks of each, at least 2 */
    bool ordered;      /* the ranks of a host follow one another */
    tri_group *local;  /* in the order of the group */
    tri_group *across; /* rank: the number of the host, in the order of their first ranks */
};

/* NULL: one host, one rank on each, or not the same number on all. TRI_ENOMEM. */
tri_status tri_hosts_make(tri_group *group, tri_hosts **out);
void tri_hosts_destroy(tri_hosts *hosts);

#endif
