/* SPDX-License-Identifier: Apache-2.0
 *
 * data_inspect.h: `trireme data inspect`: what training would make of a file or a folder.
 */
#ifndef TRI_CLI_DATA_INSPECT_H
#define TRI_CLI_DATA_INSPECT_H

#include <stdbool.h>

#include "base/status.h"

/* words: PATH, then data.key=value. Reads and decodes everything, with `threads` threads. TRI_EFORMAT after the report:
 * some files are broken. */
tri_status data_inspect(const char *const *words, int count, int threads, bool as_json);

#endif
