/* SPDX-License-Identifier: Apache-2.0
 *
 * operation_record.h: one operation of a parameter server, as a trace gets it.
 */
#ifndef TRI_PS_OPERATION_RECORD_H
#define TRI_PS_OPERATION_RECORD_H

#include <stdint.h>

typedef struct ps_operation_record {
    int64_t start_ns, duration_ns; /* by the server's clock; of a pull: from when it was asked for until it was given */
    uint64_t nbytes;
    uint32_t step, worker;
    uint32_t pulls; /* 0: a push */
    uint32_t zero;
} ps_operation_record;

#endif
