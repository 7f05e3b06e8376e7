/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_tls.c: puts TLS on every socket of every link, once all have met (comm.encrypt).
 */
#include "base/memory.h"
#include "net/tcp_impl.h"

tri_status tri_tcp_encrypt(tcp_transport *tcp, const tri_connected_peer *connected, int64_t deadline_ns)
{
    tri_tls_end *ends = tri_alloc_zero((size_t)tcp->base.world * TRI_LINK_SOCKETS_MAX, sizeof *ends);
    tri_status status = ends ? tri_tls_context_create(true, &tcp->tls) : TRI_ENOMEM;
    size_t count = 0;

    for (int peer = 0; peer < tcp->base.world; peer++) {
        tcp_link *link = &tcp->links[peer];

        for (int socket = 0; status == TRI_OK && socket < link->sockets; socket++) {
            status = tri_tls_open(tcp->tls, link->fds[socket], peer < tcp->base.rank, connected[peer].keys[socket],
                                  &link->tls[socket]);
            ends[count++] = (tri_tls_end){link->tls[socket], link->fds[socket], peer};
        }
    }
    if (status == TRI_OK)
        status = tri_tls_shake_all("tcp", ends, count, tcp->config->broken, deadline_ns);
    tri_free(ends);
    return status;
}
