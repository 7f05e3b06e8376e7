/* SPDX-License-Identifier: Apache-2.0
 *
 * curl.c: loads libcurl, once in a process.
 */
#include "base/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define LIBRARY "libcurl.so.4"

static tri_curl_calls library;
static tri_status library_status;
static char library_message[TRI_ERROR_NBYTES];

static void library_load(void)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    library_status = TRI_OK;
    if (!handle)
        library_status = tri_fail(TRI_ENOTFOUND, "cannot load " LIBRARY ": %s (apt-get install libcurl4)", dlerror());
#define FIND(name)                                                                                                     \
    if (library_status == TRI_OK && !(library.name = (__typeof__(name) *)dlsym(handle, #name)))                        \
        library_status = tri_fail(TRI_ECONFIG, LIBRARY " has no %s", #name);
    TRI_CURL_CALLS(FIND)
#undef FIND
    if (library_status == TRI_OK && library.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        library_status = tri_fail(TRI_EIO, LIBRARY " does not begin");
    snprintf(library_message, sizeof(library_message), "%s", tri_last_error());
}

tri_status tri_curl_open(const tri_curl_calls **calls)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, library_load);
    *calls = &library;
    return library_status == TRI_OK ? TRI_OK : tri_fail_copy(library_status, library_message);
}
