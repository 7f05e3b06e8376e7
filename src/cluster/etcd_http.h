/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_http.h: questions to the members of an etcd cluster, through its JSON gateway; for store_etcd.c.
 *
 * libcurl is loaded when a job first asks for it: linked, it would bring thirty libraries into each start.
 */
#ifndef TRI_CLUSTER_ETCD_HTTP_H
#define TRI_CLUSTER_ETCD_HTTP_H

#include "base/containers.h"
#include "base/runtime.h"

typedef struct tri_etcd tri_etcd;

/* etcd://host:port[,host:port ...][/prefix][?auth=FILE&ca=FILE&cert=FILE&key=FILE], etcds:// for TLS, without which
 * a password goes to this host alone, or with insecure=yes. auth: a file with
 * "user:password". Connects to nobody yet. prefix: with a slash at its end, or empty. */
#define TRI_ETCD_PREFIX_NBYTES 200
tri_status tri_etcd_open(const char *url, tri_etcd **out, char prefix[TRI_ETCD_PREFIX_NBYTES]);
void tri_etcd_close(tri_etcd *etcd);

/* Sends a JSON text to "/v3/<path>" and gives the answer's. TRI_EPEER: the member that was asked does not answer within
 * the limit, or has no leader; the next call asks another one. What etcd refuses is TRI_ECONFIG, with its words. */
tri_status tri_etcd_ask(tri_etcd *etcd, const char *path, const char *question, int64_t limit_ns, tri_string *answer);
/* Until etcd tells of anything that happens after it has taken the question, or the limit: TRI_OK either way. */
tri_status tri_etcd_watch(tri_etcd *etcd, const char *question, int64_t limit_ns);

#endif
