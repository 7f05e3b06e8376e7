/* SPDX-License-Identifier: Apache-2.0
 *
 * hash_wide.h: xxHash's functions, over megabytes: by the widest vectors of this processor where its library was built
 * with them, which takes half the time. The values are the same.
 */
#ifndef TRI_BASE_HASH_WIDE_H
#define TRI_BASE_HASH_WIDE_H

#ifndef XXH_STATIC_LINKING_ONLY
#define XXH_STATIC_LINKING_ONLY
#endif
#include <xxhash.h>
#ifdef TRI_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#endif

#endif
