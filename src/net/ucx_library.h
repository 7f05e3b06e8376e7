/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_library.h: libucp, loaded when a job first asks for it.
 *
 * Not linked, because merely being loaded it takes over signals and patches the memory calls of a process: one that
 * does not use it must not notice that it was there when Trireme was built.
 */
#ifndef TRI_NET_UCX_LIBRARY_H
#define TRI_NET_UCX_LIBRARY_H

#include <ucp/api/ucp.h>

#include "base/status.h"

#define TRI_UCX_CALLS(X)                                                                                               \
    X(ucp_config_read)                                                                                                 \
    X(ucp_config_modify)                                                                                               \
    X(ucp_config_release)                                                                                              \
    X(ucp_init_version)                                                                                                \
    X(ucp_cleanup)                                                                                                     \
    X(ucp_worker_create)                                                                                               \
    X(ucp_worker_destroy)                                                                                              \
    X(ucp_worker_get_address)                                                                                          \
    X(ucp_worker_release_address)                                                                                      \
    X(ucp_worker_get_efd)                                                                                              \
    X(ucp_worker_arm)                                                                                                  \
    X(ucp_worker_progress)                                                                                             \
    X(ucp_ep_create)                                                                                                   \
    X(ucp_ep_flush_nbx)                                                                                                \
    X(ucp_ep_close_nbx)                                                                                                \
    X(ucp_tag_send_nbx)                                                                                                \
    X(ucp_tag_recv_nbx)                                                                                                \
    X(ucp_tag_recv_request_test)                                                                                       \
    X(ucp_request_check_status)                                                                                        \
    X(ucp_request_cancel)                                                                                              \
    X(ucp_request_free)                                                                                                \
    X(ucs_status_string)

typedef struct tri_ucx_calls {
#define TRI_UCX_FIELD(name) __typeof__(name) *name;
    TRI_UCX_CALLS(TRI_UCX_FIELD)
#undef TRI_UCX_FIELD
} tri_ucx_calls;

/* Stays loaded. What it says goes to the log as DEBUG; signals stay as they were. */
tri_status tri_ucx_load(tri_ucx_calls *calls);

#endif
