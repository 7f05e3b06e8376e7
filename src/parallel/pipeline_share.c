/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline_share.c: what the stages tell each other once a step is computed: the tail, gradients of tied weights, the
 * norm, and where the time went.
 *
 * Sums over ranks in which all but one give zeros are exact.
 */
#include "base/memory.h"
#include "base/status.h"
#include "parallel/pipeline_impl.h"

/* --- tied weights --- */

typedef struct tied_plan {
    const tri_pipeline_setup *setup;
    bool *wanted; /* [ranks][parameters of the model] */
    tri_pipeline *p;
} tied_plan;

static bool holds(const tied_plan *plan, int rank, int number)
{
    return plan->wanted[(size_t)rank * plan->setup->model->params.count + (size_t)number];
}

/* The gradient of a parameter as an entry (tie -1) or tie goes from where it is made to all others who hold it. */
static void gradient_plan(const tied_plan *plan, int number, int tie)
{
    tri_pipeline *p = plan->p;
    int maker = tri_stages_maker(plan->setup->model, plan->setup->stages, number, tie) % p->ranks;
    int place = p->params->of_model[number];
    for (int t = 0; tie >= 0 && t < p->params->tie_count; t++)
        if (p->params->ties[t].number == tie)
            place = p->params->entry_count + t;
    for (int rank = 0; rank < p->ranks; rank++) {
        if (rank == maker || !holds(plan, rank, number) || (p->rank != maker && p->rank != rank))
            continue;
        p->tied[p->tied_count++] =
            (pipe_tied){.number = place, .peer = p->rank == maker ? rank : maker, .sends = p->rank == maker};
    }
}

tri_status tri_pipe_tied_plan(tri_pipeline *pipeline, const tri_pipeline_setup *setup)
{
    const int *numbers = setup->model->ties.items;
    size_t ties = setup->model->ties.count, ranks = (size_t)pipeline->ranks;
    pipeline->tied = tri_alloc_zero(2 * ties * ranks, sizeof(*pipeline->tied));
    tied_plan plan = {setup, tri_alloc_zero(ranks * setup->model->params.count, sizeof(bool)), pipeline};
    if (!pipeline->tied || !plan.wanted) {
        tri_free(plan.wanted);
        return TRI_ENOMEM;
    }
    for (size_t r = 0; r < ranks; r++)
        tri_stages_wanted(setup->model, setup->stages, pipeline->ranks, (int)r,
                          plan.wanted + r * setup->model->params.count);
    for (size_t t = 0; t < ties; t++) {
        bool first = true; /* of the ties of its parameter */
        for (size_t before = 0; before < t; before++)
            first = first && numbers[before] != numbers[t];
        if (first)
            gradient_plan(&plan, numbers[t], -1);
        gradient_plan(&plan, numbers[t], (int)t);
    }
    tri_free(plan.wanted);
    return TRI_OK;
}

/* All ranks go along the same list, so nobody waits for somebody who waits for him. */
static tri_status tied_exchange(tri_pipeline *pipeline, const tri_pipeline_sums *sums)
{
    for (int i = 0; i < pipeline->tied_count; i++) {
        const pipe_tied *tied = &pipeline->tied[i];
        int64_t count;
        float *sum = sums->find(sums->arg, tied->number, &count);
        if (count > 0)
            TRI_TRY(tied->sends ? tri_send(pipeline->group, sum, count, TRI_F32, tied->peer, NULL)
                                : tri_receive(pipeline->group, sum, count, TRI_F32, tied->peer, NULL));
    }
    return TRI_OK;
}

/* --- the rest --- */

tri_status tri_pipeline_share(tri_pipeline *pipeline, const tri_pipeline_sums *sums)
{
    tri_group_name_next(pipeline->group, "the tail");
    tri_status status =
        tri_all_reduce(pipeline->group, sums->tail, sums->tail, TRI_PARAMS_TAIL, TRI_F32, TRI_REDUCE_SUM, NULL);
    tri_group_name_next(pipeline->group, "gradients of tied weights");
    if (status == TRI_OK)
        status = tied_exchange(pipeline, sums);
    tri_group_name_next(pipeline->group, "");
    return status;
}

tri_status tri_pipeline_gather_times(tri_pipeline *pipeline, tri_pipeline_times *times, double *bubble)
{
    enum { EACH = sizeof(*times) / sizeof(double) };
    double idle = 0, all = 0;
    tri_group_name_next(pipeline->group, "times of stages");
    tri_status status = tri_all_gather(pipeline->group, &pipeline->times, times, EACH, TRI_F64, NULL);
    tri_group_name_next(pipeline->group, "");
    TRI_TRY(status);
    for (int r = 0; r < pipeline->ranks; r++) {
        idle += times[r].idle;
        all += times[r].idle + times[r].forward + times[r].backward + times[r].adding;
    }
    *bubble = all > 0 ? idle / all : 0;
    return TRI_OK;
}
