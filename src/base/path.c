/* SPDX-License-Identifier: Apache-2.0
 *
 * path.c: paths are of local or mounted file systems; what is in the way of another file gets a free name.
 */
#include "base/path.h"

#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

#define ASIDE_LIMIT 100000

/* Bytes of the scheme of a URL; 0: it is none. */
static size_t scheme_nbytes(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    size_t nbytes = strspn(path, letters);
    return strncmp(path + nbytes, "://", 3) == 0 ? nbytes : 0;
}

char *tri_url_label(const char *url)
{
    const char *host = url + scheme_nbytes(url) + strlen("://"), *at = memchr(host, '@', strcspn(host, "/"));
    const char *rest = at != NULL ? at + 1 : host;
    const size_t length = strncmp(url, "s3:", 3) == 0 ? strlen(rest) : strcspn(rest, "?");
    return tri_format("%.*s%.*s", (int)(host - url), url, (int)length, rest);
}

static tri_status scheme_fail(const char *url, const char *wanted)
{
    char *label = tri_url_label(url);
    tri_status status = tri_fail(TRI_ECONFIG, "%.400s: want %s, got the URL scheme %.*s://", label ? label : "a URL",
                                 wanted, (int)scheme_nbytes(url), url);
    tri_free(label);
    return status;
}

tri_status tri_path_check(const char *path)
{
    size_t nbytes = scheme_nbytes(path);
    if (nbytes == 0)
        return TRI_OK;
    return scheme_fail(path, "a local path");
}

bool tri_path_is_url(const char *path)
{
    static const char *const schemes[] = {"s3", "http", "https", "file"};
    size_t nbytes = scheme_nbytes(path);
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (nbytes == strlen(schemes[i]) && strncmp(path, schemes[i], nbytes) == 0)
            return true;
    return false;
}

tri_status tri_place_check(const char *place)
{
    size_t nbytes = scheme_nbytes(place);
    if (nbytes == 0 || tri_path_is_url(place))
        return TRI_OK;
    return scheme_fail(place, "a path, s3://, http:// or https://");
}

bool tri_path_ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path), wanted = strlen(ending);
    return length >= wanted && strcasecmp(path + length - wanted, ending) == 0;
}

tri_status tri_path_set_aside(const char *path, char **to)
{
    size_t nbytes = strlen(path);
    while (nbytes > 1 && path[nbytes - 1] == '/')
        nbytes--;
    for (int i = 1; i < ASIDE_LIMIT; i++) {
        struct stat info;
        *to = tri_format("%.*s.%d", (int)nbytes, path, i);
        if (!*to)
            return TRI_ENOMEM;
        if (lstat(*to, &info) != 0) {
            tri_status status = tri_fs_rename(path, *to);
            if (status != TRI_OK)
                tri_free(*to);
            return status;
        }
        tri_free(*to);
    }
    return tri_fail(TRI_EIO, "%s: was moved aside too often: remove some of %s.1, ...", path, path);
}
