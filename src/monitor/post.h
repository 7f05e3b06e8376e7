/* SPDX-License-Identifier: Apache-2.0
 *
 * post.h: a JSON object, posted to somebody who asked for it.
 */
#ifndef TRI_MONITOR_POST_H
#define TRI_MONITOR_POST_H

#include <stdint.h>

#include "base/status.h"

typedef struct tri_post_place {
    const char *url;
    const char *ca;    /* file: who signs its certificate; "": whom the system trusts */
    const char *token; /* file: a bearer token, read each time since it is renewed; "": none */
} tri_post_place;
/* Blocks up to limit_ms. TRI_EPEER: it cannot be reached, or answered with anything but 2xx; the words say what. */
tri_status tri_post_json(const tri_post_place *place, const char *body, int64_t limit_ms);

#endif
