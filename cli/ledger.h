/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.h: the audit of a run's ledger, for whoever wants its verdict (ledger.c).
 */
#ifndef TRI_CLI_LEDGER_H
#define TRI_CLI_LEDGER_H

#include "base/containers.h"

typedef struct tri_ledger_verdict {
    int64_t first, end;     /* steps [first, end) are looked at: */
    int64_t missing, wrong; /* that are not in the ledger; that did not use the samples that they were to use */
    int64_t broken;         /* epochs of which not each sample was used once */
    tri_string report;      /* of all that; tri_string_fini() it */
} tri_ledger_verdict;
tri_status tri_ledger_audit(const char *run, tri_ledger_verdict *verdict);

#endif
