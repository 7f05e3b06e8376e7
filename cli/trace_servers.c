/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_servers.c: `trireme trace summarize` of a run with parameter servers: what each server did, and how long each
 * worker waited for them.
 *
 * By what servers know of all workers, also of those that are not traced: from the last push of a step, or the last
 * wish for values, that a worker sent until it had been given the last values, it waited.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/trace.h"

static int operation_order(const void *a, const void *b)
{
    const tri_server_operation *one = a, *other = b;
    if (one->worker != other->worker)
        return one->worker - other->worker;
    return one->at != other->at ? (one->at > other->at ? 1 : -1) : 0;
}

/* Pulls, by worker and then by time: those of one step are one wait, which begins with what was asked for last. */
static void waits_reckon(const tri_vector *pulls, tri_servers_view *view)
{
    const tri_server_operation *items = pulls->items;
    for (size_t i = 0, end; i < pulls->count; i = end) {
        double asked = -INFINITY;
        for (end = i; end < pulls->count && items[end].worker == items[i].worker && items[end].step == items[i].step;
             end++)
            asked = fmax(asked, items[end].at - items[end].waited_us);
        view->waits[items[i].worker].waited_us += items[end - 1].at - asked;
        view->waits[items[i].worker].times++;
    }
}

tri_status tri_servers_reckon(tri_server_operations *operations, tri_servers_view *view)
{
    if (operations->servers == 0)
        return TRI_OK;
    view->servers = tri_alloc_zero((size_t)operations->servers, sizeof(*view->servers));
    view->waits = tri_alloc_zero((size_t)operations->workers, sizeof(*view->waits));
    if (!view->servers || !view->waits)
        return TRI_ENOMEM;
    view->count = operations->servers;
    view->workers = operations->workers;
    double first = INFINITY, last = -INFINITY;
    for (size_t i = 0; i < operations->items.count; i++) {
        const tri_server_operation *operation = tri_vector_at(&operations->items, i);
        tri_server_view *server = &view->servers[operation->server];
        first = fmin(first, operation->at - operation->waited_us);
        last = fmax(last, operation->at + operation->took_us);
        *(operation->pulls ? &server->pulls : &server->pushes) += 1;
        *(operation->pulls ? &server->out_bytes : &server->in_bytes) += operation->nbytes;
        server->busy_us += operation->took_us;
    }
    view->all_us = last > first ? last - first : 0;
    tri_vector pulls = {.each = sizeof(tri_server_operation)};
    for (size_t i = 0; i < operations->items.count; i++) {
        const tri_server_operation *operation = tri_vector_at(&operations->items, i);
        if (operation->pulls && !tri_vector_push(&pulls, operation)) {
            tri_vector_fini(&pulls);
            return TRI_ENOMEM;
        }
    }
    if (pulls.count > 1)
        qsort(pulls.items, pulls.count, sizeof(tri_server_operation), operation_order);
    waits_reckon(&pulls, view);
    tri_vector_fini(&pulls);
    return TRI_OK;
}

void tri_servers_view_fini(tri_servers_view *view)
{
    tri_free(view->servers);
    tri_free(view->waits);
    *view = (tri_servers_view){0};
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

void tri_servers_print(const tri_servers_view *view)
{
    if (view->count == 0)
        return;
    printf("\nserver   pushes     MB in  taking them in     pulls    MB out\n");
    for (int s = 0; s < view->count; s++) {
        const tri_server_view *server = &view->servers[s];
        printf("%6d %8lld %9.2f %11.0f %%   %8lld %9.2f\n", s, (long long)server->pushes, server->in_bytes / 1e6,
               percent(server->busy_us, view->all_us), (long long)server->pulls, server->out_bytes / 1e6);
    }
    printf("\nworker  waited for servers: ms a step   of the time\n");
    for (int w = 0; w < view->workers; w++) {
        const tri_wait_view *wait = &view->waits[w];
        printf("%6d %31.2f %11.0f %%\n", w, wait->times > 0 ? wait->waited_us / (double)wait->times / 1e3 : 0.0,
               percent(wait->waited_us, view->all_us));
    }
}

void tri_servers_json(const tri_servers_view *view, tri_json *all)
{
    if (view->count == 0)
        return;
    tri_json list = tri_json_array_in(all, "servers");
    for (int s = 0; s < view->count; s++) {
        const tri_server_view *server = &view->servers[s];
        tri_json one = tri_json_object_in(&list, NULL);
        tri_json_int(&one, "server", s);
        tri_json_int(&one, "pushes", server->pushes);
        tri_json_real(&one, "in_bytes", server->in_bytes);
        tri_json_real(&one, "busy_us", server->busy_us);
        tri_json_int(&one, "pulls", server->pulls);
        tri_json_real(&one, "out_bytes", server->out_bytes);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&list);
    list = tri_json_array_in(all, "waits_for_servers");
    for (int w = 0; w < view->workers; w++) {
        tri_json one = tri_json_object_in(&list, NULL);
        tri_json_int(&one, "worker", w);
        tri_json_real(&one, "waited_us", view->waits[w].waited_us);
        tri_json_int(&one, "times", view->waits[w].times);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&list);
    tri_json_real(all, "servers_us", view->all_us);
}

void tri_servers_advise(const tri_servers_view *view, char *text, size_t capacity)
{
    int busiest = 0, least = 0;
    double most = 0;
    text[0] = 0;
    for (int s = 0; s < view->count; s++)
        if (view->servers[s].busy_us > view->servers[busiest].busy_us)
            busiest = s;
    for (int w = 0; w < view->workers; w++) {
        least = view->waits[w].waited_us < view->waits[least].waited_us ? w : least;
        most = fmax(most, view->waits[w].waited_us);
    }
    if (view->count == 0 || view->all_us <= 0)
        return;
    if (percent(view->servers[busiest].busy_us, view->all_us) > 50)
        snprintf(text, capacity,
                 "server %d takes in pushes %.0f %% of the time: more servers (--servers), more samples a step, "
                 "ps.values=bf16",
                 busiest, percent(view->servers[busiest].busy_us, view->all_us));
    else if (view->workers > 1 && percent(most - view->waits[least].waited_us, view->all_us) > 10)
        snprintf(
            text, capacity,
            "worker %d is waited for: the servers have what the others sent, and it waits least itself; look at its "
            "host first ('trireme doctor'), or at ps.consistency=ssp, async and ps.backup_workers",
            least);
    else if (percent(most, view->all_us) > 15)
        snprintf(
            text, capacity,
            "workers wait for servers %.0f %% of the time, and servers are not busy: the way between them is long or "
            "narrow; more samples a step, ps.values=bf16, more servers",
            percent(most, view->all_us));
}
