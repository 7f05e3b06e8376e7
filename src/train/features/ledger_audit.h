/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_audit.h: were the samples of a run used as planned?
 */
#ifndef TRI_TRAIN_LEDGER_AUDIT_H
#define TRI_TRAIN_LEDGER_AUDIT_H

#include "base/containers.h"
#include "monitor/ledger.h"

typedef struct tri_ledger_verdict {
    tri_ledger_plan plan;
    int64_t first, end;      /* the ledger speaks of steps [first, end) */
    int64_t steps_per_epoch; /* of the plan */
    int64_t generations;     /* that made them, one after the other */
    int64_t whole;           /* epochs of which each sample was used once */
    int64_t used;            /* samples of the epoch that is not over, used once so far */
    int64_t missing, wrong;  /* steps that are not in the ledger; that did not use the samples that they were to use */
    int64_t broken;          /* epochs that end within the ledger, and are not whole */
    tri_string report;       /* lines about steps that are missing or wrong; tri_string_fini() it */
} tri_ledger_verdict;

/* Audits RUN/ledger. TRI_ENOTFOUND: the run keeps none. TRI_EFORMAT: it is damaged. */
tri_status tri_ledger_audit(const char *run, tri_ledger_verdict *verdict);

static inline bool tri_ledger_is_whole(const tri_ledger_verdict *verdict)
{
    return verdict->wrong == 0 && verdict->missing == 0 && verdict->broken == 0;
}

#endif
