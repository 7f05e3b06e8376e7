/* SPDX-License-Identifier: Apache-2.0
 *
 * crc32c.h: CRC-32C (Castagnoli), as a whole and from parts that are computed apart and in any order.
 *
 * Without its first and last complement the CRC is linear: that of a text is the xor of what each run of its bytes
 * adds, whoever computes it and when. So writers who share a text need to tell each other four bytes.
 */
#ifndef TRI_BASE_CRC32C_H
#define TRI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC as everybody computes it: of "123456789" it is e3069283. */
uint32_t tri_crc32c(const void *bytes, size_t nbytes);
/* What a run of bytes adds that has `behind` more bytes of the text after it. */
uint32_t tri_crc32c_part(const void *bytes, size_t nbytes, uint64_t behind);
/* The CRC of a text of nbytes bytes from the xor of what all its runs add. */
uint32_t tri_crc32c_join(uint32_t parts, uint64_t nbytes);

#endif
