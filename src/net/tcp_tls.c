/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_tls.c: puts TLS on every strand of every link, once all have met (comm.encrypt).
 */
#include "base/memory.h"
#include "net/tcp_impl.h"

tri_status tri_tcp_encrypt(tcp_transport *tcp, const tri_met *met, int64_t deadline_ns)
{
    tri_tls_end *ends = tri_alloc_zero((size_t)tcp->base.world * TRI_STRANDS_MAX, sizeof *ends);
    tri_status status = ends ? tri_tls_context_create(true, &tcp->tls) : TRI_ENOMEM;
    size_t count = 0;

    for (int peer = 0; peer < tcp->base.world; peer++) {
        tcp_link *link = &tcp->links[peer];

        for (int strand = 0; status == TRI_OK && strand < link->strands; strand++) {
            status = tri_tls_open(tcp->tls, link->fds[strand], peer < tcp->base.rank, met[peer].keys[strand],
                                  &link->tls[strand]);
            ends[count++] = (tri_tls_end){link->tls[strand], link->fds[strand], peer};
        }
    }
    if (status == TRI_OK)
        status = tri_tls_shake_all("tcp", ends, count, tcp->config->broken, deadline_ns);
    tri_free(ends);
    return status;
}
