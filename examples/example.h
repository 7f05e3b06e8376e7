/* SPDX-License-Identifier: Apache-2.0
 *
 * example.h: what all examples share: stop with the message of the first call that fails.
 */
#ifndef TRIREME_EXAMPLE_H
#define TRIREME_EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>

#include <trireme/trireme.h>

static inline void check(tri_status status)
{
    if (status == TRI_OK)
        return;
    fprintf(stderr, "error: %s\n", tri_last_error());
    exit(1);
}

#endif
