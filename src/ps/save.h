/* SPDX-License-Identifier: Apache-2.0
 *
 * save.h: the old place of ps/replication/save.h, until src/train includes that.
 */
#include "ps/replication/save.h"
