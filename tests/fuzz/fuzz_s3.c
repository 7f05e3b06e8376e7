/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_s3.c: an answer of S3: a page of a list, an error, one element. What a list gives has names and lengths.
 */
#include <string.h>

#include "base/status.h"
#include "fuzz/fuzz.h"
#include "storage/storage_impl.h"
#include "storage/xml.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_vector entries = {.each = sizeof(tri_storage_entry)};
    tri_s3_page page = {.entries = &entries};
    tri_s3_error error;
    char value[32];
    const char *text = (const char *)bytes;
    if (tri_s3_page_read(text, nbytes, "f", &page) == TRI_OK) {
        tri_fuzz_accepted++;
        TRI_ASSERT(!page.is_cut || page.next.nbytes > 0);
    }
    for (size_t i = 0; i < entries.count; i++) {
        const tri_storage_entry *entry = tri_vector_at(&entries, i);
        TRI_ASSERT(entry->nbytes <= INT64_MAX);
        if (tri_storage_name_is_safe(entry->name))
            TRI_ASSERT(entry->name[0] != '/' && strstr(entry->name, "/../") == NULL);
    }
    if (tri_s3_error_read(text, nbytes, &error))
        TRI_ASSERT(error.code[0] != 0);
    if (tri_xml_find(text, nbytes, "UploadId", value, sizeof(value)))
        TRI_ASSERT(strlen(value) < sizeof(value));
    tri_storage_entries_free(&entries);
    tri_string_fini(&page.next);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED(
        "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
        "</NextContinuationToken><Contents><Key>a/../b</Key><Size>12</Size><ETag>&quot;e&quot;</ETag></Contents>"
        "</ListBucketResult>"),
    TRI_FUZZ_SEED("<Error><Code>NoSuchKey</Code><Message>m</Message><Region>r</Region></Error>"),
    TRI_FUZZ_SEED("<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"),
    TRI_FUZZ_REFUSED("<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"<Contents>", "</Contents>", "<Key>", "</Key>",     "<Size>",
                                      "<![CDATA[",  "]]>",         "&#38;", "<a>",        "</a>",
                                      "<!--",       "&quot;",      "<?x?>", "xmlns=\"u\""};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
