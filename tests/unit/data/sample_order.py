#!/usr/bin/env python3
"""The order of samples (docs/formats/data.md) in integers: what src/data/sampler.c does with data.shuffle on and blocks off.

test_sampler.c checks the same numbers. N samples, batch B of all workers, V shards. Exit code 77: this machine has no libxxhash.
"""
import ctypes, struct, sys
try:
    lib = ctypes.CDLL("libxxhash.so.0"); lib.XXH3_64bits.restype = ctypes.c_uint64
except OSError as absent:
    print(absent); sys.exit(77)


def xxh3(b): return lib.XXH3_64bits(b, ctypes.c_size_t(len(b)))
M32, M64 = 2**32 - 1, 2**64 - 1


def stream(purpose, a, b): return xxh3(struct.pack("<QQQ", xxh3(purpose), a, b))


def philox(c, k):                                   # Philox4x32-10
    c, k = list(c), list(k)
    for r in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & M32, (p0 >> 32) ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def block(seed, strm, n): return philox([n & M32, n >> 32, strm & M32, strm >> 32], [seed & M32, seed >> 32])


def mix(x):
    x = ((x ^ x >> 33) * 0xff51afd7ed558ccd) & M64
    x = ((x ^ x >> 33) * 0xc4ceb9fe1a85ec53) & M64
    return x ^ x >> 33


def permute(seed, strm, place, n):                  # Feistel network of 8 rounds, walking the cycle back into [0, n)
    if n == 1: return 0
    h = ((n - 1).bit_length() + 1) // 2
    keys = []
    for i in range(0, 8, 2):
        w = block(seed, strm, M64 - i)
        keys += [w[1] << 32 | w[0], w[3] << 32 | w[2]]
    while True:
        l, r = place >> h, place & (1 << h) - 1
        for k in keys: l, r = r, l ^ mix((r + k) & M64) >> 64 - h
        place = l << h | r
        if place < n: return place


def sample(seed, N, B, V, epoch, v, k):             # the k-th sample that shard v takes in the epoch
    b = lambda v: v * B // V                        # samples of a full batch before shard v
    first, end = N * b(v) // B, N * b(v + 1) // B   # part v of the data set: positions of one permutation
    j = permute(seed, stream(b"data order", epoch, v), k, end - first)
    return permute(seed, stream(b"data parts", 0, 0), first + j, N)

order = [sample(1, 20, 8, 4, 2, 1, k) for k in range(5)]
print(order)
assert order == [14, 12, 17, 4, 19]
