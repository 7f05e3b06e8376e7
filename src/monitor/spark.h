/* SPDX-License-Identifier: Apache-2.0
 *
 * spark.h: a row of numbers of any length as a few columns of blocks: "▇▅▃▂▂▁".
 */
#ifndef TRI_MONITOR_SPARK_H
#define TRI_MONITOR_SPARK_H

#include <stdint.h>

#define TRI_SPARK_COLUMNS 16
#define TRI_SPARK_NBYTES  (3 * TRI_SPARK_COLUMNS + 1)

/* Each column is the mean of `each` numbers; when there is no column left, two become one. Zeroed: empty. */
typedef struct tri_spark {
    double columns[TRI_SPARK_COLUMNS];
    int count;
    int64_t each;   /* 0: as 1 */
    double sum;     /* of the column under way, */
    int64_t summed; /* of how many numbers */
} tri_spark;

/* Numbers that are none are passed over. */
void tri_spark_add(tri_spark *spark, double value);
/* UTF-8, lowest to highest of what is there; "" when empty. */
const char *tri_spark_print(const tri_spark *spark, char text[TRI_SPARK_NBYTES]);

#endif
