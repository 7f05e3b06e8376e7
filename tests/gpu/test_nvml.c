/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nvml.c: a card's figures and faults on the fake NVML: each fault is reported once, in one sentence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "base/status.h"
#include "device/cuda/nvml.h"

#define PLACE "0000:17:00.0"
#define ID    "face0000-0000-0000-0000-000000000000"
#define MODEL "Emulated card"
#define OTHER "face0000-0000-0000-0000-000000000001"

typedef struct said {
    tri_mutex mutex;
    tri_cond cond;
    int count;
    char newest[600];
} said;

static void take(void *arg, const char *sentence)
{
    said *at = arg;
    tri_mutex_lock(&at->mutex);
    at->count++;
    snprintf(at->newest, sizeof(at->newest), "%s", sentence);
    tri_cond_broadcast(&at->cond);
    tri_mutex_unlock(&at->mutex);
}

/* FAKE_NVML is read at each call of the fake. */
static void expect_fault(const char *fault, const char *wanted, const char *model)
{
    char trigger[200], fake[300], begin[80];
    unsigned number;
    said at = {.count = 0};
    tri_card_monitor *monitor = NULL;
    tri_mutex_init(&at.mutex);
    tri_cond_init(&at.cond);
    tri_entropy(&number, sizeof(number));
    snprintf(trigger, sizeof(trigger), "%s/trireme-nvml-%u", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", number);
    snprintf(fake, sizeof(fake), "%s@%s", fault, trigger);
    setenv("FAKE_NVML", fake, 1);
    assert_int_equal(tri_card_monitor_open("cuda:0", PLACE, ID, take, &at, &monitor), TRI_OK);
    assert_int_equal(tri_fs_write_atomic(trigger, "", 0), TRI_OK);
    tri_mutex_lock(&at.mutex);
    while (at.count == 0 && tri_cond_wait(&at.cond, &at.mutex, tri_deadline_after_ms(60000)))
        ;
    assert_int_equal(at.count, 1);
    tri_mutex_unlock(&at.mutex);
    tri_card_monitor_close(monitor);
    assert_int_equal(at.count, 1);
    if (!strstr(at.newest, wanted))
        fail_msg("%s: want '%s' in '%s'", fault, wanted, at.newest);
    snprintf(begin, sizeof(begin), "cuda:0 (%s at " PLACE "): ", model);
    assert_non_null(strstr(at.newest, begin));
    unsetenv("FAKE_NVML");
    tri_cond_fini(&at.cond);
    tri_mutex_fini(&at.mutex);
}

static void faults_are_one_sentence(void **state)
{
    (void)state;
    expect_fault("xid=79", "Xid 79: the card has fallen off the bus: reboot the machine", MODEL);
    expect_fault("xid=12345", "Xid 12345: look it up in NVIDIA's list", MODEL);
    expect_fault("double_bit", "1 errors of its memory so far that ECC could not correct", MODEL);
    expect_fault("lost", "the card has fallen off the bus", MODEL);
}

static void common_xids_have_a_meaning(void **state)
{
    static const unsigned numbers[] = {13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119};
    const char *other = tri_xid_text(12345);
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(numbers); i++)
        assert_string_not_equal(tri_xid_text(numbers[i]), other);
}

static void figures_are_those_of_an_open_monitor(void **state)
{
    tri_card_figures figures;
    tri_card_monitor *monitor = NULL;
    (void)state;
    assert_false(tri_card_figures_now(&figures));
    setenv("FAKE_NVML", "no_ecc,slow=0x4", 1); /* a power cap that somebody has set */
    assert_int_equal(tri_card_monitor_open("cuda:0", PLACE, ID, NULL, NULL, &monitor), TRI_OK);
    assert_true(tri_card_figures_now(&figures));
    assert_true(figures.utilization_ratio == 0.87 && figures.power_watts == 412.5 && figures.throttled == 0);
    assert_true(figures.sm_clock_hertz == 1755e6 && figures.temperature_celsius == 61);
    assert_true(isnan(figures.ecc_uncorrected_total) && isnan(figures.last_xid));
    tri_card_monitor_close(monitor);
    assert_false(tri_card_figures_now(&figures));
    unsetenv("FAKE_NVML");
}

/* With two of them. */
static void an_instance_has_its_own_memory_and_what_the_card_knows(void **state)
{
    tri_card_health health, card;
    int count = 0;
    (void)state;
    setenv("FAKE_CUDA", "mig", 1);
    setenv("FAKE_NVML", "user=4711", 1);
    assert_int_equal(tri_nvml_card_find(ID, &health), TRI_OK);
    assert_int_equal(health.user_count, 1);
    assert_int_equal(tri_nvml_card_find(OTHER, &health), TRI_OK);
    assert_int_equal(health.user_count, 0);
    assert_string_equal(health.name, "Emulated card MIG 1g.8gb");
    assert_true(health.figures.memory_total_bytes == 8.0 * (1ull << 30));
    assert_true(isnan(health.figures.utilization_ratio));
    assert_true(health.figures.power_watts == 412.5 && health.figures.temperature_celsius == 61);
    assert_int_equal(tri_nvml_cards(&card, 1, &count), TRI_OK);
    assert_int_equal(count, 1);
    assert_string_equal(card.name, "Emulated card");
    assert_true(card.figures.memory_total_bytes == 16.0 * (1ull << 30));
    unsetenv("FAKE_NVML");
    expect_fault("xid=79", "Xid 79", "Emulated card MIG 1g.8gb"); /* heard of the card */
    unsetenv("FAKE_CUDA");
}

static void a_card_that_nvml_does_not_know_is_refused(void **state)
{
    tri_card_monitor *monitor = NULL;
    (void)state;
    assert_int_equal(tri_card_monitor_open("cuda:0", PLACE, "feed", NULL, NULL, &monitor), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), "NVML does not know the card feed");
    assert_null(monitor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_an_open_monitor),
        cmocka_unit_test(faults_are_one_sentence),
        cmocka_unit_test(common_xids_have_a_meaning),
        cmocka_unit_test(an_instance_has_its_own_memory_and_what_the_card_knows),
        cmocka_unit_test(a_card_that_nvml_does_not_know_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
