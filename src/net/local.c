/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c: abstract unix sockets and sealed memory files.
 */
#include "net/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/runtime.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static socklen_t socket_name(struct sockaddr_un *address, const char *name)
{
    /* Abstract: starts with a 0 byte and needs no file. */
    int nbytes;

    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    nbytes = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "trireme-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)nbytes);
}

tri_status tri_local_listen(const char *what, int *listener, char name[TRI_LOCAL_NAME_NBYTES])
{
    struct sockaddr_un address;
    unsigned char random[16];
    socklen_t nbytes;

    tri_entropy(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(name + 2 * i, 3, "%02x", random[i]);
    nbytes = socket_name(&address, name);
    *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listener < 0 || bind(*listener, (const struct sockaddr *)&address, nbytes) != 0 ||
        listen(*listener, SOMAXCONN) != 0)
        return tri_fail(TRI_EIO, "%s: cannot listen on @trireme-%s: %s", what, name, strerror(errno));
    return TRI_OK;
}

bool tri_local_find(void *arg, const char *address, int attempt, tri_rendezvous_place *place)
{
    (void)arg;
    if (attempt > 0)
        return false;
    place->nbytes = socket_name((struct sockaddr_un *)&place->address, address);
    return true;
}

bool tri_local_trusts(void *arg, int fd)
{
    struct ucred peer;
    socklen_t nbytes = sizeof peer;

    (void)arg;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) == 0 && peer.uid == geteuid();
}

tri_status tri_local_memory(const char *what, size_t nbytes, int *memory_fd, void **map)
{
    *map = NULL;
    *memory_fd = memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*memory_fd < 0 || ftruncate(*memory_fd, (off_t)nbytes) != 0 || fcntl(*memory_fd, F_ADD_SEALS, SEALS) != 0)
        return tri_fail(TRI_EIO, "%s: cannot make a memory file of %zu bytes: %s", what, nbytes, strerror(errno));
    *map = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *memory_fd, 0);
    if (*map == MAP_FAILED) {
        *map = NULL;
        return tri_fail(TRI_ENOMEM, "%s: cannot map %zu bytes: %s", what, nbytes, strerror(errno));
    }
    return TRI_OK;
}

bool tri_local_is_sealed(int memory_fd, size_t nbytes)
{
    struct stat stat;
    int seals = fcntl(memory_fd, F_GET_SEALS);

    return seals >= 0 && (seals & SEALS) == SEALS && fstat(memory_fd, &stat) == 0 && stat.st_size == (off_t)nbytes;
}
