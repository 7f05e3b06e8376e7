/* SPDX-License-Identifier: Apache-2.0
 *
 * cut.c: a worker whose TCP is cut, altogether or with one other worker, or loses packets: rules of nft in the network
 * namespace of that worker, for the ports that it has.
 *
 * The ports are looked at again and again, so that connections made meanwhile are struck too. One table per strike,
 * removed at its end. What goes through shared memory and unix sockets of one host is not the network's, and passes.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/chaos/chaos.h"

#define TURN_NS (50 * TRI_NS_PER_MS)

/* Writes a script for nft to the namespace of a process; false: refused. */
static bool nft_run(pid_t pid, const char *script)
{
    char command[128];
    snprintf(command, sizeof(command), "nsenter --net=/proc/%ld/ns/net nft -f - 2>/dev/null", (long)pid);
    FILE *input = popen(command, "w");
    if (!input)
        return false;
    fputs(script, input);
    return pclose(input) == 0;
}

tri_status chaos_nft_check(const chaos_job *job)
{
    const chaos_worker *worker = tri_vector_at(&job->workers, 0);
    if (geteuid() != 0)
        return tri_fail(TRI_ECONFIG, "cut, link and loss: want root, who may set rules of the network, got user %ld",
                        (long)geteuid());
    if (!nft_run(worker->pid, "add table inet trireme_chaos_test\ndelete table inet trireme_chaos_test\n"))
        return tri_fail(TRI_ECONFIG,
                        "cut, link and loss: want nft (package nftables) and nsenter, and a kernel with nf_tables; nft "
                        "refused a table of its own");
    return TRI_OK;
}

/* Inodes of the sockets that a process has open. */
static void sockets_find(pid_t pid, tri_map *inodes)
{
    char path[320], target[64];
    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof(path), "/proc/%ld/fd/%s", (long)pid, entry->d_name);
        ssize_t nbytes = readlink(path, target, sizeof(target) - 1);
        if (nbytes < 10 || strncmp(target, "socket:[", 8) != 0)
            continue;
        target[nbytes - 1] = 0;
        (void)tri_map_set(inodes, target + 8, 1);
    }
    if (folder)
        closedir(folder);
}

/* Adds the own ports of those among the lines of /proc/PID/net/tcp. */
static void ports_add(pid_t pid, const char *name, const tri_map *inodes, char *ports, size_t capacity)
{
    char path[64], *text, *rest = NULL;
    snprintf(path, sizeof(path), "/proc/%ld/net/%s", (long)pid, name);
    if (tri_fs_read(path, 16u << 20, &text, NULL) != TRI_OK)
        return;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        unsigned port;
        char inode[32], one[16];
        int64_t known;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %*s %*s %*s %*s %*s %*s %31s", &port, inode) != 2 ||
            !tri_map_find(inodes, inode, &known))
            continue;
        snprintf(one, sizeof(one), "%s%u", ports[0] ? "," : "", port);
        if (strlen(ports) + strlen(one) < capacity)
            strcat(ports, one);
    }
    tri_free(text);
}

static void ports_find(pid_t pid, char *ports, size_t capacity)
{
    tri_map inodes = {0};
    ports[0] = 0;
    sockets_find(pid, &inodes);
    ports_add(pid, "tcp", &inodes, ports, capacity);
    ports_add(pid, "tcp6", &inodes, ports, capacity);
    tri_map_fini(&inodes);
}

/* The other end of a link: another worker, always the same one while both are there; 0: it has gone. */
static pid_t other_end(const chaos_strike *strike)
{
    const chaos_worker *workers = strike->job->workers.items;
    size_t count = strike->job->workers.count, at = 0;

    while (at < count && workers[at].pid != strike->pid)
        at++;
    return count < 2 || at == count ? 0 : workers[(at + 1 + strike->event.draw % (count - 1)) % count].pid;
}

/* In both directions: what leaves and comes, by the ports of one worker; of a link, by those of both of its ends. */
static tri_status rules_print(const chaos_strike *strike, const char *table, const char *ports, const char *others,
                              tri_string *script)
{
    char what[64] = "drop", to[sizeof(strike->ports)] = "";
    tri_status status =
        tri_string_appendf(script, "add table %s\ndelete table %s\nadd table %s\n", table, table, table);

    if (strcmp(chaos_kinds[strike->event.kind].name, "loss") == 0)
        snprintf(what, sizeof(what), "numgen random mod 1000 < %d drop", (int)strike->amount);
    for (int out = 0; out < 2 && status == TRI_OK; out++) {
        const char *hook = out ? "output" : "input", *own = out ? "sport" : "dport", *far = out ? "dport" : "sport";
        if (others)
            snprintf(to, sizeof(to), "tcp %s { %s } ", far, others);
        status =
            tri_string_appendf(script, "add chain %s %s { type filter hook %s priority -300; }\n", table, hook, hook);
        if (status == TRI_OK && ports[0] && (!others || others[0]))
            status =
                tri_string_appendf(script, "add rule %s %s tcp %s { %s } %s%s\n", table, hook, own, ports, to, what);
    }
    return status;
}

static bool rules_set(chaos_strike *strike, pid_t pid)
{
    char ports[sizeof(strike->ports) / 2], others[sizeof(strike->ports) / 2] = "", both[sizeof(strike->ports)],
                                                                          table[48];
    bool link = strcmp(chaos_kinds[strike->event.kind].name, "link") == 0;
    tri_string script = {0};

    ports_find(pid, ports, sizeof(ports));
    if (link && other_end(strike) != 0)
        ports_find(other_end(strike), others, sizeof(others));
    snprintf(both, sizeof(both), "%s-%s", ports, others);
    if (strcmp(both, strike->ports) == 0)
        return true;
    memcpy(strike->ports, both, sizeof(both));
    snprintf(table, sizeof(table), "inet trireme_chaos_%ld", (long)pid);
    tri_status status = rules_print(strike, table, ports, link ? others : NULL, &script);
    bool done = status == TRI_OK && nft_run(pid, tri_string_text(&script));
    tri_string_fini(&script);
    return done;
}

tri_status chaos_cut_begin(chaos_strike *strike, chaos_worker *worker)
{
    snprintf(strike->ports, sizeof(strike->ports), "?");
    strike->amount = 10 + strike->event.draw % 91; /* 1 to 10 % */
    strike->turn_ns = tri_now_ns() + TURN_NS;
    return rules_set(strike, worker->pid) ? TRI_OK : tri_fail(TRI_ENOTFOUND, "nft refused the rules");
}

void chaos_cut_turn(chaos_strike *strike, chaos_worker *worker)
{
    strike->turn_ns = tri_now_ns() + TURN_NS;
    (void)rules_set(strike, worker->pid);
}

/* A namespace goes with its last process; where that process was in this one, the table is still here. */
void chaos_cut_end(chaos_strike *strike, chaos_worker *worker)
{
    char script[96];
    snprintf(script, sizeof(script), "delete table inet trireme_chaos_%ld\n", (long)strike->pid);
    if (!worker || !nft_run(worker->pid, script))
        (void)nft_run(getpid(), script);
}
