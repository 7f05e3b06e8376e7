/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_pipes.c: what carries the output of a rank to its launcher: pipes, or files that the rank writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/launch_parts.h"

tri_status tri_launch_pipe(int ends[2], int flags, const char *whose)
{
    struct rlimit files;

    if (pipe2(ends, flags) == 0)
        return TRI_OK;
    if (errno != EMFILE || getrlimit(RLIMIT_NOFILE, &files) != 0)
        return tri_fail(TRI_EIO, "%s: no pipe: %s", whose, strerror(errno));
    return tri_fail(TRI_EIO,
                    "%s: no pipe: this process may have no more than %llu files open: a larger limit before it is "
                    "started, such as ulimit -n %llu, as far as the administrator's goes",
                    whose, (unsigned long long)files.rlim_cur, 2ULL * files.rlim_cur);
}

tri_status tri_launch_files_open(launch_rank *rank, bool again)
{
    for (int i = 0; i < 2; i++) {
        launch_stream *stream = &rank->streams[i];
        struct stat info = {0};

        stream->fd = open(rank->paths[i], O_RDONLY | O_CLOEXEC | O_CREAT | (again ? O_TRUNC : 0), 0666);
        if (stream->fd >= 0 && fstat(stream->fd, &info) == 0 && stream->at > info.st_size)
            stream->at = info.st_size; /* somebody has cut it */
        if (stream->fd < 0 || lseek(stream->fd, (off_t)stream->at, SEEK_SET) < 0)
            return tri_fail(TRI_EIO, "%s: cannot open: %s", rank->paths[i], strerror(errno));
        stream->follows = true;
    }
    return TRI_OK;
}
