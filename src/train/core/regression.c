/* SPDX-License-Identifier: Apache-2.0
 *
 * regression.c: of real targets, the mean absolute error and R2 = 1 - (squared error) / (variance of the targets).
 *
 * The kernel adds up absolute errors; what R2 needs of the targets alone is added up here, per shard: the squares of
 * all, and the sum of each number of a target. Several targets: their squared errors and variances are added up.
 */
#include <math.h>

#include "data/tables/table.h"
#include "train/core/regression.h"

#define MOST_NUMBERS INT64_C(64) /* of a target: of more, such as images, R2 is not computed */
#define ABSOLUTE     3           /* column of the loss */
#define SQUARES      TRI_LOSS_COLUMNS
#define FIRST_NUMBER (TRI_LOSS_COLUMNS + 1)

int64_t tri_job_regression_columns(const tri_job *job)
{
    const int64_t numbers = tri_shape_count(job->data.info.target);
    return job->data.info.classes == 0 && job->data.info.target_dtype == TRI_F32 && numbers <= MOST_NUMBERS
               ? 1 + numbers
               : 0;
}

void tri_job_regression_count(tri_job *job, const tri_loader_batch *batch)
{
    const int64_t numbers = job->test.columns - FIRST_NUMBER;
    if (job->test.columns == TRI_LOSS_COLUMNS || !batch->target || job->mesh.tensor_rank > 0)
        return;
    for (int64_t s = 0; s < job->test.shard_count; s++) {
        double *sums = job->test.sums + (job->test.first_shard + s) * job->test.columns;
        const float *targets = (const float *)batch->target + s * job->shards.rows * numbers;
        for (int64_t i = 0; i < batch->rows[s] * numbers; i++) {
            sums[SQUARES] += (double)targets[i] * (double)targets[i];
            sums[FIRST_NUMBER + i % numbers] += (double)targets[i];
        }
    }
}

/* What an absolute error of 1 is in the table's units; NaN: targets have several. */
static double unit_of(const tri_table *table)
{
    double unit = NAN;
    if (!table)
        return 1;
    for (size_t i = 0; i < table->count; i++) {
        const tri_column *column = &table->columns[i];
        if (column->target && !isnan(unit) && column->deviation != unit)
            return NAN;
        if (column->target)
            unit = column->deviation;
    }
    return unit;
}

void tri_job_regression_finish(tri_job *job, const double *total)
{
    tri_job_test *test = &job->test;
    const int64_t numbers = test->columns - FIRST_NUMBER;
    test->mae = test->r2 = NAN;
    if (test->columns == TRI_LOSS_COLUMNS || !(total[TRI_TAIL_WEIGHT] > 0))
        return;
    const double samples = total[TRI_TAIL_WEIGHT] / (double)numbers;
    double variance = total[SQUARES];
    for (int64_t i = 0; i < numbers; i++)
        variance -= total[FIRST_NUMBER + i] * total[FIRST_NUMBER + i] / samples;
    test->mae = total[ABSOLUTE] / total[TRI_TAIL_WEIGHT] * unit_of(job->data.table);
    test->r2 = variance > 0 ? 1 - total[TRI_TAIL_LOSS] / variance : NAN;
}
