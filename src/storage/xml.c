/* SPDX-License-Identifier: Apache-2.0
 *
 * xml.c: a walk over an XML document, and the answers of S3 that are read with it.
 */
#include "storage/xml.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/storage_impl.h"

#define DEPTH      16
#define TEXT_MOST  65536
#define NAME_BYTES 64

typedef struct reader {
    XML_Parser parser;
    tri_xml_fn fn;
    void *arg;
    char names[DEPTH + 1][NAME_BYTES]; /* names[0]: around the root */
    tri_string texts[DEPTH + 1];
    int depth;
    tri_status status;
    const char *origin;
} reader;

static void stop(reader *read, tri_status status)
{
    if (read->status == TRI_OK)
        read->status = status;
    XML_StopParser(read->parser, XML_FALSE);
}

static void begins(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    reader *read = arg;
    (void)attributes;
    if (read->depth == DEPTH || strlen(name) >= NAME_BYTES) {
        stop(read, tri_fail(TRI_EFORMAT, "%.300s: XML with elements that no server needs", read->origin));
        return;
    }
    read->depth++;
    strcpy(read->names[read->depth], name);
    tri_string_clear(&read->texts[read->depth]);
}

static void says(void *arg, const XML_Char *bytes, int nbytes)
{
    reader *read = arg;
    tri_string *text = &read->texts[read->depth];
    if (text->nbytes + (size_t)nbytes > TEXT_MOST)
        stop(read, tri_fail(TRI_EFORMAT, "%.300s: XML with a text of more than %d bytes", read->origin, TEXT_MOST));
    else if (tri_string_append_bytes(text, bytes, (size_t)nbytes) != TRI_OK)
        stop(read, TRI_ENOMEM);
}

static void ends(void *arg, const XML_Char *name)
{
    reader *read = arg;
    if (read->status != TRI_OK)
        return;
    tri_status status =
        read->fn(read->arg, read->names[read->depth - 1], name, tri_string_text(&read->texts[read->depth]));
    read->depth--;
    if (status != TRI_OK)
        stop(read, status);
}

static void doctype(void *arg, const XML_Char *name, const XML_Char *system, const XML_Char *public, int internal)
{
    reader *read = arg;
    (void)name, (void)system, (void)public, (void)internal;
    stop(read, tri_fail(TRI_EFORMAT, "%.300s: XML with a DOCTYPE", read->origin));
}

/* TRI_EFORMAT: no XML. `origin` is for messages. */
static tri_status xml_read(const char *text, size_t nbytes, const char *origin, tri_xml_fn fn, void *arg)
{
    reader read = {.fn = fn, .arg = arg, .origin = origin};
    if (nbytes > INT32_MAX)
        return tri_fail(TRI_EFORMAT, "%.300s: XML of more than 2 GB", origin);
    read.parser = XML_ParserCreate("UTF-8");
    if (read.parser == NULL)
        return TRI_ENOMEM;
    XML_SetUserData(read.parser, &read);
    XML_SetElementHandler(read.parser, begins, ends);
    XML_SetCharacterDataHandler(read.parser, says);
    XML_SetStartDoctypeDeclHandler(read.parser, doctype);
    enum XML_Status parsed = XML_Parse(read.parser, text, (int)nbytes, XML_TRUE);
    if (parsed != XML_STATUS_OK && read.status == TRI_OK)
        read.status = tri_fail(TRI_EFORMAT, "%.300s: no XML: line %lu: %s", origin,
                               (unsigned long)XML_GetCurrentLineNumber(read.parser),
                               XML_ErrorString(XML_GetErrorCode(read.parser)));
    for (int i = 0; i <= DEPTH; i++)
        tri_string_fini(&read.texts[i]);
    XML_ParserFree(read.parser);
    return read.status;
}

/* --- a list --- */

typedef struct page_reader {
    tri_s3_page *page;
    const char *origin;
    tri_string key;
    uint64_t nbytes;
    char etag[TRI_STORAGE_ETAG_NBYTES];
} page_reader;

static tri_status nbytes_read(const page_reader *read, const char *text, uint64_t *nbytes)
{
    char *end;
    *nbytes = strtoull(text, &end, 10);
    bool good = text[0] >= '0' && text[0] <= '9' && *end == 0 && *nbytes <= INT64_MAX;
    return good ? TRI_OK : tri_fail(TRI_EFORMAT, "%.300s: an object of '%.40s' bytes", read->origin, text);
}

static tri_status page_take(void *arg, const char *outer, const char *name, const char *text)
{
    page_reader *read = arg;
    bool of_object = strcmp(outer, "Contents") == 0, of_page = strcmp(outer, "ListBucketResult") == 0;
    if (of_object && strcmp(name, "Key") == 0) {
        tri_string_clear(&read->key);
        return tri_string_append(&read->key, text);
    }
    if (of_object && strcmp(name, "Size") == 0)
        return nbytes_read(read, text, &read->nbytes);
    if (of_object && strcmp(name, "ETag") == 0) {
        size_t first = strspn(text, "\""), length = strcspn(text + first, "\"");
        snprintf(read->etag, sizeof(read->etag), "%.*s", (int)(length < 128 ? length : 128), text + first);
    }
    if (of_page && strcmp(name, "IsTruncated") == 0)
        read->page->is_cut = strcmp(text, "true") == 0;
    if (of_page && strcmp(name, "NextContinuationToken") == 0)
        return tri_string_append(&read->page->next, text);
    if (!of_page || strcmp(name, "Contents") != 0)
        return TRI_OK;
    tri_status status =
        tri_storage_entry_add(read->page->entries, tri_string_text(&read->key), read->nbytes, read->etag);
    tri_string_clear(&read->key);
    read->nbytes = 0;
    read->etag[0] = 0;
    return status;
}

tri_status tri_s3_page_read(const char *text, size_t nbytes, const char *origin, tri_s3_page *page)
{
    page_reader read = {.page = page, .origin = origin};
    tri_string_clear(&page->next);
    page->is_cut = false;
    tri_status status = xml_read(text, nbytes, origin, page_take, &read);
    if (status == TRI_OK && page->is_cut && page->next.nbytes == 0)
        status = tri_fail(TRI_EFORMAT, "%.300s: a list that is cut short without a word on how it continues", origin);
    tri_string_fini(&read.key);
    return status;
}

/* --- errors, and single elements --- */

static tri_status error_take(void *arg, const char *outer, const char *name, const char *text)
{
    tri_s3_error *error = arg;
    if (strcmp(outer, "Error") != 0)
        return TRI_OK;
    if (strcmp(name, "Code") == 0)
        snprintf(error->code, sizeof(error->code), "%.63s", text);
    else if (strcmp(name, "Message") == 0)
        snprintf(error->message, sizeof(error->message), "%.255s", text);
    else if (strcmp(name, "Region") == 0)
        snprintf(error->region, sizeof(error->region), "%.63s", text);
    return TRI_OK;
}

bool tri_s3_error_read(const char *text, size_t nbytes, tri_s3_error *error)
{
    *error = (tri_s3_error){0};
    return nbytes > 0 && xml_read(text, nbytes, "error", error_take, error) == TRI_OK && error->code[0] != 0;
}

typedef struct finder {
    const char *name;
    char *value;
    size_t room;
    bool found;
} finder;

static tri_status find_take(void *arg, const char *outer, const char *name, const char *text)
{
    finder *find = arg;
    (void)outer;
    if (!find->found && strcmp(name, find->name) == 0 && strlen(text) < find->room) {
        strcpy(find->value, text);
        find->found = true;
    }
    return TRI_OK;
}

bool tri_xml_find(const char *text, size_t nbytes, const char *name, char *value, size_t room)
{
    finder find = {.name = name, .value = value, .room = room};
    value[0] = 0;
    return xml_read(text, nbytes, name, find_take, &find) == TRI_OK && find.found;
}
