/* SPDX-License-Identifier: Apache-2.0
 *
 * members_spec.c: what all members of a job must have in common, and the refusal of a process that differs.
 *
 * The first of the initial members publishes the description under "spec". Every other process compares its own with it
 * before it registers, and names the keys that differ. Members do not rely on that: a registration carries the digest
 * of the description, and whoever closes a generation refuses one with another digest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/members_impl.h"
#include "net/auth.h"

#define SPEC_KEY    "spec"
#define SLICE_NS    (100 * TRI_NS_PER_MS)
#define DIFFERENCES 3 /* printed with their values; the others are counted */

tri_status tri_members_spec_digest(const char *spec, char hex[TRI_SPEC_DIGEST_NBYTES])
{
    unsigned char digest[TRI_AUTH_NBYTES];

    hex[0] = 0;
    if (!spec)
        return TRI_OK;
    TRI_TRY(tri_auth_sha256(spec, strlen(spec), digest));
    tri_auth_hex(digest, TRI_SPEC_DIGEST_NBYTES / 2, hex);
    return TRI_OK;
}

/* --- comparing --- */

/* One "key=value" line; false at the end of the text. */
typedef struct spec_line {
    const char *key, *value;
    int key_nbytes, value_nbytes;
} spec_line;

static bool line_next(const char **text, spec_line *line)
{
    const char *at = *text, *end = strchr(at, '\n'), *equals = strchr(at, '=');

    if (!end || !equals || equals > end)
        return false;
    *line = (spec_line){at, equals + 1, (int)(equals - at), (int)(end - equals - 1)};
    *text = end + 1;
    return true;
}

static bool line_find(const char *text, const spec_line *like, spec_line *found)
{
    while (line_next(&text, found))
        if (found->key_nbytes == like->key_nbytes && memcmp(found->key, like->key, (size_t)like->key_nbytes) == 0)
            return true;
    *found = (spec_line){.value = "nothing", .value_nbytes = 7};
    return false;
}

static tri_status difference_add(tri_string *out, int *count, const spec_line *key, const spec_line *want,
                                 const spec_line *got)
{
    if (++*count > DIFFERENCES)
        return TRI_OK;
    return tri_string_appendf(out, "%s%.*s: want %.*s, got %.*s", *count > 1 ? "; " : "", key->key_nbytes, key->key,
                              want->value_nbytes, want->value, got->value_nbytes, got->value);
}

tri_status tri_members_spec_compare(const char *want, const char *got, tri_string *out)
{
    const char *at = want;
    spec_line line, other;
    int count = 0;

    while (line_next(&at, &line)) {
        bool both = line_find(got, &line, &other);

        if (!both || line.value_nbytes != other.value_nbytes ||
            memcmp(line.value, other.value, (size_t)line.value_nbytes) != 0)
            TRI_TRY(difference_add(out, &count, &line, &line, &other));
    }
    for (at = got; line_next(&at, &line);)
        if (!line_find(want, &line, &other))
            TRI_TRY(difference_add(out, &count, &line, &other, &line));
    return count > DIFFERENCES ? tri_string_appendf(out, "; and %d more", count - DIFFERENCES) : TRI_OK;
}

/* --- refusing --- */

tri_status tri_members_refuse(tri_store *store, const char *id, const char *why, int64_t deadline_ns)
{
    char key[KEY];

    snprintf(key, sizeof key, "refused/%s", id);
    TRI_TRY(tri_store_set(store, key, why, strlen(why), deadline_ns));
    return tri_members_mark_dead(store, id, deadline_ns);
}

static tri_status refusal_fail(const tri_members *members, const char *why)
{
    return tri_fail(TRI_EMISMATCH, "worker %s cannot join this run: %s", members->id, why);
}

tri_status tri_members_withdraw(tri_members *members, const char *why, int64_t deadline_ns)
{
    TRI_TRY(tri_members_refuse(members->setup.store, members->id, why, deadline_ns));
    return refusal_fail(members, why);
}

tri_status tri_members_refusal_check(const tri_members *members)
{
    char key[KEY], *why;
    size_t nbytes;

    snprintf(key, sizeof key, "refused/%s", members->id);
    tri_status status = tri_store_wait(members->setup.store, key, &why, &nbytes, tri_now_ns());
    if (status != TRI_OK)
        return status == TRI_ETIMEOUT ? TRI_OK : status;
    status = refusal_fail(members, why);
    tri_free(why);
    return status;
}

tri_status tri_members_misfit_refuse(tri_members *members, candidate *one, int64_t deadline_ns)
{
    if (!members->spec[0] || !one->here || one->dead || strcmp(one->spec, members->spec) == 0)
        return TRI_OK;
    tri_log(TRI_LOG_WARN,
            "worker %s is refused: its description of the run (model, data, options, processor) is "
            "not that of the members",
            one->member.id);
    one->gone = one->dead = true;
    return tri_members_refuse(members->setup.store, one->member.id,
                              "its description of the run is not that of the members", deadline_ns);
}

/* --- publishing --- */

/* Initial members publish theirs; others wait until one has. */
static tri_status published_find(tri_members *members, bool publishes, char **stands, int64_t deadline_ns)
{
    tri_store *store = members->setup.store;
    const char *spec = members->setup.spec;
    size_t nbytes;
    tri_status status = TRI_ETIMEOUT;

    if (publishes)
        return tri_store_claim(store, SPEC_KEY, spec, strlen(spec), stands, &nbytes, deadline_ns);
    while (status == TRI_ETIMEOUT && tri_now_ns() < deadline_ns) {
        if (tri_stop_signal())
            return tri_fail(TRI_ECANCELED, "stopped by a signal before it was a member");
        status = tri_store_wait(store, SPEC_KEY, stands, &nbytes, tri_now_ns() + SLICE_NS);
    }
    return status;
}

tri_status tri_members_spec_agree(tri_members *members, int64_t deadline_ns)
{
    tri_string why = {0};
    char *stands = NULL;

    if (!members->setup.spec || members->spec_agreed)
        return TRI_OK;
    bool publishes = members->now.number == 0 && members->rank >= 0;
    TRI_TRY_IN(published_find(members, publishes, &stands, deadline_ns), "while comparing the description of the run");
    tri_status status = tri_members_spec_compare(stands, members->setup.spec, &why);
    tri_free(stands);
    if (status == TRI_OK && why.nbytes > 0)
        status = tri_members_withdraw(members, tri_string_text(&why), deadline_ns);
    members->spec_agreed = status == TRI_OK;
    tri_string_fini(&why);
    return status;
}
