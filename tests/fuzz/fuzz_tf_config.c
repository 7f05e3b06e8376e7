/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tf_config.c: TF_CONFIG; a place that was found is one of the world, and its store's url can be read.
 */
#include <stdlib.h>
#include <string.h>

#include "cluster/environment.h"
#include "cluster/store_impl.h"
#include "fuzz/fuzz.h"

size_t tri_fuzz_accepted;

static const char *lookup(const char *name, void *arg)
{
    return strcmp(name, "TF_CONFIG") == 0 ? arg : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_cluster_place place;
    tri_store_url url;
    char *text = strndup((const char *)bytes, nbytes);
    TRI_ASSERT(text);
    if (tri_cluster_detect(lookup, text, &place) == TRI_OK) {
        tri_fuzz_accepted++;
        TRI_ASSERT(place.rank >= 0 && place.rank < place.world && place.world <= TRI_ENVIRONMENT_RANKS);
        TRI_ASSERT(place.local_rank >= 0 && place.local_rank < place.local_world && place.local_world <= place.world);
        TRI_ASSERT(place.world == 1 || tri_store_url_parse(place.store_url, &url) == TRI_OK);
    }
    free(text);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("{\"cluster\":{\"chief\":[\"a:2222\"],\"worker\":[\"a:2223\",\"[::1]:2222\"]},"
                  "\"task\":{\"type\":\"worker\",\"index\":0}}"),
    TRI_FUZZ_SEED("{\"cluster\":{},\"task\":{}}"),
    TRI_FUZZ_REFUSED("{\"cluster\":{\"worker\":[\"a:0\"]},\"task\":{\"type\":\"worker\",\"index\":0}}"),
    TRI_FUZZ_REFUSED("{\"cluster\":{\"ps\":[\"a:1\"]},\"task\":{\"type\":\"ps\",\"index\":0}}"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {
    "\"master\":[", "\"worker\"", ":65535\"", ":99999\"", "[[[[", "{\"a\":", "null", "\\u0000", "\xff", "1e400", "-1"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
