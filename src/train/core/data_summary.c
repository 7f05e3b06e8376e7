/* SPDX-License-Identifier: Apache-2.0
 *
 * data_summary.c: what a run says of its data when it begins: what was understood, the samples of each part, and how
 * many of them each class has.
 */
#include <stdio.h>

#include "base/log.h"
#include "train/core/build.h"
#include "train/core/job.h"

#define CLASSES_SHOWN 20
#define LACKING_SHOWN 5

static const char *class_name(const tri_dataset *dataset, int64_t class, char number[24])
{
    if (class < dataset->names.count)
        return dataset->names.texts[class];
    snprintf(number, 24, "%lld", (long long)class);
    return number;
}

/* "red 36 + 4, blue 36 + 4" */
static tri_status classes_print(const tri_dataset *training, const int64_t *counts, const int64_t *others,
                                tri_string *out)
{
    char number[24];
    const int64_t classes = training->info.classes;
    TRI_TRY(tri_string_append(out, "; of each class: "));
    for (int64_t c = 0; c < classes && c < CLASSES_SHOWN; c++) {
        TRI_TRY(tri_string_appendf(out, "%s%s %lld", c > 0 ? ", " : "", class_name(training, c, number),
                                   (long long)counts[c]));
        if (others)
            TRI_TRY(tri_string_appendf(out, " + %lld", (long long)others[c]));
    }
    return classes > CLASSES_SHOWN ? tri_string_append(out, ", ...") : TRI_OK;
}

/* A class that no sample of a part has: it is not learned, or nobody knows how well. */
static tri_status lacking_warn(const tri_dataset *training, const int64_t *counts, tri_data_part part)
{
    tri_string names = {0};
    char number[24];
    int64_t lacking = 0;
    tri_status status = TRI_OK;
    for (int64_t c = 0; c < training->info.classes && status == TRI_OK; c++)
        if (counts[c] == 0 && ++lacking <= LACKING_SHOWN)
            status = tri_string_appendf(&names, "%s'%s'", lacking > 1 ? ", " : "", class_name(training, c, number));
    if (status == TRI_OK && lacking > 0)
        tri_log(TRI_LOG_WARN, "no %s sample is of %s %s%s", tri_data_part_name(part),
                lacking > 1 ? "the classes" : "the class", tri_string_text(&names),
                lacking > LACKING_SHOWN ? ", ..." : "");
    tri_string_fini(&names);
    return status;
}

static tri_status counts_tell(tri_dataset *training, tri_dataset *evaluated, tri_data_part part, tri_string *out)
{
    int64_t *counts = NULL, *others = NULL;
    tri_status status = tri_dataset_count_classes(training, &counts);
    if (status == TRI_OK && evaluated)
        status = tri_dataset_count_classes(evaluated, &others);
    if (others && evaluated->info.classes < training->info.classes) {
        tri_free(others);
        others = NULL;
    }
    if (status == TRI_OK && counts)
        status = classes_print(training, counts, others, out);
    if (status == TRI_OK && counts)
        status = lacking_warn(training, counts, TRI_PART_TRAIN);
    if (status == TRI_OK && others)
        status = lacking_warn(training, others, part);
    tri_free(counts);
    tri_free(others);
    return status;
}

tri_status tri_job_data_tell(const tri_job *job, tri_dataset *training, tri_dataset *evaluated)
{
    const bool knows = training->ops->describe || training->ops->classes;
    tri_string text = {0};
    if (job->rank != 0 || job->elastic.number > 1 || tri_job_follows(job) || !knows)
        return TRI_OK;
    tri_status status = training->ops->describe ? training->ops->describe(training, &text)
                                                : tri_string_append(&text, training->ops->name);
    if (status == TRI_OK)
        tri_log(TRI_LOG_INFO, "data: %s", text.text);
    tri_string_clear(&text);
    if (status == TRI_OK)
        status = tri_string_appendf(&text, "%lld training", (long long)training->info.count);
    if (status == TRI_OK && evaluated)
        status = tri_string_appendf(&text, " and %lld %s", (long long)evaluated->info.count,
                                    tri_data_part_name(job->test.part));
    if (status == TRI_OK)
        status = tri_string_append(&text, " samples");
    if (status == TRI_OK)
        status = counts_tell(training, evaluated, job->test.part, &text);
    if (status == TRI_OK)
        tri_log(TRI_LOG_INFO, "data: %s", text.text);
    tri_string_fini(&text);
    return status;
}
