/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crc32c_tables.c: test_crc32c.c again, by tables: what machines without the instruction do.
 */
#define HAS_INSTRUCTION 0
#include "base/crc32c.c"
#include "unit/base/test_crc32c.c"
