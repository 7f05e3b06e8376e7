/* SPDX-License-Identifier: Apache-2.0
 *
 * find.c: runs one kernel of faulty.h by name: a sanitizer must stop it, or find nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/emulator.h"
#include "gpu/faulty.h"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        tri_emulator_kernel kernel;
    } rows[] = {
#define ROW(name) {#name, tri_cuda_##name},
        TRI_GPU_FAULTY(ROW)
#undef ROW
    };
    float *x = calloc(64, sizeof *x);
    const tri_gpu_faulty_args args = {x};
    const tri_gpu_launch launch = {.grid = {2}, .threads = 64, .args = &args, .args_nbytes = sizeof args};
    int status = 2;
    for (size_t i = 0; argc == 2 && x != NULL && i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, argv[1]) == 0) {
            status = tri_emulator_run(rows[i].name, rows[i].kernel, &launch) == TRI_OK ? 0 : 1;
        }
    }
    free(x);
    puts(status == 0 ? "ran to its end" : "did not run");
    return status;
}
