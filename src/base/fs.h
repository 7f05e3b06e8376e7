/* SPDX-License-Identifier: Apache-2.0
 *
 * fs.h: files, whole or mapped, written so that a crash leaves either the old file or the new one.
 *
 * Every message names the path and the system's reason.
 */
#ifndef TRI_BASE_FS_H
#define TRI_BASE_FS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

/* Reads a whole file (at most limit bytes, 0 = no limit) and adds a 0 byte; tri_free() *out. */
tri_status tri_fs_read(const char *path, uint64_t limit, char **out, size_t *nbytes);
/* The same of a configuration that a person has named: one that is not there is TRI_ECONFIG. */
tri_status tri_fs_read_config(const char *path, uint64_t limit, char **out, size_t *nbytes);
/* Some of a file that may grow or shrink meanwhile: at most `room` bytes from `at` on; *got 0: it has no more. */
tri_status tri_fs_read_part(const char *path, uint64_t at, void *bytes, size_t room, size_t *got);
/* How many bytes a file has. */
tri_status tri_fs_nbytes(const char *path, uint64_t *nbytes);
/* Temporary name, write, fsync, rename, fsync of the folder. */
tri_status tri_fs_write_atomic(const char *path, const void *bytes, size_t nbytes);
/* The same without waiting for the disk: all or nothing for whoever reads, but not after a power cut. */
tri_status tri_fs_write_swap(const char *path, const void *bytes, size_t nbytes);
/* Appends to a file, created if absent. Where that fails, nothing is added. */
tri_status tri_fs_append(const char *path, const void *bytes, size_t nbytes);
/* The same of a file that others may take over: TRI_EMISMATCH, and nothing is written, unless it holds *at bytes (-1:
 * any number); *at becomes what it holds then. */
tri_status tri_fs_append_at(const char *path, const void *bytes, size_t nbytes, int64_t *at);
/* Only the first nbytes stay. Needs no room on the disk. */
tri_status tri_fs_cut(const char *path, uint64_t nbytes);
/* Creates the folder and its parents. */
tri_status tri_fs_make_folder(const char *path);
/* Removes a file or a folder with all it holds; fine when absent. */
tri_status tri_fs_remove(const char *path);
tri_status tri_fs_rename(const char *from, const char *to);
/* Copies a file of one folder to another. Fine when it is absent, or the same already. limit: as for tri_fs_read(). */
tri_status tri_fs_copy_beside(const char *from, const char *to, const char *name, uint64_t limit);
bool tri_fs_exists(const char *path);
/* Is it a file that is not empty? */
bool tri_fs_has_bytes(const char *path);
/* The path from the root, by the working folder of now; links are not followed (tri_free). NULL: no memory, no folder.
 */
char *tri_fs_absolute(const char *path);
/* When its content was last written, on the tri_wall_ns() scale. */
tri_status tri_fs_changed(const char *path, int64_t *wall_ns);
/* Where the file that this process runs is now. */
#define TRI_FS_PROGRAM_NBYTES 1024
tri_status tri_fs_program(char path[TRI_FS_PROGRAM_NBYTES]);
bool tri_fs_is_folder(const char *path);
/* Whether somebody may be watching what is written to an open descriptor. */
bool tri_fs_is_terminal(int fd);
/* Names in a folder, sorted, without . and ..; tri_free() each and the array. */
tri_status tri_fs_list(const char *path, char ***names, size_t *count);
void tri_fs_list_free(char **names, size_t count);
/* Both names are there: each stands for what the other one stood for, at once. TRI_EUNSUPPORTED: the file system cannot
 * do that. */
tri_status tri_fs_exchange(const char *a, const char *b);
/* Holds a file, created with this text, for this process and those that it starts, until the last of them has ended.
 * False: somebody else holds it, whose text is *theirs (tri_free; may be NULL). True also where nothing can be held. */
bool tri_fs_hold(const char *path, const char *text, char **theirs);
/* Held by one process (or thread) at a time, until it is released or the process ends. False: another holds it. True
 * also where nothing can be held. */
typedef struct tri_fs_lock {
    int fd; /* + 1; 0: none */
} tri_fs_lock;
bool tri_fs_lock_try(const char *path, tri_fs_lock *lock);
/* Also for a zeroed one. */
void tri_fs_lock_release(tri_fs_lock *lock);
/* In a process that was started, and is to outlive what is held. */
void tri_fs_hold_leave(void);
/* fsync of a file or folder. */
tri_status tri_fs_sync(const char *path);
/* As tri_fs_make_folder(), and after a power cut those that it made are still there. */
tri_status tri_fs_make_folder_lasting(const char *path);

/* A file that is written at any place, by several who opened it. */
typedef struct tri_fs_file tri_fs_file;
/* `create`: created, or emptied; else it must be there. */
tri_status tri_fs_file_open(const char *path, bool create, tri_fs_file **out);
/* Its bytes do not stay in the system's memory, where that can be: for large files that nobody reads soon. From now on
 * what is written in a row is gathered, and may be on its way until tri_fs_file_sync(). */
void tri_fs_file_pass_cache(tri_fs_file *file);
tri_status tri_fs_file_write(tri_fs_file *file, const void *bytes, size_t nbytes, uint64_t at);
/* What was written by this opening is on the disk. After a failure nothing is known of what is there. */
tri_status tri_fs_file_sync(tri_fs_file *file);
/* Fails where the system could not keep what it took (some network mounts say so only here). NULL does nothing. */
tri_status tri_fs_file_close(tri_fs_file *file);

/* A large file that is read once: its bytes do not stay in the system's memory, where that can be. */
typedef struct tri_fs_reader tri_fs_reader;
tri_status tri_fs_reader_open(const char *path, tri_fs_reader **out);
/* At least one and at most `most` bytes from `at` on, valid until the next look; TRI_EIO where the file has none. */
tri_status tri_fs_reader_look(tri_fs_reader *reader, uint64_t at, size_t most, const void **bytes, size_t *nbytes);
void tri_fs_reader_close(tri_fs_reader *reader);

/* A file mapped for reading. Where another program cuts it short, reading what is gone raises SIGBUS. */
typedef struct tri_fs_map {
    const void *bytes;
    size_t nbytes;
} tri_fs_map;
tri_status tri_fs_map_open(const char *path, tri_fs_map *map);
void tri_fs_map_close(tri_fs_map *map);
/* For programs: such a SIGBUS prints "error: <path>: cut short by another program while it was read" and exits with 1.
 * Any other SIGBUS kills as before. */
void tri_fs_cut_catch(void);

#endif
