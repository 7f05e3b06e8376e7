/* SPDX-License-Identifier: Apache-2.0
 *
 * isa.c: what the processor has, and the limit that a run sets.
 */
#include "kernel/isa.h"

#include <stdatomic.h>
#include <string.h>

#include "base/amx.h"
#ifdef TRI_HAVE_DNNL
#include "kernel/cpu/dnnl.h"
#endif

#define NOT_SET (-1)

static atomic_int limit = NOT_SET;

static const char *const names[] = {[TRI_ISA_GENERIC] = "generic",
                                    [TRI_ISA_AVX2] = "avx2",
                                    [TRI_ISA_AVX512] = "avx512",
                                    [TRI_ISA_AVX512_BF16] = "avx512_bf16",
                                    [TRI_ISA_AMX] = "amx"};

const char *tri_isa_name(tri_isa isa)
{
    return names[isa];
}

bool tri_isa_find(const char *name, tri_isa *out)
{
    for (int i = 0; i < (int)TRI_COUNT_OF(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (tri_isa)i;
            return true;
        }
    }
    return false;
}

static tri_isa examine(void)
{
#ifdef TRI_HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        const bool bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl");
        return bf16 && tri_amx_allowed() ? TRI_ISA_AMX : bf16 ? TRI_ISA_AVX512_BF16 : TRI_ISA_AVX512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return TRI_ISA_AVX2;
    }
#endif
    return TRI_ISA_GENERIC;
}

tri_isa tri_isa_best(void)
{
    static atomic_int best = NOT_SET;
    int known = atomic_load_explicit(&best, memory_order_relaxed);
    if (known == NOT_SET) {
        known = (int)examine();
        atomic_store_explicit(&best, known, memory_order_relaxed);
    }
    return (tri_isa)known;
}

tri_isa tri_isa_now(void)
{
    const int set = atomic_load_explicit(&limit, memory_order_relaxed);
    return set == NOT_SET ? tri_isa_best() : (tri_isa)set;
}

tri_status tri_isa_set(tri_isa isa)
{
    if (isa > tri_isa_best()) {
        return tri_fail(TRI_EUNSUPPORTED, "instruction set: want %s, this processor has %s", names[isa],
                        names[tri_isa_best()]);
    }
    const int before = atomic_exchange(&limit, (int)isa);
    tri_status status = TRI_OK;
#ifdef TRI_HAVE_DNNL
    if (before != (int)isa) {
        status = tri_dnnl_isa_set(isa);
    }
#endif
    if (status != TRI_OK) {
        atomic_store(&limit, before);
    }
    return status;
}
