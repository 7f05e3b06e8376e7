/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crc32c_tables.c: test_crc32c.c again, by tables: what machines without the instruction do.
 */
#define HAS_INSTRUCTION 0
#define tri_crc32c      crc32c_by_tables
#define tri_crc32c_part crc32c_part_by_tables
#define tri_crc32c_join crc32c_join_by_tables
#include "base/crc32c.c"
#include "unit/base/test_crc32c.c"
