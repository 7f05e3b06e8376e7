/* SPDX-License-Identifier: Apache-2.0
 *
 * xml.h: the texts of an XML document, one after the other, by expat. Documents with a DOCTYPE are refused.
 */
#ifndef TRI_STORAGE_XML_H
#define TRI_STORAGE_XML_H

#include "base/containers.h"

/* An element has ended that is directly in `outer` ("" for the root), with its own text. The end of an element
 * with others in it has the text that is between those. */
typedef tri_status (*tri_xml_fn)(void *arg, const char *outer, const char *name, const char *text);

/* What S3 answers: a page of a list. */
typedef struct tri_s3_page {
    tri_vector *entries; /* of tri_storage_entry: what is added, with keys as names */
    tri_string next;     /* the token of the next page; empty: this was the last one */
    bool is_cut;         /* the server has more */
} tri_s3_page;
tri_status tri_s3_page_read(const char *text, size_t nbytes, const char *origin, tri_s3_page *page);

/* An error, or one element of another answer. */
typedef struct tri_s3_error {
    char code[64], message[256], region[64];
} tri_s3_error;
/* False: the text says nothing of the kind. */
bool tri_s3_error_read(const char *text, size_t nbytes, tri_s3_error *error);
/* The text of the first element of this name, up to `room` - 1 bytes; false: there is none. */
bool tri_xml_find(const char *text, size_t nbytes, const char *name, char *value, size_t room);

#endif
