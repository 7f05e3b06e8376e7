/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h: what NVIDIA's management library says of cards: figures, faults, who uses them. It is loaded when somebody
 * first asks; without it nothing is known, and nothing else changes.
 */
#ifndef TRI_DEVICE_CUDA_NVML_H
#define TRI_DEVICE_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef int nvml_result; /* 0: done */
typedef struct nvml_device_object *nvml_device;
typedef struct nvml_events_object *nvml_events;

enum {
    NVML_NOT_SUPPORTED = 3,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_VERSION_MISMATCH = 18
};
enum {
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEMORY = 2,
    NVML_ECC_UNCORRECTED = 1,
    NVML_ECC_VOLATILE = 0,
    NVML_ECC_AGGREGATE = 1
};
enum { NVML_EVENT_DOUBLE_BIT_ECC = 2, NVML_EVENT_XID = 8 };
/* Why clocks are low, of bits: what is wrong with a card, not what somebody has set. */
enum { NVML_SLOW_HARDWARE = 0x8, NVML_SLOW_HEAT_SOFTWARE = 0x20, NVML_SLOW_HEAT = 0x40, NVML_SLOW_POWER_BRAKE = 0x80 };

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent */
} nvml_utilization;
typedef struct nvml_process {
    unsigned pid;
    unsigned long long used; /* bytes; all ones: not known */
    unsigned gpu_instance, compute_instance;
} nvml_process;
typedef struct nvml_event {
    nvml_device device;
    unsigned long long type, data; /* data: the number of an Xid */
    unsigned gpu_instance, compute_instance;
} nvml_event;

/* symbol, name here, arguments; those of the second list are in no driver for ever: NULL without them */
#define TRI_NVML_CALLS(X)                                                                                              \
    X(nvmlInit_v2, init, (void))                                                                                       \
    X(nvmlSystemGetDriverVersion, driver, (char *text, unsigned nbytes))                                               \
    X(nvmlDeviceGetCount_v2, count, (unsigned *count))                                                                 \
    X(nvmlDeviceGetHandleByIndex_v2, at_index, (unsigned index, nvml_device *device))                                  \
    X(nvmlDeviceGetHandleByUUID, at_uuid, (const char *uuid, nvml_device *device))                                     \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, whole_of, (nvml_device instance, nvml_device * card))              \
    X(nvmlDeviceGetName, name, (nvml_device device, char *text, unsigned nbytes))                                      \
    X(nvmlDeviceGetMemoryInfo, memory, (nvml_device device, nvml_memory * memory))                                     \
    X(nvmlDeviceGetUtilizationRates, utilization, (nvml_device device, nvml_utilization * rates))                      \
    X(nvmlDeviceGetPowerUsage, power, (nvml_device device, unsigned *milliwatts))                                      \
    X(nvmlDeviceGetClockInfo, clock, (nvml_device device, int type, unsigned *mhz))                                    \
    X(nvmlDeviceGetTotalEccErrors, ecc, (nvml_device device, int type, int counter, unsigned long long *count))        \
    X(nvmlDeviceGetPersistenceMode, persistence, (nvml_device device, int *on))                                        \
    X(nvmlDeviceGetRemappedRows, remapped,                                                                             \
      (nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed))           \
    X(nvmlDeviceGetComputeRunningProcesses_v3, processes, (nvml_device device, unsigned *count, nvml_process *list))   \
    X(nvmlEventSetCreate, events_create, (nvml_events * events))                                                       \
    X(nvmlDeviceRegisterEvents, events_register, (nvml_device device, unsigned long long types, nvml_events events))   \
    X(nvmlEventSetWait_v2, events_wait, (nvml_events events, nvml_event * event, unsigned timeout_ms))                 \
    X(nvmlEventSetFree, events_free, (nvml_events events))
#define TRI_NVML_OLD_CALLS(X)                                                                                          \
    X(nvmlDeviceGetTemperature, temperature, (nvml_device device, int sensor, unsigned *celsius))                      \
    X(nvmlDeviceGetCurrentClocksThrottleReasons, slow_reasons, (nvml_device device, unsigned long long *reasons))

typedef struct tri_nvml_calls {
#define TRI_NVML_FIELD(symbol, name, args) nvml_result(*name) args;
    TRI_NVML_CALLS(TRI_NVML_FIELD) TRI_NVML_OLD_CALLS(TRI_NVML_FIELD)
#undef TRI_NVML_FIELD
} tri_nvml_calls;

/* Ready to use; stays loaded. TRI_EUNSUPPORTED: the sentence says why there is none. Any thread. */
tri_status tri_nvml_load(const tri_nvml_calls **out);

/* X(name, type, help): figures of a card, `trireme_gpu_NAME` of /metrics. NaN: not known. */
#define TRI_CARD_LIST(X)                                                                                               \
    X(utilization_ratio, "gauge", "fraction of the last moments in which the card ran a kernel")                       \
    X(memory_used_bytes, "gauge", "memory of the card that is taken, by all processes")                                \
    X(memory_total_bytes, "gauge", "memory of the card")                                                               \
    X(power_watts, "gauge", "power that the card draws")                                                               \
    X(temperature_celsius, "gauge", "temperature of the card")                                                         \
    X(sm_clock_hertz, "gauge", "clock of the card's multiprocessors")                                                  \
    X(memory_clock_hertz, "gauge", "clock of the card's memory")                                                       \
    X(throttled, "gauge", "1: heat or power slows the card down")                                                      \
    X(ecc_uncorrected_total, "counter", "errors of the card's memory that ECC could not correct, since its reset")     \
    X(ecc_uncorrected_lifetime_total, "counter", "the same since the card was made")                                   \
    X(xid_errors_total, "counter", "Xid errors of the card since this process began")                                  \
    X(last_xid, "gauge", "number of the last one")
typedef struct tri_card_figures {
#define TRI_CARD_FIELD(name, type, help) double name;
    TRI_CARD_LIST(TRI_CARD_FIELD)
#undef TRI_CARD_FIELD
} tri_card_figures;

typedef struct tri_card_user {
    int pid;
    double nbytes; /* NaN: not known */
} tri_card_user;

#define TRI_CARD_USERS 16 /* that are listed */
/* One card as the doctor sees it. */
typedef struct tri_card_health {
    char name[96], driver[80];
    tri_card_figures figures;
    uint64_t slow_reasons;          /* NVML_SLOW_* */
    bool persistent;                /* the driver stays loaded when nobody uses the card */
    bool rows_pending, rows_failed; /* memory to be replaced by spare rows at the next reset; there is none left */
    tri_card_user users[TRI_CARD_USERS];
    int user_count; /* of all */
} tri_card_health;

/* Cards of this machine in NVML's order, at most `capacity`; the number of them all. */
tri_status tri_nvml_cards(tri_card_health *cards, int capacity, int *count);
/* The card, or the instance of one (MIG), of a tri_cuda_card's id. Of an instance: its name, its memory and who uses
 * it; the rest is the card's, of which NVML does not tell the use then. */
tri_status tri_nvml_card_find(const char *id, tri_card_health *card);
/* All of them: not known. */
tri_card_figures tri_card_figures_none(void);
/* "heat", or what else slows a card down by these reasons; NULL: nothing that is wrong. */
const char *tri_card_slow_reason(uint64_t reasons);
/* What an Xid means and what helps, in a few words; never NULL. */
const char *tri_xid_text(unsigned long long xid);

/* --- a card in use --- */

/* Reads a card's figures once a second, and hears of its faults at once, on a thread of its own. */
typedef struct tri_card_monitor tri_card_monitor;
/* name, place: how lines call the card ("cuda:0") and where it is (its PCI address). report: of that thread, one
 * sentence for each fault; it is also in the log. */
tri_status tri_card_monitor_open(const char *name, const char *place, const char *id,
                                 void (*report)(void *arg, const char *sentence), void *arg, tri_card_monitor **out);
/* NULL does nothing. */
void tri_card_monitor_close(tri_card_monitor *monitor);
/* The newest figures of the monitor that this process has opened; false: there is none. Any thread, never waits. */
bool tri_card_figures_now(tri_card_figures *out);

#endif
