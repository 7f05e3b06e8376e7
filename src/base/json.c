/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c: commas, escapes and numbers; a failure sticks and climbs to the outer container at the inner one's end.
 */
#include "base/json.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

static void add(tri_json *json, const char *text)
{
    if (json->status == TRI_OK)
        json->status = tri_string_append(json->out, text);
}

static void add_bytes(tri_json *json, const char *bytes, size_t nbytes)
{
    if (json->status == TRI_OK)
        json->status = tri_string_append_bytes(json->out, bytes, nbytes);
}

size_t tri_utf8_nbytes(const char *character)
{
    const unsigned char *text = (const unsigned char *)character;
    unsigned char first = text[0];
    if (first < 0x80)
        return 1;
    size_t nbytes = first >= 0xc2 && first <= 0xdf   ? 2
                    : (first & 0xf0) == 0xe0         ? 3
                    : first >= 0xf0 && first <= 0xf4 ? 4
                                                     : 0;
    for (size_t i = 1; i < nbytes; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] >= 0xa0) ||
               (first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] >= 0x90);
    return bad ? 0 : nbytes;
}

static void add_escape(tri_json *json, unsigned char byte)
{
    static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = strchr(named, byte);
    if (json->status != TRI_OK)
        return;
    if (at)
        json->status = tri_string_appendf(json->out, "\\%c", letters[at - named]);
    else
        json->status = tri_string_appendf(json->out, "\\u%04x", (unsigned)byte);
}

static void add_quoted(tri_json *json, const char *text)
{
    add(json, "\"");
    const char *plain = text; /* start of what needs no change */
    for (const char *at = text; *at;) {
        unsigned char byte = (unsigned char)*at;
        size_t nbytes = tri_utf8_nbytes(at);
        if (nbytes != 0 && byte >= 0x20 && byte != '"' && byte != '\\') {
            at += nbytes;
            continue;
        }
        add_bytes(json, plain, (size_t)(at - plain));
        if (nbytes == 0)
            add(json, "\xef\xbf\xbd"); /* U+FFFD, the replacement character */
        else
            add_escape(json, byte);
        plain = ++at;
    }
    add(json, plain);
    add(json, "\"");
}

/* What comes before a value. */
static void start(tri_json *json, const char *key)
{
    if (!json->empty)
        add(json, ",");
    json->empty = false;
    if (key) {
        add_quoted(json, key);
        add(json, ":");
    }
}

static tri_json open_container(tri_string *out, tri_json *outer, tri_status status, char close)
{
    tri_json json = {.out = out, .outer = outer, .status = status, .close = close, .empty = true};
    add(&json, close == '}' ? "{" : "[");
    return json;
}

tri_json tri_json_object(tri_string *out)
{
    return open_container(out, NULL, TRI_OK, '}');
}

tri_json tri_json_object_in(tri_json *outer, const char *key)
{
    start(outer, key);
    return open_container(outer->out, outer, outer->status, '}');
}

tri_json tri_json_array_in(tri_json *outer, const char *key)
{
    start(outer, key);
    return open_container(outer->out, outer, outer->status, ']');
}

void tri_json_text(tri_json *json, const char *key, const char *value)
{
    start(json, key);
    if (value)
        add_quoted(json, value);
    else
        add(json, "null");
}

void tri_json_int(tri_json *json, const char *key, int64_t value)
{
    start(json, key);
    if (json->status == TRI_OK)
        json->status = tri_string_appendf(json->out, "%lld", (long long)value);
}

void tri_json_real(tri_json *json, const char *key, double value)
{
    start(json, key);
    if (!isfinite(value))
        add(json, "null");
    else if (json->status == TRI_OK)
        json->status = tri_string_append_real(json->out, value);
}

void tri_json_bool(tri_json *json, const char *key, bool value)
{
    start(json, key);
    add(json, value ? "true" : "false");
}

tri_status tri_json_end(tri_json *json)
{
    add_bytes(json, &json->close, 1);
    if (json->outer && json->outer->status == TRI_OK)
        json->outer->status = json->status;
    return json->status;
}
