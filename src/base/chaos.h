/* SPDX-License-Identifier: Apache-2.0
 *
 * chaos.h: a page of memory by which another process of the same user makes this one fail from within: its disk is
 * full, its wall clock jumps, its links are late, a bit of its weights flips. And by which it tells how far it is.
 *
 * Only where it was offered (comm.chaos): it is a memfd that `trireme chaos` finds among the descriptors of this
 * process; no port, no name. Elsewhere every question below costs one load and answers no.
 */
#ifndef TRI_BASE_CHAOS_H
#define TRI_BASE_CHAOS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* Times are those of tri_now_ns(), which all processes of a machine share. */
typedef struct tri_chaos_page {
    uint64_t magic;
    atomic_int_least64_t step;           /* that this process has made last; -1: none */
    atomic_int_least64_t flip_nbytes;    /* of which a bit can flip; 0: none */
    atomic_int_least64_t disk_until_ns;  /* until then nothing can be written */
    atomic_int_least64_t clock_ns;       /* the wall clock is wrong by so much */
    atomic_int_least64_t delay_until_ns; /* until then a link takes bytes */
    atomic_int_least64_t delay_ns;       /* once in so long */
    atomic_int_least64_t flip;           /* bit of the weights to flip, from 1; 0: none */
    atomic_int_least64_t flip_step;      /* not before this step; set before `flip` is */
    atomic_int_least64_t fails;          /* the next step ends with an error of input and output; 0: it does not */
} tri_chaos_page;

/* Makes this process's page; once. */
tri_status tri_chaos_offer(void);
bool tri_chaos_is_offered(void);
void tri_chaos_tell(int64_t step, int64_t flip_nbytes);
/* The bit of the weights that shall flip before this step, or -1. */
int64_t tri_chaos_flip_take(int64_t step);
/* TRI_EIO once where this process shall end with an error; else TRI_OK. */
tri_status tri_chaos_fail_take(void);
bool tri_chaos_disk_is_full(void);
int64_t tri_chaos_clock_ns(void);
/* 0: links are not late. */
int64_t tri_chaos_delay_ns(void);

/* The other side. NULL: this process offers none, or may not be asked. */
tri_chaos_page *tri_chaos_page_find(pid_t pid);
void tri_chaos_page_close(tri_chaos_page *page);

#endif
