/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_tls.c: puts TLS on every strand of every link, once all have met (comm.encrypt).
 *
 * All handshakes go on at once, so that no order of peers can make two ranks wait for each other.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/runtime.h"
#include "net/tcp_impl.h"

/* One round over all strands; fills polls with those that are not done. */
static tri_status strands_shake(tcp_transport *tcp, nfds_t *count, int *late)
{
    char reason[128];
    short events;

    *count = 0;
    for (int peer = 0; peer < tcp->base.world; peer++) {
        const tcp_link *link = &tcp->links[peer];

        for (int strand = 0; strand < link->strands; strand++) {
            if (tri_tls_shake(link->tls[strand], &events) != TRI_OK) {
                snprintf(reason, sizeof reason, "%s", tri_last_error());
                return tri_fail(TRI_EPEER, "tcp: rank %d cannot be talked to encrypted: %s", peer, reason);
            }
            if (events == 0)
                continue;
            *late = peer;
            tcp->polls[(*count)++] = (struct pollfd){.fd = link->fds[strand], .events = events};
        }
    }
    return TRI_OK;
}

tri_status tri_tcp_encrypt(tcp_transport *tcp, const tri_met *met, int64_t deadline_ns)
{
    nfds_t count;
    int late = -1;

    TRI_TRY(tri_tls_context_create(&tcp->tls));
    for (int peer = 0; peer < tcp->base.world; peer++) {
        tcp_link *link = &tcp->links[peer];

        for (int strand = 0; strand < link->strands; strand++)
            TRI_TRY(tri_tls_open(tcp->tls, link->fds[strand], peer < tcp->base.rank, met[peer].keys[strand],
                                 &link->tls[strand]));
    }
    for (;;) {
        int64_t left_ns = deadline_ns - tri_now_ns();

        TRI_TRY(strands_shake(tcp, &count, &late));
        if (count == 0)
            return TRI_OK;
        if (left_ns <= 0)
            return tri_fail(TRI_ETIMEOUT, "tcp: rank %d did not begin to encrypt in time", late);
        if (left_ns > TRI_NS_PER_S)
            left_ns = TRI_NS_PER_S;
        if (poll(tcp->polls, count, (int)(left_ns / TRI_NS_PER_MS) + 1) < 0 && errno != EINTR)
            return tri_fail(TRI_EIO, "tcp: cannot wait: %s", strerror(errno));
    }
}
