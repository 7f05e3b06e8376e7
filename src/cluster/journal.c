/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.c: the file of a journal: a head, then records; the last record of a key counts.
 *
 * Head: "TRIJ0001" and the machine's boot id, 36 bytes. Record: bytes of the key, bytes of the value (~0: the key
 * goes), CRC-32C of these two numbers, key and value (4 bytes each, as the machine has them); key; value. A record that
 * is not whole was never answered for: the table ends before it.
 */
#include "cluster/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fs.h"
#include "base/log.h"

#define MAGIC        "TRIJ0001"
#define BOOT_NBYTES  36
#define HEAD_NBYTES  (sizeof MAGIC - 1 + BOOT_NBYTES)
#define ENTRY_NBYTES 12
#define GONE         UINT32_MAX
#define TIDY_NBYTES  (4u << 20)  /* below that nothing is gained by writing it again */
#define KEPT_NBYTES  (16u << 20) /* of records in memory while the disk is full */
#define AGAIN_NS     INT64_C(500000000)
#define TIDY_TIMES   4 /* as long as it was when it was written again */

struct tri_journal {
    char *path;
    int fd;
    tri_mutex mutex;
    char head[HEAD_NBYTES + 1];
    uint64_t nbytes, tidy_nbytes;
    bool broken, lost; /* nothing is in the file; nor in memory */
    tri_string kept;   /* broken: all records */
    int64_t again_ns;  /* broken: when it is tried again */
};

/* What counts: the file's bytes, and by key the offset of its record. */
typedef struct table {
    char *text;
    size_t nbytes; /* of whole records, and the head */
    tri_map keys;
    tri_vector offsets; /* int64_t; -1: the key went */
} table;

static tri_status failed(const tri_journal *journal, const char *what)
{
    return tri_fail(TRI_EIO, "%s: cannot %s: %s", journal->path, what, strerror(errno));
}

static tri_status write_all(const tri_journal *journal, int fd, const char *bytes, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t done = write(fd, bytes, nbytes);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return failed(journal, "write");
        bytes += done;
        nbytes -= (size_t)done;
    }
    return TRI_OK;
}

/* --- reading --- */

static void table_fini(table *all)
{
    tri_free(all->text);
    tri_map_fini(&all->keys);
    tri_vector_fini(&all->offsets);
}

static tri_status record_note(table *all, const char *key, int64_t offset)
{
    int64_t place;

    if (tri_map_find(&all->keys, key, &place)) {
        *(int64_t *)tri_vector_at(&all->offsets, (size_t)place) = offset;
        return TRI_OK;
    }
    place = (int64_t)all->offsets.count;
    if (!tri_vector_push(&all->offsets, &offset))
        return TRI_ENOMEM;
    return tri_map_set(&all->keys, key, place);
}

/* The record at an offset; false: there is no whole one. */
static bool record_at(const table *all, size_t limit, size_t at, uint32_t words[3], size_t *nbytes)
{
    char *text = all->text;

    if (limit - at < ENTRY_NBYTES)
        return false;
    memcpy(words, text + at, ENTRY_NBYTES);
    *nbytes = (size_t)words[0] + (words[1] == GONE ? 0 : words[1]);
    if (words[0] == 0 || words[0] > 4096 || *nbytes > limit - at - ENTRY_NBYTES)
        return false;
    /* The two numbers and what follows are one text in the sum: the sum itself is moved out of the way. */
    char kept[4];
    memcpy(kept, text + at + 8, 4);
    memmove(text + at + 4, text + at, 8);
    bool good = tri_crc32c(text + at + 4, 8 + *nbytes) == words[2];
    memmove(text + at, text + at + 4, 8);
    memcpy(text + at + 8, kept, 4);
    return good;
}

static tri_status table_read(tri_journal *journal, table *all)
{
    size_t limit, nbytes;
    uint32_t words[3];
    char key[4097], path[40];

    *all = (table){.offsets = {.each = sizeof(int64_t)}};
    /* The file that was looked at, whatever is under its path by now. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", journal->fd);
    TRI_TRY_IN(tri_fs_read(path, 0, &all->text, &limit), "%s", journal->path);
    all->nbytes = HEAD_NBYTES;
    if (limit < HEAD_NBYTES || memcmp(all->text, journal->head, HEAD_NBYTES) != 0)
        return TRI_OK; /* empty, or of before the machine was started again */
    while (record_at(all, limit, all->nbytes, words, &nbytes)) {
        memcpy(key, all->text + all->nbytes + ENTRY_NBYTES, words[0]);
        key[words[0]] = 0;
        TRI_TRY(record_note(all, key, words[1] == GONE ? -1 : (int64_t)all->nbytes));
        all->nbytes += ENTRY_NBYTES + nbytes;
    }
    return TRI_OK;
}

static tri_status table_each(const table *all, tri_journal_visit fn, void *arg)
{
    for (size_t i = 0; i < all->offsets.count; i++) {
        int64_t at = *(int64_t *)tri_vector_at(&all->offsets, i);
        uint32_t words[3];

        if (at < 0)
            continue;
        memcpy(words, all->text + at, ENTRY_NBYTES);
        const char *start = all->text + at + ENTRY_NBYTES;
        char *key = tri_strndup(start, words[0]), *value = tri_alloc((size_t)words[1] + 1);
        tri_status status = key && value ? TRI_OK : TRI_ENOMEM;
        if (status == TRI_OK) {
            memcpy(value, start + words[0], words[1]);
            value[words[1]] = 0;
            status = fn(arg, key, value, words[1]);
        }
        tri_free(key);
        tri_free(value);
        TRI_TRY(status);
    }
    return TRI_OK;
}

tri_status tri_journal_each(tri_journal *journal, tri_journal_visit fn, void *arg)
{
    table all;

    tri_mutex_lock(&journal->mutex);
    tri_status status = table_read(journal, &all);
    tri_mutex_unlock(&journal->mutex);
    if (status == TRI_OK)
        status = table_each(&all, fn, arg);
    table_fini(&all);
    return status;
}

/* --- writing --- */

static tri_status record_make(tri_string *out, const char *key, const void *bytes, size_t nbytes)
{
    uint32_t words[3] = {(uint32_t)strlen(key), bytes ? (uint32_t)nbytes : GONE};
    size_t start = out->nbytes;

    /* Numbers, key, value in a row for the sum, which then takes its place. */
    TRI_TRY(tri_string_append_bytes(out, words, 4));
    TRI_TRY(tri_string_append_bytes(out, words, 8));
    TRI_TRY(tri_string_append_bytes(out, key, words[0]));
    if (bytes)
        TRI_TRY(tri_string_append_bytes(out, bytes, nbytes));
    words[2] = tri_crc32c(out->text + start + 4, out->nbytes - start - 4);
    memcpy(out->text + start, words, sizeof words);
    return TRI_OK;
}

static tri_status record_keep(void *arg, const char *key, const char *bytes, size_t nbytes)
{
    return record_make(arg, key, bytes, nbytes);
}

/* The path's file is the one that is locked: another may have put its own there meanwhile. */
static bool is_there(int fd, const char *path)
{
    struct stat mine, found;

    return fstat(fd, &mine) == 0 && stat(path, &found) == 0 && mine.st_ino == found.st_ino &&
           mine.st_dev == found.st_dev;
}

/* A new file with head and records takes the place of the old one, locked before it is seen. */
static tri_status file_replace(tri_journal *journal, const tri_string *records)
{
    char *path = tri_format("%s.new", journal->path);
    tri_status status = path ? TRI_OK : TRI_ENOMEM;
    int fd = -1;

    if (path)
        unlink(path); /* of a launcher that was killed, or somebody else's */
    if (status == TRI_OK && ((fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600)) < 0 ||
                             flock(fd, LOCK_EX | LOCK_NB) != 0))
        status = failed(journal, "make it again");
    if (status == TRI_OK)
        status = write_all(journal, fd, journal->head, HEAD_NBYTES);
    if (status == TRI_OK && records->nbytes > 0)
        status = write_all(journal, fd, records->text, records->nbytes);
    if (status == TRI_OK)
        status = tri_fs_rename(path, journal->path);
    if (status == TRI_OK) {
        int before = journal->fd;

        journal->fd = fd;
        fd = before;
        journal->nbytes = journal->tidy_nbytes = HEAD_NBYTES + records->nbytes;
    } else if (fd >= 0) {
        unlink(path);
    }
    if (fd >= 0)
        close(fd);
    tri_free(path);
    return status;
}

/* The records that count. */
static tri_status records_read(tri_journal *journal, tri_string *out)
{
    table all;
    tri_status status = table_read(journal, &all);

    if (status == TRI_OK)
        status = table_each(&all, record_keep, out);
    table_fini(&all);
    return status;
}

static tri_status tidy(tri_journal *journal)
{
    tri_string text = {0};
    tri_status status = records_read(journal, &text);

    if (status == TRI_OK)
        status = file_replace(journal, &text);
    tri_string_fini(&text);
    return status;
}

static tri_status add(tri_journal *journal, const char *key, const void *bytes, size_t nbytes)
{
    tri_string text = {0};
    tri_status status = record_make(&text, key, bytes, nbytes);

    if (status == TRI_OK)
        status = write_all(journal, journal->fd, text.text, text.nbytes);
    journal->nbytes += text.nbytes;
    tri_string_fini(&text);
    if (status == TRI_OK && journal->nbytes > TIDY_NBYTES && journal->nbytes > TIDY_TIMES * journal->tidy_nbytes)
        status = tidy(journal);
    return status;
}

/* A file that lacks its last record would tell of processes that are gone: it is emptied, and all is kept in memory. */
static void break_off(tri_journal *journal, const char *key, const void *bytes, size_t nbytes)
{
    tri_log(TRI_LOG_WARN,
            "if this launcher is killed, no other can continue with its workers, until there is room again: %s",
            tri_last_error());
    journal->broken = true;
    journal->lost =
        records_read(journal, &journal->kept) != TRI_OK || record_make(&journal->kept, key, bytes, nbytes) != TRI_OK;
    journal->again_ns = tri_now_ns() + AGAIN_NS;
    if (ftruncate(journal->fd, 0) != 0)
        unlink(journal->path);
}

/* Tried now and then; for ever without what memory has no room for. */
static void take_up(tri_journal *journal, const char *key, const void *bytes, size_t nbytes)
{
    journal->lost = journal->lost || journal->kept.nbytes > KEPT_NBYTES ||
                    record_make(&journal->kept, key, bytes, nbytes) != TRI_OK;
    if (journal->lost || tri_now_ns() < journal->again_ns)
        return;
    journal->again_ns = tri_now_ns() + AGAIN_NS;
    if (file_replace(journal, &journal->kept) != TRI_OK)
        return;
    tri_log(TRI_LOG_INFO, "%s: there is room again: if this launcher is killed, another can continue with its workers",
            journal->path);
    journal->broken = false;
    tri_string_fini(&journal->kept);
}

void tri_journal_put(tri_journal *journal, const char *key, const void *bytes, size_t nbytes)
{
    tri_mutex_lock(&journal->mutex);
    if (journal->broken)
        take_up(journal, key, bytes, nbytes);
    else if (add(journal, key, bytes, nbytes) != TRI_OK)
        break_off(journal, key, bytes, nbytes);
    tri_mutex_unlock(&journal->mutex);
}

tri_status tri_journal_clear(tri_journal *journal)
{
    tri_status status = TRI_OK;

    tri_mutex_lock(&journal->mutex);
    if (ftruncate(journal->fd, 0) != 0)
        status = failed(journal, "empty it");
    if (status == TRI_OK)
        status = write_all(journal, journal->fd, journal->head, HEAD_NBYTES);
    journal->nbytes = journal->tidy_nbytes = HEAD_NBYTES;
    journal->broken = journal->lost = false;
    tri_string_fini(&journal->kept);
    tri_mutex_unlock(&journal->mutex);
    return status;
}

/* --- opening --- */

static tri_status file_check(int fd, const char *path, unsigned forbidden)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return tri_fail(TRI_EIO, "%s: cannot look at it: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return tri_fail(TRI_ECONFIG, "%s: want a file, got something else of user %ld (remove it, if nobody needs it)",
                        path, (long)info.st_uid);
    if (info.st_uid != geteuid() || (info.st_mode & forbidden) != 0)
        return tri_fail(TRI_ECONFIG,
                        "%s: want a file of user %ld that others cannot %s, got one of user %ld, mode %04o (remove it, "
                        "if nobody needs it)",
                        path, (long)geteuid(), forbidden & 044 ? "read or write" : "write", (long)info.st_uid,
                        (unsigned)info.st_mode & 07777);
    return TRI_OK;
}

tri_status tri_journal_file_open(const char *path, int flags, unsigned forbidden, int *fd)
{
    *fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600); /* a pipe would let it wait for a writer */
    if (*fd < 0)
        return tri_fail(errno == ENOENT ? TRI_ENOTFOUND : TRI_EIO, "%s: cannot open: %s", path, strerror(errno));
    tri_status status = file_check(*fd, path, forbidden);
    if (status != TRI_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

static tri_status lock(tri_journal *journal)
{
    for (;;) {
        TRI_TRY(tri_journal_file_open(journal->path, O_RDWR | O_CREAT | O_APPEND, 077, &journal->fd));
        if (flock(journal->fd, LOCK_EX | LOCK_NB) != 0)
            return errno == EWOULDBLOCK ? tri_fail(TRI_ECONFIG,
                                                   "%s: want a run without a launcher, and another process, which "
                                                   "lives, is the launcher of this one",
                                                   journal->path)
                                        : failed(journal, "lock");
        if (is_there(journal->fd, journal->path))
            return TRI_OK;
        close(journal->fd);
    }
}

static tri_status head_make(tri_journal *journal)
{
    char *boot;
    size_t nbytes;

    TRI_TRY(tri_fs_read("/proc/sys/kernel/random/boot_id", 4096, &boot, &nbytes));
    snprintf(journal->head, sizeof journal->head, MAGIC "%-36.36s", boot);
    tri_free(boot);
    return TRI_OK;
}

/* A record that was being written when its launcher was killed would hide those that follow. */
static tri_status tail_cut(tri_journal *journal)
{
    table all;
    tri_status status = table_read(journal, &all);

    journal->nbytes = all.nbytes;
    bool empty = all.offsets.count == 0;
    table_fini(&all);
    TRI_TRY(status);
    if (empty)
        return tri_journal_clear(journal);
    return ftruncate(journal->fd, (off_t)journal->nbytes) == 0 ? TRI_OK : failed(journal, "cut its end");
}

tri_status tri_journal_open(const char *path, tri_journal **out)
{
    tri_journal *journal = tri_alloc_zero(1, sizeof *journal);

    *out = NULL;
    if (!journal)
        return TRI_ENOMEM;
    tri_mutex_init(&journal->mutex);
    journal->fd = -1;
    journal->path = tri_strdup(path);
    tri_status status = journal->path ? head_make(journal) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = lock(journal);
    if (status == TRI_OK)
        status = tail_cut(journal);
    if (status != TRI_OK) {
        tri_journal_close(journal, false);
        return status;
    }
    *out = journal;
    return TRI_OK;
}

void tri_journal_close(tri_journal *journal, bool remove)
{
    if (!journal)
        return;
    if (remove)
        unlink(journal->path);
    if (journal->fd >= 0)
        close(journal->fd);
    tri_mutex_fini(&journal->mutex);
    tri_string_fini(&journal->kept);
    tri_free(journal->path);
    tri_free(journal);
}
