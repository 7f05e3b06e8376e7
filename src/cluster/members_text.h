/* SPDX-License-Identifier: Apache-2.0
 *
 * members_text.h: lists of members as they are in the store (docs/formats/wire.md), for members.c.
 */
#ifndef TRI_CLUSTER_MEMBERS_TEXT_H
#define TRI_CLUSTER_MEMBERS_TEXT_H

#include "cluster/members.h"

/* Lines of members, then of absent members; out->members is the caller's. TRI_EFORMAT names the key and the line. */
tri_status tri_members_parse(const char *text, int64_t number, tri_generation *out);
/* Appends one line, without what makes it a stray's. */
tri_status tri_members_print(const tri_member *one, tri_string *text);

#endif
