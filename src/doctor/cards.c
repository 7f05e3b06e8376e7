/* SPDX-License-Identifier: Apache-2.0
 *
 * cards.c: checks of NVIDIA cards, of what NVML says of them; without NVML or a card these rows are not there.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "device/cuda/cuda.h"
#include "doctor/checks.h"

#define MOST_CARDS 64

tri_status tri_machine_cards_read(tri_machine *machine)
{
    int driver, count = 0;
    tri_cuda_card cuda[MOST_CARDS];
    tri_card_health *cards = tri_alloc_zero(MOST_CARDS, sizeof(*cards));
    if (!cards)
        return TRI_ENOMEM;
    tri_status status = tri_nvml_cards(cards, MOST_CARDS, &count); /* none: no finding */
    for (int i = 0; i < count && status == TRI_OK; i++)
        if (!tri_vector_push(&machine->cards, &cards[i]))
            status = TRI_ENOMEM;
    tri_free(cards);
    if (machine->cards.count > 0 && tri_cuda_cards(cuda, MOST_CARDS, &count, &driver) != TRI_OK)
        snprintf(machine->cards_refused, sizeof(machine->cards_refused), "%s", tri_last_error());
    for (int i = 0; i < count && machine->cards.count > 0 && !machine->cards_refused[0]; i++)
        if (tri_cuda_card_check(&cuda[i], i) != TRI_OK)
            snprintf(machine->cards_refused, sizeof(machine->cards_refused), "%s", tri_last_error());
    return status == TRI_ENOMEM ? status : TRI_OK;
}

static const tri_card_health *card_at(const tri_machine *machine, size_t i)
{
    return tri_vector_at(&machine->cards, i);
}

/* Appends to what was found, with "; " between. */
static void __attribute__((format(printf, 2, 3))) found_add(tri_finding *finding, const char *format, ...)
{
    const size_t length = strlen(finding->found);
    va_list args;
    va_start(args, format);
    const size_t at = length > 0 && length + 2 < sizeof(finding->found) ? length + 2 : length;
    if (at > length)
        memcpy(finding->found + length, "; ", 3);
    vsnprintf(finding->found + at, sizeof(finding->found) - at, format, args);
    va_end(args);
}

static void figure_add(tri_finding *finding, double value, const char *unit)
{
    if (!isnan(value))
        found_add(finding, "%.0f %s", value, unit);
}

void tri_check_card_driver(const tri_machine *machine, tri_finding *finding)
{
    const tri_card_health *first = card_at(machine, 0);
    TRI_FINDING_SET(finding->wanted, "a driver for CUDA 12 or later, and cards of compute capability 8.0 or later");
    if (machine->cards_refused[0]) {
        finding->result = TRI_RESULT_FAIL;
        TRI_FINDING_SET(finding->found, "%s %s: %s", first->driver, first->name, machine->cards_refused);
        TRI_FINDING_SET(finding->fix,
                        "nvidia-smi     # driver, CUDA version and cards: want a newer one of what is old");
        return;
    }
    TRI_FINDING_SET(finding->found, "%zu of %s, driver %s", machine->cards.count, first->name, first->driver);
}

void tri_check_card_errors(const tri_machine *machine, tri_finding *finding)
{
    TRI_FINDING_SET(finding->wanted, "no error that ECC could not correct, and no row that waits to be replaced");
    for (size_t i = 0; i < machine->cards.count; i++) {
        const tri_card_health *card = card_at(machine, i);
        const double now = card->figures.ecc_uncorrected_total;
        if (card->rows_failed) {
            finding->result = TRI_RESULT_FAIL;
            found_add(finding, "card %zu: a failing row of its memory could not be replaced", i);
            TRI_FINDING_SET(finding->fix, "nvidia-smi -q -d ROW_REMAPPER -i %zu     # have the card replaced", i);
        }
        if (!card->rows_pending && !(now > 0))
            continue;
        tri_finding_worse(finding, TRI_RESULT_WARN);
        if (now > 0)
            found_add(finding, "card %zu: %.0f uncorrected errors since its reset", i, now);
        if (card->rows_pending)
            found_add(finding, "card %zu: a failing row is replaced at its next reset", i);
        if (!finding->fix[0])
            TRI_FINDING_SET(finding->fix, "sudo nvidia-smi --gpu-reset -i %zu     # when nobody uses it", i);
    }
    if (finding->result == TRI_RESULT_OK)
        TRI_FINDING_SET(finding->found, "none");
}

void tri_check_card_clocks(const tri_machine *machine, tri_finding *finding)
{
    TRI_FINDING_SET(finding->wanted, "no card that heat or its power supply slows down");
    for (size_t i = 0; i < machine->cards.count; i++) {
        const tri_card_health *card = card_at(machine, i);
        const char *reason = tri_card_slow_reason(card->slow_reasons);
        if (!reason)
            continue;
        finding->result = TRI_RESULT_WARN;
        found_add(finding, "card %zu: slowed down by %s", i, reason);
        figure_add(finding, card->figures.sm_clock_hertz / 1e6, "MHz");
        figure_add(finding, card->figures.temperature_celsius, "degrees");
        figure_add(finding, card->figures.power_watts, "W");
        TRI_FINDING_SET(finding->fix,
                        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i %zu     # then cooling, supply", i);
    }
    if (finding->result == TRI_RESULT_OK)
        TRI_FINDING_SET(finding->found, "none is slowed down");
}

void tri_check_card_users(const tri_machine *machine, tri_finding *finding)
{
    TRI_FINDING_SET(finding->wanted, "no other process on a card");
    for (size_t i = 0; i < machine->cards.count; i++) {
        const tri_card_health *card = card_at(machine, i);
        if (card->user_count > TRI_CARD_USERS) { /* who they are did not fit */
            finding->result = TRI_RESULT_NOTE;
            found_add(finding, "card %zu: %d processes", i, card->user_count);
            TRI_FINDING_SET(finding->fix, "nvidia-smi -i %zu     # they take memory and time of the card", i);
            continue;
        }
        for (int u = 0; u < card->user_count; u++) {
            finding->result = TRI_RESULT_NOTE;
            found_add(finding, "card %zu: process %d", i, card->users[u].pid);
            if (!isnan(card->users[u].nbytes))
                found_add(finding, "%s of it", tri_bytes_print((int64_t)card->users[u].nbytes).text);
            TRI_FINDING_SET(finding->fix, "ps -o pid,user,etime,args -p %d     # it takes memory and time of the card",
                            card->users[u].pid);
        }
    }
    if (finding->result == TRI_RESULT_OK)
        TRI_FINDING_SET(finding->found, "none");
}

void tri_check_card_persistence(const tri_machine *machine, tri_finding *finding)
{
    TRI_FINDING_SET(finding->wanted, "on: else each start of a process waits some seconds for the driver");
    TRI_FINDING_SET(finding->found, "on");
    for (size_t i = 0; i < machine->cards.count; i++) {
        if (card_at(machine, i)->persistent)
            continue;
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "off for card %zu", i);
        TRI_FINDING_SET(finding->fix, "sudo nvidia-smi -pm 1     # or the service nvidia-persistenced");
        return;
    }
}
