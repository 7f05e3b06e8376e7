/* SPDX-License-Identifier: Apache-2.0
 *
 * print.c: a result as a line of a table, or as one JSON object whose keys other programs rely on.
 */
#include <stdio.h>

#include "base/json.h"
#include "cli/bench/bench.h"

void bench_print_head(void)
{
    printf("%-20s %5s %12s %-5s %-9s %-12s %12s %12s %12s %9s %9s %6s\n", "op", "ranks", "bytes", "type", "transport",
           "algorithm", "median us", "p99 us", "min us", "alg GB/s", "bus GB/s", "wrong");
}

/* "all_reduce", or "all_reduce:min" for another reduction than the sum. */
static const char *name_of(const bench_case *c, char text[64])
{
    bool plain = !c->op->reduces || c->reduce == TRI_REDUCE_SUM;
    snprintf(text, 64, "%s%s%s", c->op->name, plain ? "" : ":", plain ? "" : tri_reduce_name(c->reduce));
    return text;
}

static tri_status print_json(const bench_case *c, const char *name, const char *transport, const bench_result *result,
                             double algbw, double busbw)
{
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_text(&json, "op", name);
    tri_json_int(&json, "ranks", c->ranks);
    tri_json_int(&json, "bytes", result->nbytes);
    tri_json_text(&json, "dtype", tri_dtype_name(c->dtype));
    tri_json_text(&json, "transport", transport);
    tri_json_text(&json, "engine", tri_comm_engine(c->comm));
    tri_json_text(&json, "algorithm", result->algorithm);
    tri_json_real(&json, "time_us", result->median_us);
    tri_json_real(&json, "p99_us", result->p99_us);
    tri_json_real(&json, "algbw_gbs", algbw);
    tri_json_real(&json, "busbw_gbs", busbw);
    tri_json_int(&json, "wrong", result->wrong);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&line));
    tri_string_fini(&line);
    return status;
}

tri_status bench_print_result(const bench_case *c, const bench_config *config, const bench_result *result)
{
    char name[64];
    double algbw = (double)result->nbytes / result->median_us / 1e3, busbw = algbw * c->op->bus_factor(c->ranks);
    const char *transport = c->ranks > 1 ? tri_comm_transport(c->comm, 1) : "none";
    name_of(c, name);
    tri_status status = TRI_OK;
    if (config->json)
        status = print_json(c, name, transport, result, algbw, busbw);
    else
        printf("%s%-20s %5d %12lld %-5s %-9s %-12s %12.2f %12.2f %12.2f %9.3f %9.3f %6lld\n",
               tri_string_text(&result->prices), name, c->ranks, (long long)result->nbytes, tri_dtype_name(c->dtype),
               transport, result->algorithm, result->median_us, result->p99_us, result->least_us, algbw, busbw,
               (long long)result->wrong);
    fflush(stdout);
    return status;
}

tri_status bench_print_start(int ranks, double us, bool json)
{
    if (json)
        printf("{\"op\":\"start\",\"ranks\":%d,\"time_us\":%.1f}\n", ranks, us);
    else
        printf("launch to the end of the first barrier, %d ranks: %.1f ms\n", ranks, us / 1e3);
    return TRI_OK;
}
