/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.c: the table of checks of one machine.
 */

#include "doctor/checks.h"

const tri_machine_check tri_machine_checks[] = {
    {"open files", "descriptors a process may have (ulimit -n)", tri_check_open_files},
    {"processes", "processes and threads of this user and control group (ulimit -u)", tri_check_processes},
    {"locked memory", "memory a process may lock (ulimit -l)", tri_check_locked_memory},
    {"address space", "addresses and data of a process (ulimit -v, -d)", tri_check_address_space},
    {"file length", "how long a file may grow (ulimit -f)", tri_check_file_length},
    {"core files", "whether a crash leaves something to look at (ulimit -c)", tri_check_core_files},
    {"free memory", "memory that is available now", tri_check_free_memory},
    {"memory limit", "limit of the control group", tri_check_memory_group},
    {"overcommit", "whether the kernel promises more memory than it has", tri_check_overcommit},
    {"memory maps", "maps a process may have", tri_check_maps},
    {"shared memory", "a memfd between two processes, tried out", tri_check_shared_memory},
    {"/dev/shm", "size of the folder of named shared memory", tri_check_shm_folder},
    {"reading others", "process_vm_readv between two processes, tried out", tri_check_peek},
    {"huge pages", "transparent huge pages of ordinary memory", tri_check_huge_anonymous},
    {"shared huge pages", "transparent huge pages of shared memory", tri_check_huge_shared},
    {"reserved huge pages", "memory set aside for hugetlb", tri_check_huge_reserved},
    {"cores", "cores this process may use, against ranks", tri_check_cores},
    {"cpu quota", "share of the cores that the control group may use", tri_check_quota},
    {"shared cache", "caches and hardware threads of those cores", tri_check_caches},
    {"instructions", "vector instructions, and what is made of them", tri_check_instructions},
    {"frequency", "governor of the clock rate", tri_check_governor},
    {"load", "who else computes here", tri_check_load},
    {"loopback", "a connection to 127.0.0.1, tried out", tri_check_loopback},
    {"interfaces", "name, address, up, mtu, speed of each", tri_check_interfaces},
    {"interface chosen", "the one that other hosts try first, and why", tri_check_chosen},
    {"link speed", "speed, duplex and mtu of that one", tri_check_link_speed},
    {"tcp buffers", "how far the kernel's buffers of a connection grow", tri_check_tcp_buffers},
    {"slow start", "whether an idle connection begins slowly again", tri_check_slow_start},
    {"kernel tls", "encryption by the kernel", tri_check_ktls},
    {"zero copy", "sends without a copy, tried out", tri_check_zerocopy},
    {NULL, NULL, NULL},
};

const tri_machine_check tri_card_checks[] = {
    {"gpu driver", "whether a run can use the NVIDIA cards", tri_check_card_driver},
    {"gpu memory errors", "ECC errors and failing rows of their memory", tri_check_card_errors},
    {"gpu clocks", "whether heat or power slows one down", tri_check_card_clocks},
    {"gpu users", "other processes on them", tri_check_card_users},
    {"gpu persistence", "whether the driver stays loaded", tri_check_card_persistence},
    {NULL, NULL, NULL},
};

tri_status tri_machine_open(int ranks, int world, bool many_hosts, tri_machine *machine)
{
    *machine = (tri_machine){.root = "",
                             .ranks = ranks,
                             .world = world,
                             .many_hosts = many_hosts,
                             .kernels = "",
                             .interfaces = {.each = sizeof(tri_interface)},
                             .cards = {.each = sizeof(tri_card_health)}};
    tri_probe_run(&machine->probe);
    if (tri_interfaces_read(&machine->interfaces) == TRI_ENOMEM)
        return TRI_ENOMEM; /* what else fails shows as no interface */
    return tri_machine_cards_read(machine);
}

void tri_machine_close(tri_machine *machine)
{
    tri_vector_fini(&machine->interfaces);
    tri_vector_fini(&machine->cards);
}

static tri_status checks_look(const tri_machine *machine, const tri_machine_check *checks, tri_vector *findings)
{
    for (const tri_machine_check *check = checks; check->name; check++) {
        tri_finding *finding = tri_finding_add(findings, check->name, TRI_RESULT_OK);
        if (!finding)
            return TRI_ENOMEM;
        check->look(machine, finding);
    }
    return TRI_OK;
}

tri_status tri_machine_look(const tri_machine *machine, tri_vector *findings)
{
    TRI_TRY(checks_look(machine, tri_machine_checks, findings));
    return machine->cards.count > 0 ? checks_look(machine, tri_card_checks, findings) : TRI_OK;
}
