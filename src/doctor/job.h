/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h: the rows of tri_job_checks, and what they share.
 */
#ifndef TRI_DOCTOR_JOB_H
#define TRI_DOCTOR_JOB_H

#include "doctor/files.h"

/* The first of a rank's addresses that is not loopback; false: there is none. */
bool tri_rank_address(const tri_rank_facts *rank, char address[64]);

void tri_check_ranks(const tri_job_facts *job, tri_finding *finding);
void tri_check_links(const tri_job_facts *job, tri_finding *finding);
void tri_check_latency(const tri_job_facts *job, tri_finding *finding);
void tri_check_bandwidth(const tri_job_facts *job, tri_finding *finding);
void tri_check_skew(const tri_job_facts *job, tri_finding *finding);
void tri_check_rank_cores(const tri_job_facts *job, tri_finding *finding);
void tri_check_kernels_alike(const tri_job_facts *job, tri_finding *finding);
void tri_check_mtu_alike(const tri_job_facts *job, tri_finding *finding);
void tri_check_own_addresses(const tri_job_facts *job, tri_finding *finding);

#endif
