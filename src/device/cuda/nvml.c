/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c: loads NVML and asks it about cards. What a card does not tell (ECC of a card without it) is not known.
 */
#include "device/cuda/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "device/cuda/once.h"

#define LIBRARY "libnvidia-ml.so.1"

static tri_status find_calls(void *library, tri_nvml_calls *calls)
{
#define FIND(symbol, name, args)                                                                                       \
    calls->name = (nvml_result(*) args)dlsym(library, #symbol);                                                        \
    if (!calls->name)                                                                                                  \
        return tri_fail(TRI_EUNSUPPORTED, "%s has no %s: want a driver for CUDA 12 or later", LIBRARY, #symbol);
    TRI_NVML_CALLS(FIND)
#undef FIND
#define FIND(symbol, name, args) calls->name = (nvml_result(*) args)dlsym(library, #symbol);
    TRI_NVML_OLD_CALLS(FIND)
#undef FIND
    return TRI_OK;
}

static tri_status start(const tri_nvml_calls *calls)
{
    const nvml_result result = calls->init();
    if (result == NVML_DRIVER_NOT_LOADED)
        return tri_fail(TRI_EUNSUPPORTED, "NVML: NVIDIA's driver is not loaded");
    if (result == NVML_VERSION_MISMATCH)
        return tri_fail(TRI_EUNSUPPORTED, "NVML: the driver that is loaded has another version than its libraries");
    return result == 0 ? TRI_OK : tri_fail(TRI_EUNSUPPORTED, "NVML cannot start: error %d", result);
}

static tri_status calls_load(bool emulated, void *calls)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    (void)emulated; /* the fake has the same name */
    if (!library)
        return tri_fail(TRI_EUNSUPPORTED, "there is no NVML (%s)", LIBRARY);
    TRI_TRY(find_calls(library, calls));
    return start(calls);
}

tri_status tri_nvml_load(const tri_nvml_calls **out)
{
    static tri_nvml_calls calls;
    static tri_cuda_once once = {.mutex = {.real = PTHREAD_MUTEX_INITIALIZER}};
    *out = &calls;
    return tri_cuda_load_once(&once, calls_load, false, &calls);
}

/* whole: the card; part: the instance of it (MIG) that a process has, or all of it. */
typedef struct card_handles {
    nvml_device whole, part;
} card_handles;

static tri_status card_find(const tri_nvml_calls *calls, const char *id, card_handles *out)
{
    char uuid[64];
    snprintf(uuid, sizeof(uuid), "GPU-%s", id);
    nvml_result result = calls->at_uuid(uuid, &out->whole);
    out->part = out->whole;
    if (result == 0)
        return TRI_OK;
    snprintf(uuid, sizeof(uuid), "MIG-%s", id);
    result = calls->at_uuid(uuid, &out->part);
    result = result == 0 ? calls->whole_of(out->part, &out->whole) : result;
    return result == 0 ? TRI_OK : tri_fail(TRI_EUNSUPPORTED, "NVML does not know the card %s", id);
}

/* --- figures --- */

tri_card_figures tri_card_figures_none(void)
{
    return (tri_card_figures){
#define NONE(name, type, help) .name = (double)NAN,
        TRI_CARD_LIST(NONE)
#undef NONE
    };
}

static double clock_read(const tri_nvml_calls *calls, nvml_device device, int type)
{
    unsigned mhz;
    return calls->clock(device, type, &mhz) == 0 ? mhz * 1e6 : (double)NAN;
}

static double ecc_read(const tri_nvml_calls *calls, nvml_device device, int counter)
{
    unsigned long long count;
    return calls->ecc(device, NVML_ECC_UNCORRECTED, counter, &count) == 0 ? (double)count : (double)NAN;
}

static uint64_t slow_read(const tri_nvml_calls *calls, nvml_device device, bool *known)
{
    unsigned long long reasons = 0;
    *known = calls->slow_reasons && calls->slow_reasons(device, &reasons) == 0;
    return *known ? reasons : 0;
}

const char *tri_card_slow_reason(uint64_t reasons)
{
    if (reasons & (NVML_SLOW_HEAT | NVML_SLOW_HEAT_SOFTWARE))
        return "heat";
    if (reasons & NVML_SLOW_POWER_BRAKE)
        return "the power supply (power brake)";
    return reasons & NVML_SLOW_HARDWARE ? "heat or power (hardware slowdown)" : NULL;
}

/* Events are the monitor's. */
static void figures_read(const tri_nvml_calls *calls, card_handles card, tri_card_figures *out)
{
    const nvml_device device = card.whole;
    nvml_memory memory;
    nvml_utilization rates;
    unsigned value;
    bool known;
    *out = tri_card_figures_none();
    if (calls->utilization(device, &rates) == 0)
        out->utilization_ratio = rates.gpu / 100.0;
    if (calls->memory(card.part, &memory) == 0) {
        out->memory_used_bytes = (double)memory.used;
        out->memory_total_bytes = (double)memory.total;
    }
    if (calls->power(device, &value) == 0)
        out->power_watts = value / 1e3;
    if (calls->temperature && calls->temperature(device, 0, &value) == 0)
        out->temperature_celsius = value;
    out->sm_clock_hertz = clock_read(calls, device, NVML_CLOCK_SM);
    out->memory_clock_hertz = clock_read(calls, device, NVML_CLOCK_MEMORY);
    out->ecc_uncorrected_total = ecc_read(calls, device, NVML_ECC_VOLATILE);
    out->ecc_uncorrected_lifetime_total = ecc_read(calls, device, NVML_ECC_AGGREGATE);
    const uint64_t reasons = slow_read(calls, device, &known);
    if (known)
        out->throttled = tri_card_slow_reason(reasons) != NULL;
}

/* --- health --- */

static void users_read(const tri_nvml_calls *calls, nvml_device device, tri_card_health *card)
{
    nvml_process list[TRI_CARD_USERS];
    unsigned count = TRI_CARD_USERS;
    const nvml_result result = calls->processes(device, &count, list);
    card->user_count = result == 0 || count > TRI_CARD_USERS ? (int)count : 0; /* more than fit: how many */
    for (unsigned i = 0; result == 0 && i < count && i < TRI_CARD_USERS; i++)
        card->users[i] =
            (tri_card_user){(int)list[i].pid, list[i].used == UINT64_MAX ? (double)NAN : (double)list[i].used};
}

static void health_read(const tri_nvml_calls *calls, card_handles handles, tri_card_health *card)
{
    const nvml_device device = handles.whole;
    unsigned corrected, uncorrected, pending = 0, failed = 0;
    int on = 0;
    bool known;
    *card = (tri_card_health){.persistent = true};
    (void)calls->name(handles.part, card->name, sizeof(card->name));
    (void)calls->driver(card->driver, sizeof(card->driver));
    figures_read(calls, handles, &card->figures);
    card->slow_reasons = slow_read(calls, device, &known);
    if (calls->persistence(device, &on) == 0)
        card->persistent = on != 0;
    if (calls->remapped(device, &corrected, &uncorrected, &pending, &failed) == 0) {
        card->rows_pending = pending != 0;
        card->rows_failed = failed != 0;
    }
    users_read(calls, handles.part, card);
}

tri_status tri_nvml_cards(tri_card_health *cards, int capacity, int *count)
{
    const tri_nvml_calls *calls;
    unsigned all = 0;
    *count = 0;
    TRI_TRY(tri_nvml_load(&calls));
    if (calls->count(&all) != 0)
        return tri_fail(TRI_EUNSUPPORTED, "NVML does not list the cards");
    for (unsigned i = 0; i < all && *count < capacity; i++) {
        nvml_device device;
        if (calls->at_index(i, &device) == 0)
            health_read(calls, (card_handles){device, device}, &cards[(*count)++]);
    }
    return TRI_OK;
}

tri_status tri_nvml_card_find(const char *id, tri_card_health *card)
{
    const tri_nvml_calls *calls;
    card_handles handles;
    TRI_TRY(tri_nvml_load(&calls));
    TRI_TRY(card_find(calls, id, &handles));
    health_read(calls, handles, card);
    return TRI_OK;
}

/* --- Xid errors, by NVIDIA's table --- */

const char *tri_xid_text(unsigned long long xid)
{
    static const struct {
        unsigned xid;
        const char *text;
    } rows[] = {
        {13, "a kernel failed in the graphics engine: mostly an access out of range; the process that ran it ends"},
        {31, "a kernel accessed memory that is not there (page fault); the process that ran it ends"},
        {43, "the card stopped the work of a process after a fault of its software; the process ends"},
        {45, "the card drops the work of a process, maybe another one, since it ended or failed before"},
        {48, "a double-bit error of the card's memory, which ECC cannot correct: reset the card"},
        {63, "a failing row of the card's memory is replaced by a spare one at the next reset"},
        {64, "a failing row of the card's memory could not be replaced: reset the card, then have it replaced"},
        {74, "an error of NVLink: check or reseat the link, reset the cards"},
        {79, "the card has fallen off the bus: reboot the machine; check power, cooling and slot"},
        {94, "an uncorrectable memory error, contained to the process that read it, which ends: reset the card soon"},
        {95, "an uncorrectable memory error that may reach all processes of the card: reset the card"},
        {119, "the card's system processor (GSP) does not answer: reset the card, or reboot the machine"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        if (rows[i].xid == xid)
            return rows[i].text;
    return "look it up in NVIDIA's list of Xid errors";
}

/* --- a card in use --- */

#define EVERY_NS TRI_NS_PER_S
#define WAIT_MS  100 /* for events; as long a close may take */

struct tri_card_monitor {
    const tri_nvml_calls *calls;
    card_handles card;
    nvml_events events; /* NULL: the card has none */
    char name[32], place[32], model[96];
    void (*report)(void *arg, const char *sentence);
    void *arg;
    tri_thread *thread;
    tri_mutex mutex;
    tri_cond cond;
    bool closing, lost;
    double xid_count, last_xid; /* so far */
    double ecc_count;           /* when figures were read last */
};

static tri_mutex newest_mutex = {.real = PTHREAD_MUTEX_INITIALIZER};
static tri_card_figures newest;
static int monitors; /* that are open */

static void monitors_add(int count)
{
    tri_mutex_lock(&newest_mutex);
    if (monitors == 0)
        newest = tri_card_figures_none();
    monitors += count;
    tri_mutex_unlock(&newest_mutex);
}

bool tri_card_figures_now(tri_card_figures *out)
{
    tri_mutex_lock(&newest_mutex);
    const bool known = monitors > 0;
    *out = newest;
    tri_mutex_unlock(&newest_mutex);
    return known;
}

static void __attribute__((format(printf, 3, 4)))
tell(const tri_card_monitor *monitor, tri_log_level level, const char *format, ...)
{
    char fault[400], sentence[600], label[24];
    const int rank = tri_log_who_now().rank;
    va_list args;
    va_start(args, format);
    vsnprintf(fault, sizeof(fault), format, args);
    va_end(args);
    snprintf(sentence, sizeof(sentence), "%s (%s at %s): %s", monitor->name, monitor->model, monitor->place, fault);
    snprintf(label, sizeof(label), "rank %d", rank);
    if (rank >= 0) /* it may be another one than before */
        tri_log_label_set(label);
    tri_log(level, "%s", sentence);
    if (monitor->report)
        monitor->report(monitor->arg, sentence);
}

static void sample(tri_card_monitor *monitor)
{
    tri_card_figures figures;
    figures_read(monitor->calls, monitor->card, &figures);
    figures.xid_errors_total = monitor->xid_count;
    figures.last_xid = monitor->last_xid;
    if (figures.ecc_uncorrected_total > monitor->ecc_count)
        tell(monitor, TRI_LOG_ERROR, "%.0f errors of its memory so far that ECC could not correct: reset the card",
             figures.ecc_uncorrected_total);
    if (!isnan(figures.ecc_uncorrected_total))
        monitor->ecc_count = figures.ecc_uncorrected_total;
    tri_mutex_lock(&newest_mutex);
    newest = figures;
    tri_mutex_unlock(&newest_mutex);
}

/* Whether something came; waits for it a while. */
static bool event_wait(tri_card_monitor *monitor, nvml_event *event)
{
    const nvml_result result =
        monitor->events ? monitor->calls->events_wait(monitor->events, event, WAIT_MS) : NVML_TIMEOUT;
    if (result == NVML_GPU_IS_LOST && !monitor->lost) {
        monitor->lost = true;
        tell(monitor, TRI_LOG_ERROR, "%s", tri_xid_text(79));
    }
    if (result == 0)
        return true;
    if (result != NVML_TIMEOUT || !monitor->events) {
        tri_mutex_lock(&monitor->mutex);
        if (!monitor->closing)
            (void)tri_cond_wait(&monitor->cond, &monitor->mutex, tri_deadline_after_ms(WAIT_MS));
        tri_mutex_unlock(&monitor->mutex);
    }
    return false;
}

static bool is_closing(tri_card_monitor *monitor)
{
    tri_mutex_lock(&monitor->mutex);
    const bool closing = monitor->closing;
    tri_mutex_unlock(&monitor->mutex);
    return closing;
}

/* Of whichever process uses the card; all others hear of it too. */
static bool is_of_a_process(unsigned long long xid)
{
    return xid == 13 || xid == 31 || xid == 43 || xid == 45;
}

static void monitor_body(void *arg)
{
    tri_card_monitor *monitor = arg;
    int64_t next_ns = tri_now_ns() + EVERY_NS;
    while (!is_closing(monitor)) {
        nvml_event event = {0};
        const bool came = event_wait(monitor, &event), is_xid = came && event.type == NVML_EVENT_XID;
        if (!came && tri_now_ns() < next_ns)
            continue;
        monitor->xid_count += is_xid;
        monitor->last_xid = is_xid ? (double)event.data : monitor->last_xid;
        next_ns = tri_now_ns() + EVERY_NS;
        sample(monitor);
        if (is_xid) /* who hears of it finds it in the figures */
            tell(monitor, is_of_a_process(event.data) ? TRI_LOG_WARN : TRI_LOG_ERROR, "Xid %llu: %s", event.data,
                 tri_xid_text(event.data));
    }
}

static tri_status monitor_start(tri_card_monitor *monitor, const char *id)
{
    TRI_TRY(tri_nvml_load(&monitor->calls));
    const tri_nvml_calls *calls = monitor->calls;
    TRI_TRY(card_find(calls, id, &monitor->card));
    const nvml_device device = monitor->card.whole; /* faults are heard of the card alone */
    (void)calls->name(monitor->card.part, monitor->model, sizeof(monitor->model));
    if (calls->events_create(&monitor->events) != 0)
        monitor->events = NULL;
    else if (calls->events_register(device, NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT_ECC, monitor->events) != 0 &&
             calls->events_register(device, NVML_EVENT_XID, monitor->events) != 0) { /* a card without ECC */
        (void)calls->events_free(monitor->events);
        monitor->events = NULL;
    }
    monitor->ecc_count = ecc_read(calls, device, NVML_ECC_VOLATILE); /* of before is no news */
    sample(monitor);
    return tri_thread_start(&monitor->thread, "card", monitor_body, monitor);
}

tri_status tri_card_monitor_open(const char *name, const char *place, const char *id,
                                 void (*report)(void *arg, const char *sentence), void *arg, tri_card_monitor **out)
{
    tri_card_monitor *monitor = tri_alloc_zero(1, sizeof(*monitor));
    if (!monitor)
        return TRI_ENOMEM;
    snprintf(monitor->name, sizeof(monitor->name), "%s", name);
    snprintf(monitor->place, sizeof(monitor->place), "%s", place);
    monitor->report = report;
    monitor->arg = arg;
    monitor->last_xid = (double)NAN;
    tri_mutex_init(&monitor->mutex);
    tri_cond_init(&monitor->cond);
    monitors_add(1);
    tri_status status = monitor_start(monitor, id);
    if (status == TRI_OK)
        *out = monitor;
    else
        tri_card_monitor_close(monitor);
    return status;
}

void tri_card_monitor_close(tri_card_monitor *monitor)
{
    if (!monitor)
        return;
    tri_mutex_lock(&monitor->mutex);
    monitor->closing = true;
    tri_cond_broadcast(&monitor->cond);
    tri_mutex_unlock(&monitor->mutex);
    if (monitor->thread)
        tri_thread_join(monitor->thread);
    if (monitor->events)
        (void)monitor->calls->events_free(monitor->events);
    monitors_add(-1);
    tri_cond_fini(&monitor->cond);
    tri_mutex_fini(&monitor->mutex);
    tri_free(monitor);
}
