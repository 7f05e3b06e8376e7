/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h: requests over HTTP, each tried again while others may fix what failed: 408, 429, 500, 502 to 504, closed
 * connections, silence. The pauses double from 50 ms to 5 s, each times a random fraction.
 */
#ifndef TRI_STORAGE_REQUEST_H
#define TRI_STORAGE_REQUEST_H

#include "base/containers.h"
#include "base/fs.h"

/* One connection, kept open between requests; of one thread at a time. */
typedef struct tri_requester tri_requester;
tri_status tri_requester_open(tri_requester **out);
void tri_requester_close(tri_requester *requester);

typedef struct tri_request {
    const char *method; /* GET, HEAD, PUT, POST, DELETE */
    const char *url;
    const char *label; /* for messages: what people call it; no secrets */
    /* Called before each try: appends to `headers` lines "name: value\n"; may be NULL. */
    tri_status (*prepare)(void *arg, struct tri_request *request);
    void *arg;
    tri_string headers; /* those of all tries before the first; tri_request_fini() */
    const void *body;
    size_t body_nbytes;
    void *into; /* where the body of a success goes, of exactly into_nbytes; NULL: `answer` */
    size_t into_nbytes;
    tri_fs_file *file; /* instead: the body goes to this file as it comes, from its first byte on */
    bool follows;      /* goes where the server sends it */
    int tries;         /* 0: as many as are good */
    long limit_ms;     /* of one try; 0: no limit but silence */
    /* What came back. */
    long http;
    size_t got_nbytes;
    bool overflows;     /* the body of a success was longer than into_nbytes */
    tri_status broke;   /* why the body was not taken any more, with its message: there is no other try */
    tri_string answer;  /* at most 64 MiB */
    tri_string replied; /* headers, in lower case: "name: value\n" */
} tri_request;
/* TRI_OK: there is an answer, whatever its status. TRI_EIO: none after all tries. TRI_ECANCELED: a signal
 * came while the file was filled. */
tri_status tri_request_send(tri_requester *requester, tri_request *request);
/* The value of a header of the answer; false: it has none. */
bool tri_request_reply(const tri_request *request, const char *name, char *value, size_t room);
void tri_request_fini(tri_request *request);

#endif
