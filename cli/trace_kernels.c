/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_kernels.c: kernels of cards in a trace: how long those of each name took, and how long cards had none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/trace.h"

#define MOST_PRINTED 10

tri_status tri_kernels_add(tri_vector *kernels, const char *name, double took_us)
{
    tri_kernel_view *items = kernels->items;
    for (size_t i = 0; i < kernels->count; i++)
        if (strncmp(items[i].name, name, sizeof(items[i].name) - 1) == 0) {
            items[i].launches++;
            items[i].took_us += took_us;
            return TRI_OK;
        }
    tri_kernel_view first = {.launches = 1, .took_us = took_us};
    snprintf(first.name, sizeof(first.name), "%s", name);
    return tri_vector_push(kernels, &first) ? TRI_OK : TRI_ENOMEM;
}

static int longest_first(const void *a, const void *b)
{
    const double x = ((const tri_kernel_view *)a)->took_us, y = ((const tri_kernel_view *)b)->took_us;
    return (x < y) - (x > y);
}

void tri_kernels_reckon(tri_vector *kernels)
{
    if (kernels->count > 1)
        qsort(kernels->items, kernels->count, sizeof(tri_kernel_view), longest_first);
}

static double sum_of(const tri_vector *kernels)
{
    double sum_us = 0;
    for (size_t i = 0; i < kernels->count; i++)
        sum_us += ((const tri_kernel_view *)kernels->items)[i].took_us;
    return sum_us;
}

void tri_kernels_print(const tri_vector *kernels, int64_t steps, double all_us)
{
    const tri_kernel_view *items = kernels->items;
    const double each = steps > 0 ? 1e3 * (double)steps : 1e3;
    if (kernels->count == 0 || all_us <= 0)
        return;
    printf("\nkernels, all cards together: %.0f %% of the time from the first to the last one\n"
           "kernel                      ms/step  share  launches/step\n",
           100 * sum_of(kernels) / all_us);
    for (size_t i = 0; i < kernels->count && i < MOST_PRINTED; i++)
        printf("%-26s  %7.3f  %3.0f %%  %13.1f\n", items[i].name, items[i].took_us / each,
               100 * items[i].took_us / all_us, 1e3 * (double)items[i].launches / each);
    if (kernels->count > MOST_PRINTED)
        printf("and %zu others\n", kernels->count - MOST_PRINTED);
}

void tri_kernels_json(const tri_vector *kernels, double all_us, tri_json *all)
{
    const tri_kernel_view *items = kernels->items;
    if (kernels->count == 0)
        return;
    tri_json_real(all, "kernels_us", all_us);
    tri_json list = tri_json_array_in(all, "kernels"), one;
    for (size_t i = 0; i < kernels->count; i++) {
        one = tri_json_object_in(&list, NULL);
        tri_json_text(&one, "name", items[i].name);
        tri_json_int(&one, "launches", items[i].launches);
        tri_json_real(&one, "took_us", items[i].took_us);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&list);
}
