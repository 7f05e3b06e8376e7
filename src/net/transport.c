/* SPDX-License-Identifier: Apache-2.0
 *
 * transport.c: the list of transports and the options of the net.
 */
#include "net/transport.h"

#include <string.h>

#define TRI_OPTION_STRUCT tri_net_config
static const tri_option rows[] = {TRI_NET_OPTIONS(TRI_OPTION_ROW)};
const tri_option_table tri_net_options =
    TRI_OPTION_TABLE("comm", tri_net_config, rows, "transports, heartbeats and encryption");

const tri_transport_ops *const tri_transports[] = {
    &tri_transport_shm,
    &tri_transport_tcp,
    &tri_transport_inproc,
    &tri_transport_sim,
#ifdef TRI_HAS_UCX
    &tri_transport_ucx,
#endif
    NULL,
};

const tri_transport_ops *tri_transport_find(const char *name)
{
    for (size_t i = 0; tri_transports[i]; i++) {
        if (strcmp(tri_transports[i]->name, name) == 0)
            return tri_transports[i];
    }
    return NULL;
}
