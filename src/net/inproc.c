/* SPDX-License-Identifier: Apache-2.0
 *
 * inproc.c: ranks as threads (or fibers) of one process: memory without delay, over a hub.
 */
#include "net/hub.h"

static tri_status inproc_open(const tri_transport_setup *setup, tri_transport **out)
{
    return tri_hub_endpoint_open(&tri_transport_inproc, setup, out);
}

const tri_transport_ops tri_transport_inproc = {
    .name = "inproc",
    .does = "ranks as threads of one process",
    .open = inproc_open,
    .address = tri_hub_endpoint_address,
    .connect = tri_hub_endpoint_connect,
    .write_some = tri_hub_endpoint_write_some,
    .read_some = tri_hub_endpoint_read_some,
    .peek = tri_hub_endpoint_peek,
    .consume = tri_hub_endpoint_consume,
    .wait = tri_hub_endpoint_wait,
    .wake = tri_hub_endpoint_wake,
    .close = tri_hub_endpoint_close,
};
