/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvml.c: a libnvidia-ml.so.1 with the cards of fake_cuda.c (FAKE_CUDA_CARDS): found by the same dlopen
 * (LD_LIBRARY_PATH).
 *
 * With `mig` in FAKE_CUDA these are instances of one card, which the list has alone: an instance has memory of its own
 * and a name, the card all else but its use. It refuses what NVIDIA's does: calls before nvmlInit, cards that are not
 * there, events that a card cannot have, lists that are too short. FAKE_NVML has facts of the first card, with commas
 * between: no_start (as without a driver), mismatch, no_ecc, ecc=COUNT of errors, rows=pending or failed, slow=BITS,
 * user=PID that has 1 GiB, not_persistent; xid=NUMBER@PATH and lost@PATH: once, when somebody has made the file PATH
 * and this process removes it first; double_bit@PATH: the same, with one error more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/nvml.h"
#include "gpu/fake_words.h"

#define CARDS  16 /* at most */
#define EXPORT __attribute__((visibility("default")))
enum { UNINITIALIZED = 1, INVALID = 2, NOT_FOUND = 6, TOO_SHORT = 7 };

struct nvml_device_object {
    int index;
};
struct nvml_events_object {
    unsigned long long types[CARDS];
};

static struct nvml_device_object cards[CARDS], instances[CARDS];
static int started;
static unsigned long long more_errors; /* since the process began */

static const char *value_of(const char *fact, char value[FAKE_VALUE_NBYTES])
{
    return fake_value("FAKE_NVML", fact, value);
}

static bool has(const char *fact)
{
    return fake_has("FAKE_NVML", fact);
}

static int card_count(void)
{
    const char *given = getenv("FAKE_CUDA_CARDS");
    const int count = given ? atoi(given) : 2;
    return count < CARDS ? count : CARDS;
}

static bool is_instance(nvml_device device)
{
    return device >= instances && device < instances + CARDS;
}

static bool has_instances(void)
{
    return fake_has("FAKE_CUDA", "mig");
}

static nvml_result known(nvml_device device)
{
    return !started ? UNINITIALIZED : device >= cards && device < cards + card_count() ? 0 : INVALID;
}

static nvml_result any_known(nvml_device device)
{
    return started && is_instance(device) ? 0 : known(device);
}

static nvml_result text_set(char *text, unsigned nbytes, const char *words)
{
    if (!started)
        return UNINITIALIZED;
    return (unsigned)snprintf(text, nbytes, "%s", words) < nbytes ? 0 : TOO_SHORT;
}

/* Each with the arguments of its row. */
#define DECLARE(symbol, name, args) EXPORT nvml_result symbol args;
TRI_NVML_CALLS(DECLARE)
TRI_NVML_OLD_CALLS(DECLARE)

nvml_result nvmlInit_v2(void)
{
    started = !has("no_start") && !has("mismatch");
    return started ? 0 : has("mismatch") ? NVML_VERSION_MISMATCH : NVML_DRIVER_NOT_LOADED;
}

nvml_result nvmlSystemGetDriverVersion(char *text, unsigned nbytes)
{
    return text_set(text, nbytes, "580.65.06");
}

nvml_result nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = has_instances() ? 1 : (unsigned)card_count();
    return started ? 0 : UNINITIALIZED;
}

nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    if (index >= (unsigned)card_count())
        return INVALID;
    *device = &cards[index];
    cards[index].index = (int)index;
    return known(*device);
}

/* As fake_cuda.c has them. */
nvml_result nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
    char own[64];
    for (int i = 0; i < card_count(); i++) {
        snprintf(own, sizeof(own), "%s-face0000-0000-0000-0000-%012x", has_instances() ? "MIG" : "GPU", i);
        *device = has_instances() ? &instances[i] : &cards[i];
        (*device)->index = i;
        if (strcmp(own, uuid) == 0)
            return any_known(*device);
    }
    return started ? NOT_FOUND : UNINITIALIZED;
}

nvml_result nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_device instance, nvml_device *card)
{
    *card = &cards[0];
    return is_instance(instance) ? known(*card) : INVALID;
}

nvml_result nvmlDeviceGetName(nvml_device device, char *text, unsigned nbytes)
{
    return any_known(device) != 0
               ? any_known(device)
               : text_set(text, nbytes, is_instance(device) ? "Emulated card" FAKE_INSTANCE_NAME : "Emulated card");
}

nvml_result nvmlDeviceGetMemoryInfo(nvml_device device, nvml_memory *memory)
{
    const unsigned long long gib = has_instances() && !is_instance(device) ? 8ull * (unsigned)card_count() : 8;
    *memory = (nvml_memory){.total = gib << 30, .used = 1ull << 30, .free = (gib - 1) << 30};
    return any_known(device);
}

nvml_result nvmlDeviceGetUtilizationRates(nvml_device device, nvml_utilization *rates)
{
    *rates = (nvml_utilization){.gpu = 87, .memory = 40};
    return has_instances() ? NVML_NOT_SUPPORTED : known(device);
}

nvml_result nvmlDeviceGetPowerUsage(nvml_device device, unsigned *milliwatts)
{
    *milliwatts = 412500;
    return known(device);
}

nvml_result nvmlDeviceGetClockInfo(nvml_device device, int type, unsigned *mhz)
{
    *mhz = type == NVML_CLOCK_SM ? 1755 : 2619;
    return type == NVML_CLOCK_SM || type == NVML_CLOCK_MEMORY ? known(device) : INVALID;
}

nvml_result nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter, unsigned long long *count)
{
    char value[FAKE_VALUE_NBYTES];
    if (known(device) != 0 || type < 0 || type > 1 || counter < 0 || counter > 1)
        return known(device) != 0 ? known(device) : INVALID;
    if (has("no_ecc"))
        return NVML_NOT_SUPPORTED;
    *count = (device->index == 0 && value_of("ecc", value) ? strtoull(value, NULL, 10) : 0) + more_errors;
    return 0;
}

nvml_result nvmlDeviceGetPersistenceMode(nvml_device device, int *on)
{
    *on = !has("not_persistent");
    return known(device);
}

nvml_result nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                      unsigned *failed)
{
    char value[FAKE_VALUE_NBYTES];
    const char *rows = value_of("rows", value);
    *corrected = *uncorrected = 0;
    *pending = rows && strcmp(rows, "pending") == 0;
    *failed = rows && strcmp(rows, "failed") == 0;
    return has("no_ecc") ? NVML_NOT_SUPPORTED : known(device);
}

nvml_result nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count, nvml_process *list)
{
    char value[FAKE_VALUE_NBYTES];
    const unsigned users = any_known(device) == 0 && device->index == 0 && value_of("user", value);
    const unsigned room = *count;
    *count = users;
    if (room < users)
        return TOO_SHORT;
    for (unsigned i = 0; i < users; i++)
        list[i] = (nvml_process){.pid = (unsigned)atoi(value), .used = 1ull << 30};
    return any_known(device);
}

nvml_result nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius)
{
    *celsius = 61;
    return sensor == 0 ? known(device) : INVALID;
}

nvml_result nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons)
{
    char value[FAKE_VALUE_NBYTES];
    *reasons = value_of("slow", value) ? strtoull(value, NULL, 0) : 0;
    return known(device);
}

/* --- events --- */

nvml_result nvmlEventSetCreate(nvml_events *events)
{
    *events = started ? calloc(1, sizeof(**events)) : NULL;
    return started ? 0 : UNINITIALIZED;
}

nvml_result nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, nvml_events events)
{
    if (known(device) != 0 || !events)
        return INVALID;
    if ((types & NVML_EVENT_DOUBLE_BIT_ECC) && has("no_ecc"))
        return NVML_NOT_SUPPORTED;
    events->types[device->index] |= types;
    return 0;
}

static int is_now(const char *path)
{
    return path && unlink(path) == 0;
}

/* Of the card that has registered for the type. */
static nvml_result event_find(nvml_events events, nvml_event *event)
{
    char value[FAKE_VALUE_NBYTES], xid_value[FAKE_VALUE_NBYTES];
    const char *xid = value_of("xid", xid_value);
    const unsigned long long number = xid ? strtoull(xid, NULL, 10) : 0;
    for (int i = 0; i < CARDS; i++) {
        if (xid && (events->types[i] & NVML_EVENT_XID) && is_now(strchr(xid, '@') ? strchr(xid, '@') + 1 : NULL)) {
            *event = (nvml_event){&cards[i], NVML_EVENT_XID, number, ~0u, ~0u};
            return 0;
        }
        if ((events->types[i] & NVML_EVENT_DOUBLE_BIT_ECC) && is_now(value_of("double_bit", value))) {
            more_errors++;
            *event = (nvml_event){&cards[i], NVML_EVENT_DOUBLE_BIT_ECC, 0, ~0u, ~0u};
            return 0;
        }
    }
    return is_now(value_of("lost", value)) ? NVML_GPU_IS_LOST : NVML_TIMEOUT;
}

nvml_result nvmlEventSetWait_v2(nvml_events events, nvml_event *event, unsigned timeout_ms)
{
    nvml_result result = started ? event_find(events, event) : UNINITIALIZED;
    for (unsigned ms = 0; result == NVML_TIMEOUT && ms < timeout_ms; ms += 5) {
        usleep(5000);
        result = event_find(events, event);
    }
    return result;
}

nvml_result nvmlEventSetFree(nvml_events events)
{
    free(events);
    return started ? 0 : UNINITIALIZED;
}
