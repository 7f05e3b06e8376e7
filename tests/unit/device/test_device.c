/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device.c: the table of devices and the memory of the host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "device/device.h"

static void the_cpu_is_found_by_name_and_by_number(void **state)
{
    (void)state;
    assert_non_null(tri_device_find("cpu"));
    assert_ptr_equal(tri_device_at(0), tri_device_find("cpu"));
    assert_null(tri_device_find("abacus"));
    assert_null(tri_device_at(1000));
}

static void memory_is_zeroed_aligned_and_copied(void **state)
{
    (void)state;
    const tri_device_ops *cpu = tri_device_find("cpu");
    unsigned char *a = cpu->alloc(1000), *b = cpu->alloc(1000);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)a % 64, 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(a[i], 0);
    }
    cpu->fill(a, 7, 999);
    cpu->copy(b, a, 1000);
    assert_int_equal(b[998], 7);
    assert_int_equal(b[999], 0);
    unsigned char host[4] = {1, 2, 3, 4};
    cpu->from_host(a, host, 4);
    cpu->to_host(host, a + 1, 2);
    assert_int_equal(host[0], 2);
    cpu->copy(NULL, NULL, 0);
    cpu->free(a);
    cpu->free(b);
    cpu->free(NULL);
}

static void exhausted_memory_is_reported(void **state)
{
    (void)state;
    tri_memory_fail_at(1);
    assert_null(tri_device_find("cpu")->alloc(64));
    tri_memory_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_is_found_by_name_and_by_number),
        cmocka_unit_test(memory_is_zeroed_aligned_and_copied),
        cmocka_unit_test(exhausted_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
