/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.c: tries what ranks will need: shared memory between processes, reading each other, sockets.
 *
 * The owner of the memory is a child, and its neighbour a child of that one: as related as two ranks are, since no
 * process may be read by its own descendant where the kernel is strict. Both write what they found into a shared page.
 */
#include "net/probe.h"

#include "net/tcp_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/region.h"

#define CHILD_LIMIT_S 5
#define REGION_NBYTES ((size_t)64 << 10)

static void say(char text[TRI_PROBE_TEXT_NBYTES], const char *what, int error)
{
    snprintf(text, TRI_PROBE_TEXT_NBYTES, "%s: %s", what, strerror(error));
}

static void say_last(char text[TRI_PROBE_TEXT_NBYTES])
{
    snprintf(text, TRI_PROBE_TEXT_NBYTES, "%.*s", TRI_PROBE_TEXT_NBYTES - 1, tri_last_error());
}

/* Runs body(probe, arg) in a child; false when it did not come to its end, and `text` says how it ended. */
static bool child_run(void (*body)(tri_probe *probe, const void *arg), tri_probe *probe, const void *arg,
                      char text[TRI_PROBE_TEXT_NBYTES])
{
    int how = 0;
    pid_t pid = fork();

    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGALRM, SIG_DFL);
        alarm(CHILD_LIMIT_S);
        body(probe, arg);
        _exit(0);
    }
    if (pid < 0) {
        say(text, "fork", errno);
        return false;
    }
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return true;
    snprintf(text, TRI_PROBE_TEXT_NBYTES, "the process that tried it was killed (%s)",
             WIFSIGNALED(how) ? strsignal(WTERMSIG(how)) : "it ended");
    return false;
}

typedef struct neighbour_task {
    const tri_region *region;
    pid_t owner;
    const int64_t *secret;
} neighbour_task;

static void neighbour_body(tri_probe *probe, const void *arg)
{
    const neighbour_task *task = arg;
    tri_region mapped;
    int64_t copy = 0;
    struct iovec here = {.iov_base = &copy, .iov_len = sizeof copy};
    struct iovec there = {.iov_base = (void *)(uintptr_t)task->secret, .iov_len = sizeof copy};

    if (!task->region->bytes)
        snprintf(probe->neighbour, sizeof probe->neighbour, "not tried");
    else if (tri_region_open(&task->region->ticket, &mapped) != TRI_OK)
        say_last(probe->neighbour);
    else
        tri_region_close(&mapped);
    if (process_vm_readv(task->owner, &here, 1, &there, 1, 0) != (ssize_t)sizeof copy)
        say(probe->peek, "process_vm_readv", errno);
}

static void owner_body(tri_probe *probe, const void *arg)
{
    tri_region region = {0};
    int64_t secret = 1;
    neighbour_task task = {.region = &region, .owner = getpid(), .secret = &secret};

    (void)arg;
    if (tri_region_create(REGION_NBYTES, &region) != TRI_OK)
        say_last(probe->region);
    else
        memset(region.bytes, 1, REGION_NBYTES);
    if (!child_run(neighbour_body, probe, &task, probe->peek) && region.bytes)
        memcpy(probe->neighbour, probe->peek, sizeof probe->neighbour);
    tri_region_close(&region);
}

static void try_processes(tri_probe *out)
{
    tri_probe *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED) {
        say(out->region, "mmap", errno);
        return;
    }
    *shared = *out;
    if (!child_run(owner_body, shared, NULL, shared->region))
        memcpy(shared->neighbour, shared->region, sizeof shared->neighbour);
    *out = *shared;
    munmap(shared, sizeof *shared);
}

static void try_zerocopy(tri_probe *out)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        say(out->zerocopy, "socket", errno);
    else if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0)
        say(out->zerocopy, "SO_ZEROCOPY", errno);
    if (fd >= 0)
        close(fd);
}

/* The addresses by the code that ranks use, seen from another host. */
static void try_listening(tri_probe *out)
{
    char one[INET6_ADDRSTRLEN];
    tri_tcp_place places[TRI_TCP_PLACES_MAX];
    tri_reach loop = {0};
    tri_tcp_door door;
    int count;

    if (tri_tcp_door_open("", "", &door) != TRI_OK) {
        say_last(out->listen);
        snprintf(out->loopback, sizeof out->loopback, "not tried");
        return;
    }
    count = tri_tcp_places(door.address, "another host,", places);
    for (int i = 0; i < count; i++) {
        size_t used = strlen(out->addresses);

        tri_tcp_place_print(&places[i], one);
        snprintf(out->addresses + used, sizeof out->addresses - used, "%s%s", used ? "," : "", one);
    }
    /* From the same host loopback comes first. */
    count = tri_tcp_places(door.address, door.address, places);
    if (count > 0)
        loop.place = places[0];
    if (count == 0)
        snprintf(out->loopback, sizeof out->loopback, "not tried");
    else if (tri_reach_try(&loop, 1, 1000) != TRI_OK)
        say_last(out->loopback);
    else if (loop.error)
        say(out->loopback, "connecting to 127.0.0.1", loop.error);
    tri_tcp_door_close(&door);
}

void tri_probe_run(tri_probe *out)
{
    struct statvfs shm;

    *out = (tri_probe){.shm_nbytes = -1};
    fflush(NULL); /* children must not write it again */
    if (statvfs("/dev/shm", &shm) == 0)
        out->shm_nbytes = (int64_t)shm.f_blocks * (int64_t)shm.f_frsize;
    try_processes(out);
    try_zerocopy(out);
    try_listening(out);
}
