/* SPDX-License-Identifier: Apache-2.0
 *
 * run_process.c: what processes that train were started with. What runs on other machines, or as another user, is not
 * seen.
 */
#include "cli/run_process.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

#define FILE_MOST (4u << 20)

void tri_pids_visit(tri_pid_visit visit, void *arg)
{
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (isdigit((unsigned char)entry->d_name[0]))
            visit(arg, (pid_t)atol(entry->d_name));
    if (folder)
        closedir(folder);
}

/* A file of /proc/PID whose words end with 0 bytes. NULL: it cannot be read. tri_free(). */
static char *words_of(pid_t pid, const char *name, size_t *nbytes)
{
    char path[64], *text = NULL;
    snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
    return tri_fs_read(path, FILE_MOST, &text, nbytes) == TRI_OK ? text : NULL;
}

/* What is behind "name=" in a word, or is the word after `name`; NULL: none. */
static const char *word_after(const char *words, size_t nbytes, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = words; at < words + nbytes; at += strlen(at) + 1) {
        const char *next = at + strlen(at) + 1;
        if (strncmp(at, name, length) != 0)
            continue;
        if (at[length] == '=')
            return at + length + 1;
        if (at[length] == 0 && next < words + nbytes)
            return next;
    }
    return NULL;
}

/* The word of the command is "train", and what follows it names the folder. */
static const char *folder_word(const char *words, size_t nbytes)
{
    const char *command = words + strlen(words) + 1;
    if (command >= words + nbytes || strcmp(command, "train") != 0)
        return NULL;
    const char *out = word_after(words, nbytes, "--out");
    return out ? out : word_after(words, nbytes, "--resume");
}

bool tri_proc_folder(pid_t pid, char folder[TRI_RUN_FOLDER_NBYTES])
{
    char path[8300], *real = NULL;
    size_t nbytes = 0;
    char *words = words_of(pid, "cmdline", &nbytes);
    const char *word = words && nbytes > 0 ? folder_word(words, nbytes) : NULL;
    if (word && word[0] == '/')
        snprintf(path, sizeof(path), "%s", word);
    else if (word)
        snprintf(path, sizeof(path), "/proc/%ld/cwd/%s", (long)pid, word);
    if (word)
        real = realpath(path, NULL);
    bool found = real && strlen(real) < TRI_RUN_FOLDER_NBYTES;
    if (found)
        memcpy(folder, real, strlen(real) + 1);
    free(real);
    tri_free(words);
    return found;
}

static int environment_number(pid_t pid, const char *name, int other)
{
    size_t nbytes = 0;
    char *words = words_of(pid, "environ", &nbytes);
    const char *value = words ? word_after(words, nbytes, name) : NULL;
    int number = value ? atoi(value) : other;
    tri_free(words);
    return number;
}

int tri_proc_rank(pid_t pid)
{
    return environment_number(pid, "TRIREME_RANK", -1);
}

bool tri_proc_serves(pid_t pid)
{
    const int servers = environment_number(pid, "TRIREME_SERVERS", 0);
    return servers > 0 && tri_proc_rank(pid) >= environment_number(pid, "TRIREME_WORLD_SIZE", INT32_MAX) - servers;
}
