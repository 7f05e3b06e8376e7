/* SPDX-License-Identifier: Apache-2.0
 *
 * spark.c: a run's history in constant memory.
 */
#include "monitor/spark.h"

#include <math.h>
#include <string.h>

void tri_spark_add(tri_spark *spark, double value)
{
    if (!isfinite(value))
        return;
    if (spark->count == TRI_SPARK_COLUMNS) {
        for (int i = 0; i < TRI_SPARK_COLUMNS / 2; i++)
            spark->columns[i] = 0.5 * (spark->columns[2 * i] + spark->columns[2 * i + 1]);
        spark->count = TRI_SPARK_COLUMNS / 2;
        spark->each *= 2;
    }
    if (spark->each == 0)
        spark->each = 1;
    spark->sum += value;
    if (++spark->summed < spark->each)
        return;
    spark->columns[spark->count++] = spark->sum / (double)spark->summed;
    spark->sum = 0;
    spark->summed = 0;
}

const char *tri_spark_print(const tri_spark *spark, char text[TRI_SPARK_NBYTES])
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double low = (double)INFINITY, high = (double)-INFINITY;
    char *end = text;
    for (int i = 0; i < spark->count; i++) {
        low = fmin(low, spark->columns[i]);
        high = fmax(high, spark->columns[i]);
    }
    for (int i = 0; i < spark->count; i++, end += 3) {
        int level = high > low ? (int)(8 * (spark->columns[i] - low) / (high - low)) : 0;
        memcpy(end, blocks[level < 8 ? level : 7], 3);
    }
    *end = 0;
    return text;
}
