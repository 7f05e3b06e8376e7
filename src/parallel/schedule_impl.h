/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule_impl.h: what schedule.c and schedule_play.c share.
 */
#ifndef TRI_PARALLEL_SCHEDULE_IMPL_H
#define TRI_PARALLEL_SCHEDULE_IMPL_H

#include "parallel/schedule.h"

/* Messages of all ranks in their order, and the room that incoming ones need. */
tri_status tri_pipe_schedule_messages_make(tri_pipe_schedule *schedule);

#endif
