/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_audit.h: the ledger of the samples that each step used.
 */
#ifndef TRI_TRAIN_SAMPLE_AUDIT_H
#define TRI_TRAIN_SAMPLE_AUDIT_H

#include "train/core/job.h"

/* sample_audit.c: RUN/ledger, where this run keeps one: opened on rank 0, and by whoever may become it, which keeps the
 * latest steps until it leads. */
tri_status tri_job_used_open(tri_job *job);
tri_status tri_job_used_lead(tri_job *job);

#endif
