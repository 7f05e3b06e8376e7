/* SPDX-License-Identifier: Apache-2.0
 *
 * api.h: what the files behind <trireme/ps.h> share.
 */
#ifndef TRI_PS_API_H
#define TRI_PS_API_H

#include <trireme/ps.h>

#include "net/transport.h"
#include "ps/ps.h"

/* "comm.KEY=VALUE", "ps.KEY=VALUE", NULL at the end (or NULL), over the defaults. */
tri_status tri_kv_options_read(const char *const *options, tri_net_config *net, tri_ps_config *ps);
/* TRI_ECONFIG: a token that is too short, or none where the options need one. */
tri_status tri_kv_token_check(const char *token, const tri_net_config *net);

#endif
