/* SPDX-License-Identifier: Apache-2.0
 *
 * client.h: the old place of ps/client/client.h, until src/train includes that.
 */
#include "ps/client/client.h"
