/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/cpu/gemm_half.h"
#include "kernel/isa.h"
#include "kernel/kernel.h"

static void names_are_found_again(void **state)
{
    (void)state;
    tri_isa found;
    for (int i = TRI_ISA_GENERIC; i <= TRI_ISA_AMX; i++) {
        assert_true(tri_isa_find(tri_isa_name((tri_isa)i), &found));
        assert_int_equal(found, i);
    }
    assert_false(tri_isa_find("auto", &found));
}

static void more_than_the_processor_has_is_refused(void **state)
{
    (void)state;
    tri_isa best = tri_isa_best();
    assert_int_equal(tri_isa_now(), best);
    for (int i = (int)best + 1; i <= TRI_ISA_AMX; i++) {
        assert_int_equal(tri_isa_set((tri_isa)i), TRI_EUNSUPPORTED);
        assert_non_null(strstr(tri_last_error(), tri_isa_name((tri_isa)i)));
        assert_int_equal(tri_isa_now(), best);
    }
}

/* The last test: what is set counts for the whole process. */
static void kernels_are_those_of_what_is_set(void **state)
{
    (void)state;
    assert_int_equal(tri_isa_set(TRI_ISA_GENERIC), TRI_OK);
    assert_int_equal(tri_isa_set(TRI_ISA_GENERIC), TRI_OK);
    assert_ptr_equal(tri_gemm_find(), &tri_gemm_generic);
    assert_ptr_equal(tri_gemm_half_find(), &tri_gemm_bf16_generic);
    assert_non_null(strstr(tri_kernel_arithmetic(), tri_gemm_generic.name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(more_than_the_processor_has_is_refused),
        cmocka_unit_test(kernels_are_those_of_what_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
