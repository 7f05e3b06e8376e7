/* SPDX-License-Identifier: Apache-2.0
 *
 * store_file.c: a store in a folder that all ranks see: one file per key, replaced as a whole (docs/formats/wire.md).
 *
 * Writers hold a lock on the file "lock"; readers look again and again with short sleeps. The token is not used:
 * whoever may write the folder takes part.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "cluster/store_impl.h"

#define POLL_FIRST_NS    (TRI_NS_PER_MS / 5)
#define POLL_LAST_NS     (5 * TRI_NS_PER_MS)
#define NAME_PART_NBYTES 128 /* of a file name; longer keys continue in a folder */

typedef struct file_store {
    tri_store base;
    char folder[1024];
} file_store;

/* k-<key>, with % for /; 128 bytes a level, levels before the last end in '+', which no key has. The caller's,
 * tri_free. */
static char *path_of(const file_store *store, const char *key)
{
    tri_string path = {0};
    tri_status status = tri_string_appendf(&path, "%s/k-", store->folder);

    for (size_t i = 0; key[i] && status == TRI_OK; i++) {
        if (i > 0 && i % NAME_PART_NBYTES == 0)
            status = tri_string_append(&path, "+/");
        if (status == TRI_OK)
            status = tri_string_append_bytes(&path, key[i] == '/' ? "%" : &key[i], 1);
    }
    if (status != TRI_OK) {
        tri_string_fini(&path);
        return NULL;
    }
    return tri_string_detach(&path);
}

static int64_t pause_after(int64_t *pause_ns, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - tri_now_ns();

    tri_sleep_ns(left_ns < *pause_ns ? left_ns : *pause_ns);
    if (*pause_ns < POLL_LAST_NS)
        *pause_ns += *pause_ns / 4;
    return left_ns;
}

/* *fd: close it to let go. */
static tri_status lock(const file_store *store, const char *key, int64_t deadline_ns, int *fd)
{
    char path[1040];
    int64_t pause_ns = POLL_FIRST_NS;

    snprintf(path, sizeof path, "%s/lock", store->folder);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0)
        return tri_fail(TRI_EIO, "%s: cannot open: %s", path, strerror(errno));
    while (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        int problem = errno;
        bool is_held = problem == EWOULDBLOCK || problem == EINTR;

        if (is_held && pause_after(&pause_ns, deadline_ns) > 0)
            continue;
        close(*fd);
        *fd = -1;
        if (is_held)
            return tri_fail(TRI_ETIMEOUT, "store key %s: want the lock %s before the deadline, others hold it", key,
                            path);
        return tri_fail(TRI_EIO, "%s: cannot lock: %s", path, strerror(problem));
    }
    return TRI_OK;
}

static tri_status write_key(const char *path, const char *key, const void *bytes, size_t nbytes)
{
    if (strlen(key) > NAME_PART_NBYTES) {
        char *folder = tri_strndup(path, (size_t)(strrchr(path, '/') - path));
        tri_status status = folder ? tri_fs_make_folder(folder) : TRI_ENOMEM;

        tri_free(folder);
        TRI_TRY(status);
    }
    return tri_fs_write_atomic(path, bytes, nbytes);
}

/* What is done to a key under the lock. */
typedef struct key_change {
    tri_status (*make)(const char *path, const char *key, const struct key_change *change);
    const void *bytes; /* set, claim */
    size_t nbytes;
    char **claimed; /* claim */
    size_t *claimed_nbytes;
    tri_store_sum sum; /* add, raise */
    int64_t *after;
} key_change;

static tri_status change_locked(tri_store *base, const char *key, const key_change *change, int64_t deadline_ns)
{
    file_store *store = tri_container_of(base, file_store, base);
    char *path = path_of(store, key);
    tri_status status = path ? TRI_OK : TRI_ENOMEM;
    int fd = -1;

    if (status == TRI_OK)
        status = lock(store, key, deadline_ns, &fd);
    if (status == TRI_OK) {
        status = change->make(path, key, change);
        close(fd);
    }
    tri_free(path);
    return status;
}

static tri_status set_locked(const char *path, const char *key, const key_change *change)
{
    return write_key(path, key, change->bytes, change->nbytes);
}

static tri_status file_set(tri_store *base, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    return change_locked(base, key, &(key_change){.make = set_locked, .bytes = bytes, .nbytes = nbytes}, deadline_ns);
}

/* TRI_ENOTFOUND without a message when the key is not there. */
static tri_status read_key(const char *path, char **bytes, size_t *nbytes)
{
    struct stat info;

    if (lstat(path, &info) != 0 && errno == ENOENT)
        return TRI_ENOTFOUND;
    return tri_fs_read(path, TRI_STORE_VALUE_NBYTES, bytes, nbytes);
}

static tri_status file_wait(tri_store *base, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    file_store *store = tri_container_of(base, file_store, base);
    char *path = path_of(store, key);
    int64_t pause_ns = POLL_FIRST_NS;
    tri_status status = path ? read_key(path, bytes, nbytes) : TRI_ENOMEM;

    while (status == TRI_ENOTFOUND && pause_after(&pause_ns, deadline_ns) > 0)
        status = read_key(path, bytes, nbytes);
    if (status == TRI_ENOTFOUND)
        status = tri_fail(TRI_ETIMEOUT, "store key %s: want it to be set before the deadline, nobody did (folder %s)",
                          key, store->folder);
    tri_free(path);
    return status;
}

static tri_status claim_locked(const char *path, const char *key, const key_change *change)
{
    tri_status status = read_key(path, change->claimed, change->claimed_nbytes);

    if (status != TRI_ENOTFOUND)
        return status;
    TRI_TRY(write_key(path, key, change->bytes, change->nbytes));
    return read_key(path, change->claimed, change->claimed_nbytes);
}

static tri_status file_claim(tri_store *base, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                             size_t *nbytes, int64_t deadline_ns)
{
    const key_change change = {
        .make = claim_locked, .bytes = mine, .nbytes = mine_nbytes, .claimed = bytes, .claimed_nbytes = nbytes};

    return change_locked(base, key, &change, deadline_ns);
}

static tri_status sum_locked(const char *path, const char *key, const key_change *change)
{
    char *bytes = NULL, text[32];
    size_t nbytes = 0;
    tri_status status = read_key(path, &bytes, &nbytes);

    if (status != TRI_OK && status != TRI_ENOTFOUND)
        return status;
    const bool is_there = status == TRI_OK;
    status = tri_store_sum_make(bytes, nbytes, change->sum, change->after);
    size_t length = 0;
    if (status == TRI_OK)
        length = (size_t)snprintf(text, sizeof text, "%lld", (long long)*change->after);
    const bool stays = is_there && length == nbytes && memcmp(bytes, text, length) == 0;
    tri_free(bytes);
    TRI_TRY_IN(status, "store key %s", key);
    return stays ? TRI_OK : write_key(path, key, text, length); /* who only looks writes nothing */
}

static tri_status file_add(tri_store *base, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    const key_change change = {.make = sum_locked, .sum = {amount, false}, .after = after};

    return change_locked(base, key, &change, deadline_ns);
}

static tri_status file_raise(tri_store *base, const char *key, int64_t least, int64_t *after, int64_t deadline_ns)
{
    const key_change change = {.make = sum_locked, .sum = {least, true}, .after = after};

    return change_locked(base, key, &change, deadline_ns);
}

static tri_status remove_locked(const char *path, const char *key, const key_change *change)
{
    (void)key;
    (void)change;
    if (unlink(path) != 0 && errno != ENOENT)
        return tri_fail(TRI_EIO, "%s: cannot remove: %s", path, strerror(errno));
    return TRI_OK;
}

static tri_status file_remove(tri_store *base, const char *key, int64_t deadline_ns)
{
    return change_locked(base, key, &(key_change){.make = remove_locked}, deadline_ns);
}

static void file_close(tri_store *base)
{
    tri_free(tri_container_of(base, file_store, base));
}

static const tri_store_ops file_ops = {
    .name = "file",
    .does = "keeps one file per key in a shared folder",
    .set = file_set,
    .wait = file_wait,
    .add = file_add,
    .raise = file_raise,
    .remove = file_remove,
    .claim = file_claim,
    .close = file_close,
};

tri_status tri_store_file_open(const tri_store_url *url, const char *token, int64_t deadline_ns, tri_store **out)
{
    file_store *store;

    (void)token;
    (void)deadline_ns;
    TRI_TRY(tri_fs_make_folder(url->path));
    store = tri_alloc_zero(1, sizeof *store);
    if (!store)
        return TRI_ENOMEM;
    store->base.ops = &file_ops;
    memcpy(store->folder, url->path, sizeof store->folder);
    *out = &store->base;
    return TRI_OK;
}
