/* SPDX-License-Identifier: Apache-2.0
 *
 * network.c: checks of interfaces and of the kernel's TCP.
 */
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"

#define MTU_LEAST    1280
#define MTU_USUAL    1500
#define MBITS_LEAST  1000
#define MBITS_JUMBO  10000
#define BUFFER_LEAST TRI_MIB
#define BUFFER_LONG  (16 * TRI_MIB)

/* Bridges, tunnels and the like: their addresses mean something on this host only, or go a long way round. */
static bool is_virtual(const tri_machine *machine, const char *name)
{
    static const char *const heads[] = {
        "docker", "br-",       "virbr", "veth", "cni", "flannel", "cali",   "vxlan", "tun",          "tap",   "wg",
        "zt",     "tailscale", "vmnet", "vbox", "lxc", "lxd",     "podman", "kube-", "nodelocaldns", "dummy", "ifb"};

    char path[96], route[16];

    for (size_t i = 0; i < TRI_COUNT_OF(heads); i++) {
        if (strncmp(name, heads[i], strlen(heads[i])) == 0)
            return true;
    }
    /* A bridge may also be what the host itself goes out by. */
    snprintf(path, sizeof path, "/sys/class/net/%s/bridge", name);
    return tri_machine_has(machine, path) && !(tri_machine_route(machine, route) && strcmp(route, name) == 0);
}

static const tri_interface *row_at(const tri_machine *machine, size_t i)
{
    return tri_vector_at(&machine->interfaces, i);
}

static const tri_interface *row_of_address(const tri_machine *machine, const char *address)
{
    for (size_t i = 0; i < machine->interfaces.count; i++) {
        if (strcmp(row_at(machine, i)->address, address) == 0)
            return row_at(machine, i);
    }
    return NULL;
}

bool tri_machine_chosen(const tri_machine *machine, char name[16])
{
    char first[64];
    const tri_interface *row;

    snprintf(first, sizeof first, "%.*s", (int)strcspn(machine->probe.addresses, ","), machine->probe.addresses);
    row = first[0] ? row_of_address(machine, first) : NULL;
    snprintf(name, 16, "%s", row ? row->name : "");
    return row != NULL;
}

int64_t tri_interface_number(const tri_machine *machine, const char *name, const char *file)
{
    char path[96];
    int64_t number;

    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, file);
    return tri_machine_number(machine, path, &number) ? number : -1;
}

void tri_check_loopback(const tri_machine *machine, tri_finding *finding)
{
    const tri_probe *probe = &machine->probe;
    const char *why = probe->listen[0] ? probe->listen : probe->loopback;

    TRI_FINDING_SET(finding->wanted, "127.0.0.1 answers: ranks of a host meet there");
    TRI_FINDING_SET(finding->found, "%s", why[0] ? why : "works");
    if (!why[0])
        return;
    finding->result = TRI_RESULT_FAIL;
    if (strstr(why, "Too many open files"))
        TRI_FINDING_SET(finding->fix, "ulimit -n 1024");
    else
        TRI_FINDING_SET(finding->fix, "sudo ip link set lo up");
}

void tri_check_interfaces(const tri_machine *machine, tri_finding *finding)
{
    tri_string list = {0};
    const tri_interface *down = NULL;
    int usable = 0;

    TRI_FINDING_SET(finding->wanted, "one that is up with an address, for ranks on other hosts");
    for (size_t i = 0; i < machine->interfaces.count; i++) {
        const tri_interface *row = row_at(machine, i);
        int64_t mtu = tri_interface_number(machine, row->name, "mtu");
        int64_t mbits = tri_interface_number(machine, row->name, "speed");

        if (!row->is_loopback && row->is_up && row->address[0])
            usable++;
        if (!row->is_loopback && (!row->is_up || !row->address[0]) && !is_virtual(machine, row->name))
            down = row;
        (void)tri_string_appendf(&list, "%s%s%s%s%s", i > 0 ? ", " : "", row->name, row->address[0] ? " " : "",
                                 row->address, row->is_up ? "" : " (down)");
        if (row->is_up && mtu > 0)
            (void)tri_string_appendf(&list, " mtu %lld", (long long)mtu);
        if (row->is_up && mbits > 0)
            (void)tri_string_appendf(&list, " %lld Mbit/s", (long long)mbits);
    }
    TRI_FINDING_SET(finding->found, "%s", list.nbytes > 0 ? tri_string_text(&list) : "none");
    tri_string_fini(&list);
    if (usable > 0)
        return;
    finding->result = machine->many_hosts ? TRI_RESULT_FAIL : TRI_RESULT_NOTE;
    if (down)
        TRI_FINDING_SET(finding->fix, "sudo ip link set %s up && sudo dhclient %s", down->name, down->name);
}

/* The interface that should be first: of the default route, else any real one; and whether there are several. */
static bool better_find(const tri_machine *machine, char name[16], int *real)
{
    char route[16];
    bool has_route = tri_machine_route(machine, route), found = false;
    int64_t best = -1;

    *real = 0;
    for (size_t i = 0; i < machine->interfaces.count; i++) {
        const tri_interface *row = row_at(machine, i);
        int64_t mbits = tri_interface_number(machine, row->name, "speed");
        bool is_route = has_route && strcmp(row->name, route) == 0;
        /* Where the speed of one is unknown, the default route is the better guess. */
        int64_t worth = is_route && mbits <= 0 ? INT64_MAX : 2 * mbits + is_route;

        if (row->is_loopback || !row->is_up || !row->address[0] || is_virtual(machine, row->name))
            continue;
        if (found && strcmp(name, row->name) == 0)
            continue;
        ++*real;
        if (found && worth <= best)
            continue;
        best = worth;
        found = true;
        snprintf(name, 16, "%s", row->name);
    }
    return found;
}

void tri_check_chosen(const tri_machine *machine, tri_finding *finding)
{
    char chosen[16], better[16] = "", route[16];
    int real;
    bool has_better;

    TRI_FINDING_SET(finding->wanted, "the fastest one that all hosts share");
    if (!tri_machine_chosen(machine, chosen)) {
        finding->result = machine->many_hosts ? TRI_RESULT_FAIL : TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "none: ranks of other hosts cannot reach this one");
        return;
    }
    has_better = better_find(machine, better, &real);
    TRI_FINDING_SET(finding->found, "%s, as the first that is up, in the order %s%s", chosen, machine->probe.addresses,
                    tri_machine_route(machine, route) && strcmp(route, chosen) == 0 ? "; it has the default route"
                                                                                    : "");
    if (is_virtual(machine, chosen)) {
        finding->result = has_better ? TRI_RESULT_WARN : TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "%s comes first (order: %s): a bridge or tunnel that other hosts do not share",
                        chosen, machine->probe.addresses);
    } else if (real > 1 && strcmp(better, chosen) != 0) {
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "%s comes first (order: %s), but %s is faster or has the default route", chosen,
                        machine->probe.addresses, better);
    }
    if (finding->result != TRI_RESULT_OK && has_better)
        TRI_FINDING_SET(finding->fix, "trireme train CONFIG.yaml comm.interface=%s", better);
}

void tri_check_link_speed(const tri_machine *machine, tri_finding *finding)
{
    char name[16], path[96], duplex[16];
    int64_t mbits, mtu;

    TRI_FINDING_SET(finding->wanted, "at least 1000 Mbit/s, and large frames from 10000 Mbit/s on");
    if (!tri_machine_chosen(machine, name)) {
        TRI_FINDING_SET(finding->found, "no interface for other hosts");
        return;
    }
    mbits = tri_interface_number(machine, name, "speed");
    mtu = tri_interface_number(machine, name, "mtu");
    snprintf(path, sizeof path, "/sys/class/net/%s/duplex", name);
    (void)tri_machine_text(machine, path, duplex, sizeof duplex);
    if (mbits > 0)
        TRI_FINDING_SET(finding->found, "%s: %lld Mbit/s, mtu %lld", name, (long long)mbits, (long long)mtu);
    else
        TRI_FINDING_SET(finding->found, "%s: speed not reported by its driver, mtu %lld", name, (long long)mtu);
    if (mtu > 0 && mtu < MTU_LEAST) {
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->fix, "sudo ip link set dev %s mtu %d", name, MTU_USUAL);
    } else if (strcmp(duplex, "half") == 0 || (mbits > 0 && mbits < MBITS_LEAST)) {
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "%s: %lld Mbit/s, %s duplex", name, (long long)mbits,
                        duplex[0] ? duplex : "unknown");
        TRI_FINDING_SET(finding->fix, "sudo ethtool -s %s autoneg on", name);
    } else if (mbits >= MBITS_JUMBO && mtu > 0 && mtu <= MTU_USUAL) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->fix, "sudo ip link set dev %s mtu 9000     # on all hosts, if the switches carry it",
                        name);
    }
}

/* The third number of tcp_rmem and tcp_wmem is as far as the kernel's autotuning goes. */
void tri_check_tcp_buffers(const tri_machine *machine, tri_finding *finding)
{
    static const char *const names[] = {"rmem", "wmem"};
    int64_t most[2], core[2];
    bool known = true;

    TRI_FINDING_SET(finding->wanted, "16 MiB or more, for links that are fast and long");
    for (int i = 0; i < 2; i++) {
        char path[96], text[96];
        long long low, usual, high = 0;

        snprintf(path, sizeof path, "/proc/sys/net/ipv4/tcp_%s", names[i]);
        known = tri_machine_text(machine, path, text, sizeof text) &&
                sscanf(text, "%lld %lld %lld", &low, &usual, &high) == 3 && known;
        most[i] = high;
        snprintf(path, sizeof path, "/proc/sys/net/core/%s_max", names[i]);
        if (!tri_machine_number(machine, path, &core[i]))
            core[i] = 0;
    }
    if (!known) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known");
        return;
    }
    TRI_FINDING_SET(finding->found, "receive up to %s, send up to %s (rmem_max %s, wmem_max %s)",
                    tri_bytes_print(most[0]).text, tri_bytes_print(most[1]).text, tri_bytes_print(core[0]).text,
                    tri_bytes_print(core[1]).text);
    if (most[0] >= BUFFER_LONG && most[1] >= BUFFER_LONG)
        return;
    finding->result = most[0] < BUFFER_LEAST || most[1] < BUFFER_LEAST ? TRI_RESULT_WARN : TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->fix, "sudo sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432' "
                                  "net.ipv4.tcp_wmem='4096 65536 33554432' net.core.rmem_max=33554432 "
                                  "net.core.wmem_max=33554432");
}

void tri_check_slow_start(const tri_machine *machine, tri_finding *finding)
{
    int64_t on;

    TRI_FINDING_SET(finding->wanted, "0: each step would begin slowly on a long link");
    if (!tri_machine_number(machine, "/proc/sys/net/ipv4/tcp_slow_start_after_idle", &on)) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known");
        return;
    }
    TRI_FINDING_SET(finding->found, "net.ipv4.tcp_slow_start_after_idle = %lld", (long long)on);
    if (on == 0)
        return;
    finding->result = TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->fix, "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0");
}

void tri_check_ktls(const tri_machine *machine, tri_finding *finding)
{
    char list[128];

    TRI_FINDING_SET(finding->wanted, "tls, for comm.encrypt by the kernel");
    if (!tri_machine_text(machine, "/proc/sys/net/ipv4/tcp_available_ulp", list, sizeof list)) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not known");
        return;
    }
    TRI_FINDING_SET(finding->found, "%s", strstr(list, "tls") ? "loaded" : "not loaded");
    if (strstr(list, "tls"))
        return;
    finding->result = TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->fix, "sudo modprobe tls");
}

void tri_check_zerocopy(const tri_machine *machine, tri_finding *finding)
{
    const char *why = machine->probe.zerocopy;

    TRI_FINDING_SET(finding->wanted, "a socket takes SO_ZEROCOPY (Linux 4.14), for large sends");
    TRI_FINDING_SET(finding->found, "%s", why[0] ? why : "works");
    if (why[0])
        finding->result = TRI_RESULT_NOTE;
}
