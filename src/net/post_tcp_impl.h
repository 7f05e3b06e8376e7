/* SPDX-License-Identifier: Apache-2.0
 *
 * post_tcp_impl.h: what post_tcp.c (lines and polling) and post_tcp_call.c (who calls, who is called) share.
 *
 * Every descriptor is in one epoll set for good, edge-triggered but for the listeners: what can go on is remembered in
 * the lines, so pausing and waiting for room cost no call.
 */
#ifndef TRI_NET_POST_TCP_IMPL_H
#define TRI_NET_POST_TCP_IMPL_H

#include "net/crowd.h"
#include "net/handshake.h"
#include "net/post_impl.h"
#include "net/talk.h"
#include "net/tcp_address.h"
#include "net/tls.h"

/* What an event of epoll is of; first member of each. */
typedef enum tcp_source { SOURCE_LINE, SOURCE_STRANGER, SOURCE_LISTENER, SOURCE_WAKE } tcp_source;

typedef struct tcp_line {
    tri_line base;
    tcp_source source;
    int fd;
    tri_tls *tls;  /* NULL: not encrypted */
    bool is_held;  /* tls holds a record that has not gone as a whole */
    bool has_hung; /* the end of the stream has come: only a read tells where it is */
} tcp_line;

/* Somebody who has called and has not proven anything, or not encrypted yet. */
typedef struct tcp_stranger {
    tcp_source source;
    tri_caller caller; /* of tcp->crowd */
    post_node all;     /* of tcp->strangers, the oldest first */
    net_talk talk;
    int fd;           /* when the talk is done */
    tri_tls *tls;     /* from then on */
    int64_t limit_ns; /* to be done */
    char from[TRI_POST_FROM_NBYTES];
} tcp_stranger;

typedef struct tcp_post {
    tri_post base;
    int epoll, wake_fd;
    tcp_source wake_source, listener_source;
    tri_tcp_door door;
    tri_tls_context *tls; /* NULL: nothing is encrypted */
    post_node strangers;
    tri_crowd crowd;         /* the same strangers */
    bool is_called;          /* somebody waits at a listener */
    int64_t accept_after_ns; /* out of descriptors: not before this; 0: no such trouble */
} tcp_post;

/* EPOLL_CTL_ADD or EPOLL_CTL_MOD. */
void tri_post_tcp_close(const tcp_post *tcp, int fd);
bool tri_post_tcp_watch(const tcp_post *tcp, int how, int fd, uint32_t events, tcp_source *source);
#define TRI_POST_TCP_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | (uint32_t)EPOLLET)
/* Takes the socket and its encryption, also on failure. how: EPOLL_CTL_ADD or EPOLL_CTL_MOD. */
tri_status tri_post_tcp_line(tcp_post *tcp, int fd, tri_tls *tls, int how, const char *from, tcp_line **out);
/* Notes what can go on, as in the table. */
tri_status tri_post_tcp_poll(tri_post *post, int64_t deadline_ns);

/* post_tcp_call.c */
tri_status tri_post_tcp_dial(tri_post *post, const char *address, bool once, int64_t deadline_ns, tri_line **out);
void tri_post_tcp_accept(tcp_post *tcp);
void tri_post_tcp_stranger_advance(tcp_post *tcp, tcp_stranger *stranger);
/* Those whose time is over. Returns when this must be looked at again. */
int64_t tri_post_tcp_sweep(tcp_post *tcp, int64_t now_ns);
void tri_post_tcp_strangers_close(tcp_post *tcp);

#endif
