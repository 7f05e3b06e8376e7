/* SPDX-License-Identifier: Apache-2.0
 *
 * seeds.c: gives libFuzzer the target's seeds: writes them into the corpus folder it was called with, before it reads
 * it. Without them a parser behind a library that is not instrumented (jansson) is hardly reached.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct stat info;
    for (int i = 1; i < *argc; i++) {
        const char *folder = (*argv)[i];
        if (folder[0] == '-' || stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
            continue;
        for (size_t s = 0; s < tri_fuzz_seed_count; s++) {
            char path[4096];
            snprintf(path, sizeof(path), "%s/seed-%zu", folder, s);
            FILE *file = fopen(path, "wb");
            if (!file)
                return 1;
            fwrite(tri_fuzz_seeds[s].bytes, 1, tri_fuzz_seeds[s].nbytes, file);
            fclose(file);
        }
        return 0;
    }
    return 0;
}
