/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_flight.c: flight records; what was read can be merged with itself under another rank, and be looked up.
 */
#include "comm/flight_read.h"
#include "fuzz/fuzz.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_flight_record records[2];
    tri_flight_merge merge;
    if (tri_flight_parse((const char *)bytes, nbytes, "fuzz", &records[0]) != TRI_OK)
        return 0;
    tri_fuzz_accepted++;
    TRI_ASSERT(records[0].rank >= 0 && records[0].rank < records[0].world);
    for (size_t i = 0; i < records[0].kept; i++) {
        const tri_board_call *call = &records[0].list[i];
        TRI_ASSERT(call->frame.op > 0 && call->frame.op < TRI_COMM_OP_COUNT && call->frame.dtype < TRI_DTYPE_COUNT);
        if (call->frame.op != TRI_COMM_SEND_RECV)
            TRI_ASSERT(tri_flight_find(&records[0], call->frame.group, call->frame.sequence));
    }
    TRI_ASSERT(tri_flight_merge_find(records, 1, &merge) == TRI_OK);
    TRI_ASSERT(merge.late < 1);
    if (records[0].world > 1 && tri_flight_parse((const char *)bytes, nbytes, "fuzz", &records[1]) == TRI_OK) {
        records[1].rank = (records[0].rank + 1) % records[0].world;
        TRI_ASSERT(tri_flight_merge_find(records, 2, &merge) == TRI_OK);
        tri_flight_fini(&records[1]);
    }
    tri_flight_fini(&records[0]);
    return 0;
}

#define HEAD                                                                                                           \
    "{\"trireme_flight\":1,\"job\":\"0000abcd\",\"rank\":1,\"world\":3,\"host\":\"h\",\"written_ns\":100,"             \
    "\"status\":\"TRI_EPEER\",\"origin\":2,\"cause\":\"rank 2 is gone\",\"calls\":2,\"kept\":"
#define CALL                                                                                                           \
    "{\"number\":1,\"group\":1,\"sequence\":7,\"op\":\"all_reduce\",\"dtype\":\"f32\",\"count\":10,\"reduce\":0,"      \
    "\"name\":\"a\",\"hash\":\"00000000000000aa\",\"members\":\"0000000000000007\",\"begin_ns\":5,\"end_ns\":9,"       \
    "\"status\":\"TRI_OK\"}\n"

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED(HEAD "0}\n"),
    TRI_FUZZ_SEED(HEAD "2}\n" CALL CALL),
    TRI_FUZZ_REFUSED(HEAD "1}\n" CALL CALL),
    TRI_FUZZ_REFUSED(HEAD "2}\n" CALL "{}\n"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"kept\":",     "\"sequence\":9223372036854775807",
                                      "\"send_recv\"", "\"TRI_OK\"",
                                      "\"end_ns\":0",  "{}\n",
                                      "[[[[",          "\\u0000",
                                      "\xff",          "-1",
                                      "1e400"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
