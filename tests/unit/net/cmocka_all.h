/* SPDX-License-Identifier: Apache-2.0
 *
 * cmocka_all.h: cmocka with what it wants included before it.
 */
#ifndef TRI_TESTS_NET_CMOCKA_ALL_H
#define TRI_TESTS_NET_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
