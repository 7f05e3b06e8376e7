/* SPDX-License-Identifier: Apache-2.0
 *
 * map_guard.c: a table of mapped files, and the handler that names the one whose bytes are gone.
 *
 * A page behind the new end of a file that was cut raises SIGBUS where it is read, deep inside a parser. Only lock-free
 * atomics and write(2) are used then. A cut inside the last page raises nothing: its bytes read as zeros.
 */
#include "base/map_guard.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

#define SLOTS       128 /* maps beyond are not guarded */
#define PATH_NBYTES 512

static struct map_slot {
    atomic_bool taken;
    atomic_uintptr_t first; /* 0: not filled in */
    size_t nbytes;
    char path[PATH_NBYTES];
} slots[SLOTS];
_Static_assert(ATOMIC_POINTER_LOCK_FREE == 2, "a signal handler may only use lock-free atomics");

void tri_map_guard_add(const char *path, const void *bytes, size_t nbytes)
{
    size_t path_nbytes = strlen(path), left_out = path_nbytes < PATH_NBYTES ? 0 : path_nbytes - (PATH_NBYTES - 1);

    for (size_t i = 0; i < SLOTS; i++) {
        bool taken = false;

        if (!atomic_compare_exchange_strong(&slots[i].taken, &taken, true))
            continue;
        slots[i].nbytes = nbytes;
        memcpy(slots[i].path, path + left_out, path_nbytes - left_out + 1); /* the end says more */
        atomic_store(&slots[i].first, (uintptr_t)bytes);
        return;
    }
}

void tri_map_guard_remove(const void *bytes)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (atomic_load(&slots[i].first) == (uintptr_t)bytes) {
            atomic_store(&slots[i].first, 0);
            atomic_store(&slots[i].taken, false);
            return;
        }
    }
}

/* One write, so that lines of other ranks do not come between. */
static void say(const char *path)
{
    static const char before[] = "error: ", after[] = ": cut short by another program while it was read\n";
    char line[PATH_NBYTES + sizeof before + sizeof after];
    size_t path_nbytes = strlen(path), nbytes = sizeof before - 1;
    ssize_t put;

    memcpy(line, before, nbytes);
    memcpy(line + nbytes, path, path_nbytes);
    nbytes += path_nbytes;
    memcpy(line + nbytes, after, sizeof after - 1);
    nbytes += sizeof after - 1;
    put = write(STDERR_FILENO, line, nbytes);
    (void)put; /* there is nobody else to tell */
}

static void bytes_gone(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;

    (void)context;
    for (size_t i = 0; i < SLOTS; i++) {
        uintptr_t first = atomic_load(&slots[i].first);

        if (first == 0 || at < first || at - first >= slots[i].nbytes)
            continue;
        say(slots[i].path);
        _exit(1);
    }
    /* Somebody else's: back there it happens again, and ends the process as usual. */
    signal(number, SIG_DFL);
}

void tri_fs_cut_catch(void)
{
    struct sigaction action = {.sa_sigaction = bytes_gone, .sa_flags = SA_SIGINFO};

    sigemptyset(&action.sa_mask);
    TRI_ASSERT(sigaction(SIGBUS, &action, NULL) == 0);
}
