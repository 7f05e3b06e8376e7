/* SPDX-License-Identifier: Apache-2.0
 *
 * fs.c: files through POSIX calls; each failure names the path, what was done to it and the system's reason.
 *
 * An atomic write goes to "<path>.tmp-<pid>-<n>" in the same folder, opened exclusively, so that two writers never
 * share one; on failure it is removed. A crash may leave it behind: readers go by exact names.
 */
#include "base/fs_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/chaos.h"
#include "base/containers.h"
#include "base/map_guard.h"
#include "base/path.h"
#include "base/sim_process.h"

static const char *reason(int error, char *buffer, size_t nbytes)
{
    switch (error) {
    case ENOSPC:
        return "no space left on the device";
    case EDQUOT:
        return "the disk quota is used up";
    default:
        return strerror_r(error, buffer, nbytes);
    }
}

tri_status tri_fs_fail(const char *path, const char *verb, int error)
{
    char buffer[128];
    return tri_fail(error == ENOENT ? TRI_ENOTFOUND : TRI_EIO, "%s: cannot %s: %s", path, verb,
                    reason(error, buffer, sizeof(buffer)));
}

int tri_fs_open_retrying(const char *path, int flags)
{
    int fd;
    if ((flags & (O_CREAT | O_TRUNC)) && tri_sim_process_is_dead()) {
        errno = EIO;
        return -1;
    }
    do
        fd = open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* --- reading --- */

static tri_status read_all(int fd, const char *path, uint64_t limit, size_t expected, tri_string *text)
{
    /* Files of /proc/sys claim no bytes, and give what they have to the first read only. */
    size_t capacity = expected > 0 ? expected : 4096;
    for (;;) {
        /* One byte more than expected, so that the end is seen without growing. */
        if (text->capacity < capacity + 2) {
            char *larger = tri_realloc(text->text, capacity + 2);
            if (!larger)
                return TRI_ENOMEM;
            text->text = larger;
            text->capacity = capacity + 2;
        }
        ssize_t got = read(fd, text->text + text->nbytes, text->capacity - 1 - text->nbytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tri_fs_fail(path, "read", errno);
        if (got == 0)
            break;
        text->nbytes += (size_t)got;
        if (limit && text->nbytes > limit)
            return tri_fail(TRI_EFORMAT, "%s: want at most %llu bytes, got more", path, (unsigned long long)limit);
        if (text->nbytes + 1 == text->capacity)
            capacity = text->capacity < 4096 ? 4096 : text->capacity * 2;
    }
    text->text[text->nbytes] = '\0';
    return TRI_OK;
}

tri_status tri_fs_read(const char *path, uint64_t limit, char **out, size_t *nbytes)
{
    int fd = tri_fs_open_retrying(path, O_RDONLY);
    if (fd < 0)
        return tri_fs_fail(path, "open for reading", errno);
    struct stat info;
    tri_string text = {0};
    tri_status status = fstat(fd, &info) != 0 ? tri_fs_fail(path, "stat", errno) : TRI_OK;
    if (status == TRI_OK && limit && info.st_size > 0 && (uint64_t)info.st_size > limit)
        status = tri_fail(TRI_EFORMAT, "%s: want at most %llu bytes, got %lld", path, (unsigned long long)limit,
                          (long long)info.st_size);
    if (status == TRI_OK)
        status = read_all(fd, path, limit, S_ISREG(info.st_mode) ? (size_t)info.st_size : 0, &text);
    close(fd);
    if (status != TRI_OK) {
        tri_string_fini(&text);
        return status;
    }
    *out = text.text;
    if (nbytes)
        *nbytes = text.nbytes;
    return TRI_OK;
}

tri_status tri_fs_read_config(const char *path, uint64_t limit, char **out, size_t *nbytes)
{
    tri_status status = tri_fs_read(path, limit, out, nbytes);
    return status == TRI_ENOTFOUND ? TRI_ECONFIG : status;
}

tri_status tri_fs_read_part(const char *path, uint64_t at, void *bytes, size_t room, size_t *got)
{
    int fd = tri_fs_open_retrying(path, O_RDONLY);
    *got = 0;
    if (fd < 0)
        return tri_fs_fail(path, "open for reading", errno);
    tri_status status = TRI_OK;
    while (*got < room && status == TRI_OK) {
        ssize_t read = pread(fd, (char *)bytes + *got, room - *got, (off_t)(at + *got));
        if (read < 0 && errno != EINTR)
            status = tri_fs_fail(path, "read", errno);
        if (read == 0)
            break;
        *got += read > 0 ? (size_t)read : 0;
    }
    close(fd);
    return status;
}

tri_status tri_fs_nbytes(const char *path, uint64_t *nbytes)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return tri_fs_fail(path, "look at", errno);
    *nbytes = (uint64_t)info.st_size;
    return TRI_OK;
}

/* --- writing --- */

ssize_t tri_fs_put(int fd, const void *bytes, size_t nbytes, off_t at)
{
    const tri_sim_process *process = tri_sim_process_now();
    bool is_full = process ? tri_now_ns() < process->disk_until_ns : tri_chaos_disk_is_full();
    if (is_full || tri_sim_process_is_dead()) {
        errno = is_full ? ENOSPC : EIO;
        return -1;
    }
    return at < 0 ? write(fd, bytes, nbytes) : pwrite(fd, bytes, nbytes, at);
}

static tri_status write_all(int fd, const char *path, const void *bytes, size_t nbytes)
{
    size_t done = 0;
    while (done < nbytes) {
        ssize_t put = tri_fs_put(fd, (const char *)bytes + done, nbytes - done, -1);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            char buffer[128];
            return tri_fail(TRI_EIO, "%s: cannot write: want %zu bytes, got %zu: %s", path, nbytes, done,
                            reason(errno, buffer, sizeof(buffer)));
        }
        done += (size_t)put;
    }
    return TRI_OK;
}

/* fsync; file systems that cannot (some folders, some network mounts) say EINVAL and have nothing to wait for. */
tri_status tri_fs_sync_fd(int fd, const char *path)
{
    int rc;
    if (tri_sim_process_now()) /* the power of the machine below a simulation is not what is tried */
        return TRI_OK;
    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc != 0 && errno != EINVAL && errno != ENOTSUP ? tri_fs_fail(path, "sync", errno) : TRI_OK;
}

tri_status tri_fs_sync(const char *path)
{
    int fd = tri_fs_open_retrying(path, O_RDONLY);
    if (fd < 0)
        return tri_fs_fail(path, "open for sync", errno);
    tri_status status = tri_fs_sync_fd(fd, path);
    close(fd);
    return status;
}

static tri_status sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return tri_fs_sync(".");
    char *folder = tri_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!folder)
        return TRI_ENOMEM;
    tri_status status = tri_fs_sync(folder);
    tri_free(folder);
    return status;
}

/* Opens a new file next to `path`; *name is tri_free()d by the caller. */
static tri_status temporary_open(const char *path, char **name, int *fd)
{
    static _Atomic unsigned long numbers;
    for (int attempt = 0;; attempt++) {
        unsigned long number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
        *name = tri_format("%s.tmp-%ld-%lu", path, (long)getpid(), number);
        if (!*name)
            return TRI_ENOMEM;
        *fd = tri_fs_open_retrying(*name, O_WRONLY | O_CREAT | O_EXCL);
        if (*fd >= 0)
            return TRI_OK;
        int error = errno;
        tri_free(*name);
        *name = NULL;
        if (error != EEXIST || attempt >= 100)
            return tri_fs_fail(path, "create", error);
    }
}

/* rename(2), but not by the dead. */
static int rename_living(const char *from, const char *to)
{
    errno = EIO;
    return tri_sim_process_is_dead() ? -1 : rename(from, to);
}

static tri_status write_whole(const char *path, const void *bytes, size_t nbytes, bool lasts)
{
    char *name;
    int fd;
    TRI_TRY(temporary_open(path, &name, &fd));
    tri_status status = write_all(fd, path, bytes, nbytes);
    if (status == TRI_OK && lasts)
        status = tri_fs_sync_fd(fd, path);
    if (close(fd) != 0 && errno != EINTR && status == TRI_OK)
        status = tri_fs_fail(path, "close", errno);
    if (status == TRI_OK && rename_living(name, path) != 0)
        status = tri_fs_fail(path, "put in place", errno);
    if (status != TRI_OK && !tri_sim_process_is_dead())
        unlink(name);
    else if (status == TRI_OK && lasts)
        status = sync_folder_of(path);
    tri_free(name);
    return status;
}

tri_status tri_fs_write_atomic(const char *path, const void *bytes, size_t nbytes)
{
    return write_whole(path, bytes, nbytes, true);
}

tri_status tri_fs_write_swap(const char *path, const void *bytes, size_t nbytes)
{
    return write_whole(path, bytes, nbytes, false);
}

tri_status tri_fs_append(const char *path, const void *bytes, size_t nbytes)
{
    int64_t at = -1;
    return tri_fs_append_at(path, bytes, nbytes, &at);
}

tri_status tri_fs_append_at(const char *path, const void *bytes, size_t nbytes, int64_t *at)
{
    struct stat info;
    int fd = tri_fs_open_retrying(path, O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0)
        return tri_fs_fail(path, "open for appending", errno);
    tri_status status = fstat(fd, &info) == 0 ? TRI_OK : tri_fs_fail(path, "look at", errno);
    if (status == TRI_OK && *at >= 0 && *at != info.st_size)
        status = tri_fail(TRI_EMISMATCH, "%s: want %lld bytes there, got %lld: somebody else writes it", path,
                          (long long)*at, (long long)info.st_size);
    if (status == TRI_OK) {
        status = write_all(fd, path, bytes, nbytes);
        if (status == TRI_OK)
            *at = info.st_size + (int64_t)nbytes;
        else if (ftruncate(fd, info.st_size) != 0) /* all or nothing, as far as the disk lets us */
            *at = -1;
    }
    if (close(fd) != 0 && errno != EINTR && status == TRI_OK)
        status = tri_fs_fail(path, "close", errno);
    return status;
}

tri_status tri_fs_cut(const char *path, uint64_t nbytes)
{
    int rc;
    if (tri_sim_process_is_dead())
        return tri_fs_fail(path, "cut short", EIO);
    do
        rc = truncate(path, (off_t)nbytes);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? TRI_OK : tri_fs_fail(path, "cut short", errno);
}

/* --- names --- */

static bool holds(const char *path, const char *text, size_t nbytes)
{
    char *found = NULL;
    size_t found_nbytes = 0;
    bool same = tri_fs_exists(path) && tri_fs_read(path, nbytes + 1, &found, &found_nbytes) == TRI_OK &&
                found_nbytes == nbytes && memcmp(found, text, nbytes) == 0;

    tri_free(found);
    return same;
}

tri_status tri_fs_copy_beside(const char *from, const char *to, const char *name, uint64_t limit)
{
    char *source = tri_format("%s/%s", from, name), *target = tri_format("%s/%s", to, name), *text = NULL;
    size_t nbytes = 0;
    tri_status status = source && target ? TRI_OK : TRI_ENOMEM;

    if (status == TRI_OK && tri_fs_exists(source)) {
        status = tri_fs_read(source, limit, &text, &nbytes);
        if (status == TRI_OK && !holds(target, text, nbytes))
            status = tri_fs_write_atomic(target, text, nbytes);
    }
    tri_free(source);
    tri_free(target);
    tri_free(text);
    return status;
}

bool tri_fs_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

tri_status tri_fs_changed(const char *path, int64_t *wall_ns)
{
    struct stat info;

    if (stat(path, &info) != 0)
        return tri_fail(errno == ENOENT ? TRI_ENOTFOUND : TRI_EIO, "%s: cannot be looked at: %s", path,
                        strerror(errno));
    *wall_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return TRI_OK;
}

bool tri_fs_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool tri_fs_is_terminal(int fd)
{
    return isatty(fd) != 0;
}

tri_status tri_fs_make_folder(const char *path)
{
    TRI_TRY(tri_path_check(path));
    char *part = tri_strdup(path);
    if (!part)
        return TRI_ENOMEM;
    tri_status status = path[0] ? TRI_OK : tri_fail(TRI_EINVAL, "folder: want a path, got an empty text");
    for (char *at = part; status == TRI_OK && *at; at++) {
        if (at[1] != '/' && at[1] != '\0')
            continue;
        char after = at[1];
        at[1] = '\0';
        if (tri_sim_process_is_dead() || mkdir(part, 0777) != 0) {
            int error = tri_sim_process_is_dead() ? EIO : errno;
            /* Others may be creating the same folder; a parent may exist in a place we may not write to. */
            if (!tri_fs_is_folder(part))
                status = tri_fs_fail(part, "create folder", error == EEXIST ? ENOTDIR : error);
        }
        at[1] = after;
    }
    tri_free(part);
    return status;
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *walk)
{
    (void)info;
    (void)flag;
    (void)walk;
    if (remove(path) == 0 || errno == ENOENT)
        return 0;
    tri_fs_fail(path, "remove", errno);
    return 1;
}

bool tri_fs_has_bytes(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) && found.st_size > 0;
}

char *tri_fs_absolute(const char *path)
{
    char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0);
    char *whole = path[0] == '/' ? tri_strdup(path) : cwd ? tri_format("%s/%s", cwd, path) : NULL;
    free(cwd);
    return whole;
}

static int held_fd = -1; /* not closed by exec */

void tri_fs_hold_leave(void)
{
    if (held_fd >= 0)
        close(held_fd);
    held_fd = -1;
}

bool tri_fs_hold(const char *path, const char *text, char **theirs)
{
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    *theirs = NULL;
    if (fd < 0)
        return true;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        if (tri_fs_read(path, 4096, theirs, NULL) != TRI_OK)
            *theirs = NULL;
        return false;
    }
    bool written = ftruncate(fd, 0) == 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    (void)written; /* else nobody will know whose it is */
    held_fd = fd;
    return true;
}

bool tri_fs_lock_try(const char *path, tri_fs_lock *lock)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    *lock = (tri_fs_lock){0};
    if (fd < 0)
        return true;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return false;
    }
    lock->fd = fd + 1;
    return true;
}

void tri_fs_lock_release(tri_fs_lock *lock)
{
    if (lock->fd > 0)
        close(lock->fd - 1);
    *lock = (tri_fs_lock){0};
}

tri_status tri_fs_remove(const char *path)
{
    struct stat info;
    if (tri_sim_process_is_dead())
        return tri_fs_fail(path, "remove", EIO);
    if (lstat(path, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR ? TRI_OK : tri_fs_fail(path, "remove", errno);
    int rc = nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    if (rc > 0)
        return TRI_EIO;
    return rc < 0 && errno != ENOENT ? tri_fs_fail(path, "remove", errno) : TRI_OK;
}

tri_status tri_fs_program(char path[TRI_FS_PROGRAM_NBYTES])
{
    ssize_t length = readlink("/proc/self/exe", path, TRI_FS_PROGRAM_NBYTES - 1);
    if (length < 0)
        return tri_fs_fail("/proc/self/exe", "read", errno);
    path[length] = 0;
    return TRI_OK;
}

tri_status tri_fs_rename(const char *from, const char *to)
{
    if (rename_living(from, to) == 0)
        return TRI_OK;
    int error = errno;
    char buffer[128];
    return tri_fail(error == ENOENT ? TRI_ENOTFOUND : TRI_EIO, "%s: cannot rename to %s: %s", from, to,
                    reason(error, buffer, sizeof(buffer)));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tri_status list_names(DIR *folder, const char *path, tri_vector *names)
{
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (!entry)
            return errno ? tri_fs_fail(path, "list", errno) : TRI_OK;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *name = tri_strdup(entry->d_name);
        if (!name)
            return TRI_ENOMEM;
        if (!tri_vector_push(names, &name)) {
            tri_free(name);
            return TRI_ENOMEM;
        }
    }
}

tri_status tri_fs_list(const char *path, char ***names, size_t *count)
{
    DIR *folder = opendir(path);
    if (!folder)
        return tri_fs_fail(path, "list", errno);
    tri_vector found = {.each = sizeof(char *)};
    tri_status status = list_names(folder, path, &found);
    closedir(folder);
    if (status != TRI_OK) {
        tri_fs_list_free(found.items, found.count);
        return status;
    }
    if (found.count)
        qsort(found.items, found.count, sizeof(char *), compare_names);
    *names = found.items;
    *count = found.count;
    return TRI_OK;
}

void tri_fs_list_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tri_free(names[i]);
    tri_free(names);
}

/* --- mapping --- */

tri_status tri_fs_map_open(const char *path, tri_fs_map *map)
{
    *map = (tri_fs_map){0};
    int fd = tri_fs_open_retrying(path, O_RDONLY | O_NONBLOCK); /* a pipe must not make us wait: it is refused below */
    if (fd < 0)
        return tri_fs_fail(path, "open for reading", errno);
    struct stat info;
    tri_status status = TRI_OK;
    if (fstat(fd, &info) != 0)
        status = tri_fs_fail(path, "stat", errno);
    else if (!S_ISREG(info.st_mode))
        status = tri_fail(TRI_EIO, "%s: cannot map: want a regular file, got a %s", path,
                          S_ISDIR(info.st_mode) ? "folder" : "special file");
    else if (info.st_size == 0)
        map->bytes = ""; /* nothing to map, nothing to unmap */
    else {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED)
            status = tri_fs_fail(path, "map", errno);
        else {
            *map = (tri_fs_map){.bytes = bytes, .nbytes = (size_t)info.st_size};
            tri_map_guard_add(path, bytes, map->nbytes);
        }
    }
    close(fd);
    return status;
}

void tri_fs_map_close(tri_fs_map *map)
{
    if (map->nbytes) {
        tri_map_guard_remove(map->bytes);
        munmap((void *)(uintptr_t)map->bytes, map->nbytes);
    }
    *map = (tri_fs_map){0};
}
