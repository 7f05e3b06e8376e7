/* SPDX-License-Identifier: Apache-2.0
 *
 * crc32c.c: remainders modulo the Castagnoli polynomial, bit 31 being x^0 as in all reflected CRCs: by the machine's
 * own instruction where it has one, else eight bytes at a time from tables. To put n bytes behind a text is to multiply
 * its remainder by x^(8n), found from squares.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u
#define ONE        0x80000000u /* x^0 */
#define LANES      8
#if !defined(HAS_INSTRUCTION)
#if defined(__x86_64__)
#define HAS_INSTRUCTION 1 /* perhaps: it is asked */
#else
#define HAS_INSTRUCTION 0
#endif
#endif

static uint32_t tables[LANES][256];
static uint32_t squares[64]; /* x^(2^k) */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t times_x(uint32_t a)
{
    return a & 1 ? a >> 1 ^ POLYNOMIAL : a >> 1;
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = ONE; a != 0; bit >>= 1, b = times_x(b))
        if (a & bit) {
            product ^= b;
            a ^= bit;
        }
    return product;
}

static void tables_make(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = times_x(crc);
        tables[0][byte] = crc;
    }
    for (int lane = 1; lane < LANES; lane++)
        for (int byte = 0; byte < 256; byte++)
            tables[lane][byte] = tables[lane - 1][byte] >> 8 ^ tables[0][tables[lane - 1][byte] & 255];
    squares[0] = ONE >> 1;
    for (int k = 1; k < 64; k++)
        squares[k] = multiply(squares[k - 1], squares[k - 1]);
}

static uint32_t by_tables(uint32_t crc, const unsigned char *bytes, size_t nbytes)
{
    for (; nbytes >= LANES; bytes += LANES, nbytes -= LANES) {
        uint32_t next = 0;
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t byte = lane < 4 ? bytes[lane] ^ (crc >> 8 * lane & 255) : bytes[lane];
            next ^= tables[LANES - 1 - lane][byte];
        }
        crc = next;
    }
    for (; nbytes > 0; bytes++, nbytes--)
        crc = crc >> 8 ^ tables[0][(unsigned char)(crc ^ *bytes)];
    return crc;
}

#if HAS_INSTRUCTION
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const unsigned char *bytes,
                                                                 size_t nbytes)
{
    uint64_t wide = crc;
    for (uint64_t word; nbytes >= sizeof(word); bytes += sizeof(word), nbytes -= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    for (; nbytes > 0; bytes++, nbytes--)
        wide = __builtin_ia32_crc32qi((uint32_t)wide, *bytes);
    return (uint32_t)wide;
}
#endif

/* Continues from a remainder. */
static uint32_t remainder_of(uint32_t crc, const void *bytes, size_t nbytes)
{
#if HAS_INSTRUCTION
    if (__builtin_cpu_supports("sse4.2"))
        return by_instruction(crc, bytes, nbytes);
#endif
    pthread_once(&once, tables_make);
    return by_tables(crc, bytes, nbytes);
}

/* The remainder of a text with nbytes zeros put behind it. */
static uint32_t shift(uint32_t crc, uint64_t nbytes)
{
    if (nbytes == 0 || crc == 0)
        return crc;
    pthread_once(&once, tables_make);
    for (int k = 3; nbytes != 0; k++, nbytes >>= 1) /* a byte is x^8 */
        if (nbytes & 1)
            crc = multiply(squares[k], crc);
    return crc;
}

uint32_t tri_crc32c(const void *bytes, size_t nbytes)
{
    return ~remainder_of(UINT32_MAX, bytes, nbytes);
}

uint32_t tri_crc32c_part(const void *bytes, size_t nbytes, uint64_t behind)
{
    return shift(remainder_of(0, bytes, nbytes), behind);
}

uint32_t tri_crc32c_join(uint32_t parts, uint64_t nbytes)
{
    return ~(parts ^ shift(UINT32_MAX, nbytes));
}
