/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_audit.h: the ledger of the samples that each step used.
 */
#ifndef TRI_TRAIN_SAMPLE_AUDIT_H
#define TRI_TRAIN_SAMPLE_AUDIT_H

#include "train/core/job.h"

/* This process writes RUN/ledger, or may come to write it. */
bool tri_job_ledger_is_kept(const tri_job *job);

#endif
