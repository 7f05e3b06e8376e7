/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_load.c: finds and loads the plug-in of the MPI that started the job.
 *
 * It is beside the program or library that this code is part of (a build folder), or where the installation put it.
 * Symbols become global: components that Open MPI itself loads look for them.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "comm/engine_mpi.h"

/* The folder of the file that holds this function, "" when it has none. */
static void own_folder(char folder[1024])
{
    Dl_info info;
    const char *end = NULL;
    folder[0] = 0;
    if (dladdr((const void *)&tri_engine_mpi, &info) != 0 && info.dli_fname)
        end = strrchr(info.dli_fname, '/');
    if (end && end - info.dli_fname < 900)
        snprintf(folder, 1024, "%.*s/", (int)(end - info.dli_fname), info.dli_fname);
}

static tri_status load(const char *path, const tri_mpi_ops **out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return tri_fail(TRI_ENOTFOUND, "comm.engine mpi: cannot load the plug-in: %s", dlerror());
    const tri_mpi_ops *mpi = dlsym(library, TRI_MPI_SYMBOL);
    if (!mpi || !mpi->version || strcmp(mpi->version, TRI_VERSION) != 0) {
        dlclose(library);
        return tri_fail(TRI_ECONFIG, "comm.engine mpi: %s: want a plug-in of Trireme %s, got %s", path, TRI_VERSION,
                        mpi ? "one of another version" : "another library");
    }
    *out = mpi;
    return TRI_OK;
}

tri_status tri_mpi_load(const char *path, const char *started_by, const tri_mpi_ops **out)
{
    char folder[1024], place[1200];
    if (path[0])
        return load(path, out);
    if (strcmp(started_by, "openmpi") != 0 && strcmp(started_by, "mpich") != 0)
        return tri_fail(TRI_ECONFIG,
                        "comm.engine mpi: want a job that mpirun started, or the plug-in in comm.mpi_library; this one "
                        "was started by %s",
                        started_by);
    own_folder(folder);
    snprintf(place, sizeof(place), "%slibtrireme_mpi_%s.so", folder, started_by);
    if (folder[0] && tri_fs_exists(place))
        return load(place, out);
    snprintf(place, sizeof(place), "%s/libtrireme_mpi_%s.so", TRI_PLUGIN_FOLDER, started_by);
    if (tri_fs_exists(place))
        return load(place, out);
    return tri_fail(TRI_ENOTFOUND,
                    "comm.engine mpi: want libtrireme_mpi_%s.so in %s or %s, got none: build Trireme where mpicc of "
                    "that MPI is (docs/collectives.md)",
                    started_by, folder[0] ? folder : "the program's folder", TRI_PLUGIN_FOLDER);
}
