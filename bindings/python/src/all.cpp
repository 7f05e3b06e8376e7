/* SPDX-License-Identifier: Apache-2.0
 *
 * all.cpp: the extension in one piece for the compiler: it reads torch's headers once, which takes most of the time.
 */
#include "group.cpp"
#include "join.cpp"
#include "module.cpp"
#include "monitored.cpp"
#include "pairs.cpp"
#include "place.cpp"
#include "queue.cpp"
#include "tensors.cpp"
