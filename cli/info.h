/* SPDX-License-Identifier: Apache-2.0
 *
 * info.h: what `trireme info PATH` tells of files.
 */
#ifndef TRI_CLI_INFO_H
#define TRI_CLI_INFO_H

#include <stdbool.h>

#include "base/status.h"

/* Prints what a checkpoint or a run folder holds, after all its files were checked against their hashes. Fails, after
 * what could be read was printed, when something is damaged. */
tri_status tri_info_path(const char *path, bool json);

#endif
