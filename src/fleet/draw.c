/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.c: the random numbers of a simulated run, its trace, and the first thing that went wrong in it.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/rng.h"
#include "fleet/fleet.h"

uint64_t fleet_draw(fleet *all, uint64_t below)
{
    return tri_rng_below((tri_rng){.seed = all->config->seed, .stream = 0xf1ee7}, all->drawn++, below);
}

void fleet_broke(fleet *all, const char *format, ...)
{
    va_list args;
    if (all->result->broken[0])
        return;
    va_start(args, format);
    vsnprintf(all->result->broken, sizeof(all->result->broken), format, args);
    va_end(args);
}

void fleet_trace(fleet *all, uint64_t a, uint64_t b)
{
    uint64_t words[] = {all->result->trace, (uint64_t)tri_now_ns(), a, b};
    uint64_t sum = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(words); i++) {
        sum = (sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 29;
    }
    all->result->trace = sum;
}

void fleet_happens(fleet *all, const fleet_worker *worker, uint64_t what, const char *words)
{
    tri_log(TRI_LOG_INFO, "%s %s, step %lld", worker->id, words, (long long)worker->step);
    fleet_trace(all, (uint64_t)worker->number, what);
}
