/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h: one line of a batch: {"prompt": "...", "max_tokens": 20, "slide": 0, "temperature": 0.8, "top_k": 0,
 * "top_p": 1, "repeat": 1, "seed": 1, "stop": "..."}; all but the prompt may be left out.
 */
#ifndef TRI_GENERATE_REQUEST_H
#define TRI_GENERATE_REQUEST_H

#include "generate/generate.h"

/* Reads a line; what it leaves out is taken from *request. The texts are new (tri_generate_request_fini). TRI_EFORMAT
 * names the field. */
tri_status tri_generate_request_parse(const char *line, size_t nbytes, const char *origin,
                                      tri_generate_request *request);
void tri_generate_request_fini(tri_generate_request *request);
/* Bounds of the rule and the number of tokens: TRI_ECONFIG. */
tri_status tri_generate_request_check(const tri_generate_request *request);

#endif
