/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c: when a long wait reports itself, and that a stop signal ends it.
 */
#include "base/wait.h"

#include <string.h>

#define FIRST_REPORT_NS (10 * TRI_NS_PER_S)

void tri_wait_begin(tri_wait *wait)
{
    wait->begun_ns = tri_now_ns();
    wait->next_ns = wait->begun_ns + FIRST_REPORT_NS;
}

tri_status tri_wait_check(const char *what)
{
    int number = tri_stop_signal();

    if (!number)
        return TRI_OK;
    return tri_fail(TRI_ECANCELED, "stopped by signal %d (%s) while %s", number, strsignal(number), what);
}

bool tri_wait_is_long(tri_wait *wait)
{
    if (tri_now_ns() < wait->next_ns)
        return false;
    wait->next_ns += wait->next_ns - wait->begun_ns;
    return true;
}

int64_t tri_wait_until(int64_t deadline_ns, int64_t ns)
{
    int64_t now_ns = tri_now_ns();

    return deadline_ns - now_ns > ns ? now_ns + ns : deadline_ns;
}

long long tri_wait_limit_s(const tri_wait *wait, int64_t deadline_ns)
{
    int64_t limit_ns = deadline_ns - wait->begun_ns;

    return limit_ns < TRI_NS_PER_S ? 1 : (limit_ns + TRI_NS_PER_S / 2) / TRI_NS_PER_S;
}
