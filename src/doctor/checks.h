/* SPDX-License-Identifier: Apache-2.0
 *
 * checks.h: the rows of tri_machine_checks and tri_card_checks.
 */
#ifndef TRI_DOCTOR_CHECKS_H
#define TRI_DOCTOR_CHECKS_H

#include "doctor/files.h"

void tri_check_open_files(const tri_machine *machine, tri_finding *finding);
void tri_check_processes(const tri_machine *machine, tri_finding *finding);
void tri_check_locked_memory(const tri_machine *machine, tri_finding *finding);
void tri_check_address_space(const tri_machine *machine, tri_finding *finding);
void tri_check_file_length(const tri_machine *machine, tri_finding *finding);
void tri_check_core_files(const tri_machine *machine, tri_finding *finding);

void tri_check_free_memory(const tri_machine *machine, tri_finding *finding);
void tri_check_memory_group(const tri_machine *machine, tri_finding *finding);
void tri_check_overcommit(const tri_machine *machine, tri_finding *finding);
void tri_check_maps(const tri_machine *machine, tri_finding *finding);
void tri_check_shm_folder(const tri_machine *machine, tri_finding *finding);
void tri_check_huge_anonymous(const tri_machine *machine, tri_finding *finding);
void tri_check_huge_shared(const tri_machine *machine, tri_finding *finding);
void tri_check_huge_reserved(const tri_machine *machine, tri_finding *finding);
void tri_check_shared_memory(const tri_machine *machine, tri_finding *finding);
void tri_check_peek(const tri_machine *machine, tri_finding *finding);

void tri_check_loopback(const tri_machine *machine, tri_finding *finding);
void tri_check_interfaces(const tri_machine *machine, tri_finding *finding);
void tri_check_chosen(const tri_machine *machine, tri_finding *finding);
void tri_check_link_speed(const tri_machine *machine, tri_finding *finding);
void tri_check_tcp_buffers(const tri_machine *machine, tri_finding *finding);
void tri_check_slow_start(const tri_machine *machine, tri_finding *finding);
void tri_check_ktls(const tri_machine *machine, tri_finding *finding);
void tri_check_zerocopy(const tri_machine *machine, tri_finding *finding);
/* The interface of the first address that other hosts try; false: there is none. */
bool tri_machine_chosen(const tri_machine *machine, char name[16]);
/* A number of /sys/class/net/NAME/, -1 when it is not known. */
int64_t tri_interface_number(const tri_machine *machine, const char *name, const char *file);

void tri_check_cores(const tri_machine *machine, tri_finding *finding);
void tri_check_quota(const tri_machine *machine, tri_finding *finding);
void tri_check_caches(const tri_machine *machine, tri_finding *finding);
void tri_check_instructions(const tri_machine *machine, tri_finding *finding);
void tri_check_governor(const tri_machine *machine, tri_finding *finding);
void tri_check_load(const tri_machine *machine, tri_finding *finding);

/* Fills machine->cards; without NVML nothing is there. */
tri_status tri_machine_cards_read(tri_machine *machine);
void tri_check_card_driver(const tri_machine *machine, tri_finding *finding);
void tri_check_card_errors(const tri_machine *machine, tri_finding *finding);
void tri_check_card_clocks(const tri_machine *machine, tri_finding *finding);
void tri_check_card_users(const tri_machine *machine, tri_finding *finding);
void tri_check_card_persistence(const tri_machine *machine, tri_finding *finding);

#endif
