/* SPDX-License-Identifier: Apache-2.0
 *
 * auth.c: SHA-256 (FIPS 180-4) and HMAC (RFC 2104).
 */
#include "net/auth.h"

#include <stdint.h>
#include <string.h>

#define BLOCK_NBYTES 64

typedef struct sha256 {
    uint32_t state[8];
    uint64_t nbytes;
    unsigned char block[BLOCK_NBYTES];
} sha256;

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void block_mix(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        uint32_t a = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t t = s[7] + e + choice + round_constants[i] + w[i];

        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t;
        s[0] = t + a + majority;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void sha256_init(sha256 *sha)
{
    *sha = (sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void sha256_add(sha256 *sha, const void *bytes, size_t nbytes)
{
    const unsigned char *from = bytes;

    while (nbytes > 0) {
        size_t used = (size_t)(sha->nbytes % BLOCK_NBYTES);
        size_t take = nbytes < BLOCK_NBYTES - used ? nbytes : BLOCK_NBYTES - used;

        memcpy(sha->block + used, from, take);
        sha->nbytes += take;
        from += take;
        nbytes -= take;
        if (used + take == BLOCK_NBYTES)
            block_mix(sha->state, sha->block);
    }
}

static void sha256_finish(sha256 *sha, unsigned char out[TRI_AUTH_NBYTES])
{
    static const unsigned char padding[BLOCK_NBYTES] = {0x80};
    unsigned char length[8];
    uint64_t bits = sha->nbytes * 8;
    size_t used = (size_t)(sha->nbytes % BLOCK_NBYTES);

    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(sha, padding, used < 56 ? 56 - used : 120 - used);
    sha256_add(sha, length, sizeof length);
    for (int i = 0; i < TRI_AUTH_NBYTES; i++)
        out[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

void tri_auth_sha256(const void *bytes, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES])
{
    sha256 sha;

    sha256_init(&sha);
    sha256_add(&sha, bytes, nbytes);
    sha256_finish(&sha, out);
}

void tri_auth_prove(const char *token, const void *message, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES])
{
    unsigned char key[BLOCK_NBYTES] = {0}, pad[BLOCK_NBYTES];
    size_t key_nbytes = strlen(token);
    sha256 sha;

    if (key_nbytes > sizeof key)
        tri_auth_sha256(token, key_nbytes, key);
    else
        memcpy(key, token, key_nbytes);

    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] = key[i] ^ 0x36;
    sha256_init(&sha);
    sha256_add(&sha, pad, sizeof pad);
    sha256_add(&sha, message, nbytes);
    sha256_finish(&sha, out);

    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] = key[i] ^ 0x5c;
    sha256_init(&sha);
    sha256_add(&sha, pad, sizeof pad);
    sha256_add(&sha, out, TRI_AUTH_NBYTES);
    sha256_finish(&sha, out);
}

bool tri_auth_equals(const unsigned char a[TRI_AUTH_NBYTES], const unsigned char b[TRI_AUTH_NBYTES])
{
    volatile unsigned char difference = 0;

    for (int i = 0; i < TRI_AUTH_NBYTES; i++)
        difference = (unsigned char)(difference | (a[i] ^ b[i]));
    return difference == 0;
}
