/* SPDX-License-Identifier: Apache-2.0
 *
 * files.c: may this process open as many files as its links take? A rank that may not would refuse others without a
 * word, and they would wait for it until their time is over.
 */
#include <dirent.h>
#include <inttypes.h>
#include <sys/resource.h>

#include "base/status.h"
#include "net/net_impl.h"

#define OF_A_PEER 3  /* its link, its watch, its process */
#define OF_OWN    12 /* listeners, what sleeps and wakes, a store */

static uint64_t count_open(void)
{
    uint64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");

    if (!folder)
        return 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 3; /* . and .. and the folder itself */
}

tri_status tri_net_files_reserve(int world)
{
    uint64_t held = count_open(), need = held + OF_OWN + OF_A_PEER * (uint64_t)(world - 1);
    struct rlimit files;

    if (world == 1 || getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= need)
        return TRI_OK;
    if (files.rlim_max >= need) {
        files.rlim_cur = need;
        if (setrlimit(RLIMIT_NOFILE, &files) == 0)
            return TRI_OK;
    }
    return tri_fail(TRI_EIO,
                    "open files: want %" PRIu64 " for a rank of %d (%" PRIu64
                    " are open now), the limit of this process is %" PRIu64 ": ulimit -n %" PRIu64
                    " before it is started, as far as the administrator's limit goes",
                    need, world, held, (uint64_t)files.rlim_max, need);
}
