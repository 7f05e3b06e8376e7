/* SPDX-License-Identifier: Apache-2.0
 *
 * amx.c: asks Linux (5.16 and newer) for the registers of AMX: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA), see
 * Documentation/arch/x86/xstate.rst. The leave holds for all threads, and for what is forked.
 */
#include "base/amx.h"

#include <stdatomic.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST    0x1023     /* ARCH_REQ_XCOMP_PERM */
#define TILE_STATE 18         /* XFEATURE_XTILEDATA */
#define TILES      (1u << 24) /* CPUID 7: AMX-TILE in edx, */
#define TILES_BF16 (1u << 22) /* AMX-BF16; not every compiler has names for them */

static bool ask(void)
{
    unsigned a, b, c, d;
    const unsigned wanted = TILES | TILES_BF16;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & wanted) == wanted &&
           syscall(SYS_arch_prctl, REQUEST, TILE_STATE) == 0;
}
#else
static bool ask(void)
{
    return false;
}
#endif

bool tri_amx_allowed(void)
{
    static atomic_int answer; /* of the kernel, the same for the whole process: 0 not asked, 1 yes, 2 no */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        known = ask() ? 1 : 2;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == 1;
}
