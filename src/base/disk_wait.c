/* SPDX-License-Identifier: Apache-2.0 */
#include "base/disk_wait.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "base/task.h"

#define LOOK_MS  50
#define MOST_GAP 4 /* looks: a process that was stopped has not seen what was between */

struct tri_disk_wait {
    char helper[16];
    tri_thread *thread;
    atomic_bool wants_data; /* the main thread waits for them */
    tri_mutex mutex;        /* of what follows */
    tri_cond cond;
    bool ends;
    int64_t looked_ns;
    double own_s, data_s;
};

/* Threads of a team have the name that the main thread has; those of checkpoints and of
 * connections have others, and nobody waits for them here. */
static bool helper_waits(const tri_disk_wait *wait, const tri_task *main)
{
    char path[64], **names = NULL;
    size_t count = 0;
    bool found = false;
    tri_task thread;
    snprintf(path, sizeof(path), "/proc/%ld/task", (long)getpid());
    if (tri_fs_list(path, &names, &count) != TRI_OK)
        return false;
    for (size_t i = 0; i < count && !found; i++)
        found = tri_task_look(getpid(), (pid_t)atol(names[i]), &thread) && thread.state == 'D' &&
                (strcmp(thread.name, main->name) == 0 || strcmp(thread.name, wait->helper) == 0);
    tri_fs_list_free(names, count);
    return found;
}

static void look(tri_disk_wait *wait)
{
    tri_task main;
    const int64_t now_ns = tri_now_ns(), most_ns = MOST_GAP * LOOK_MS * TRI_NS_PER_MS;
    const int64_t passed_ns = now_ns - wait->looked_ns;
    const double seconds = (double)(passed_ns < most_ns ? passed_ns : most_ns) / 1e9;
    wait->looked_ns = now_ns;
    if (!tri_task_look(getpid(), getpid(), &main))
        return;
    if (main.state == 'D')
        wait->own_s += seconds;
    else if (main.state == 'S' && atomic_load(&wait->wants_data) && helper_waits(wait, &main))
        wait->data_s += seconds;
}

static void body(void *arg)
{
    tri_disk_wait *wait = arg;
    tri_mutex_lock(&wait->mutex);
    while (!wait->ends) {
        (void)tri_cond_wait(&wait->cond, &wait->mutex, tri_deadline_after_ms(LOOK_MS));
        look(wait);
    }
    tri_mutex_unlock(&wait->mutex);
}

tri_status tri_disk_wait_start(const char *helper, tri_disk_wait **out)
{
    *out = NULL;
    if (tri_sim_active())
        return TRI_OK;
    tri_disk_wait *wait = tri_alloc_zero(1, sizeof(*wait));
    if (!wait)
        return TRI_ENOMEM;
    snprintf(wait->helper, sizeof(wait->helper), "%s", helper);
    tri_mutex_init(&wait->mutex);
    tri_cond_init(&wait->cond);
    wait->looked_ns = tri_now_ns();
    tri_status status = tri_thread_start(&wait->thread, "disk wait", body, wait);
    if (status == TRI_OK)
        *out = wait;
    else
        tri_disk_wait_stop(wait);
    return status;
}

void tri_disk_wait_data(tri_disk_wait *wait, bool begins)
{
    if (wait)
        atomic_store(&wait->wants_data, begins);
}

void tri_disk_wait_read(tri_disk_wait *wait, tri_strain *out)
{
    if (!wait)
        return;
    tri_mutex_lock(&wait->mutex);
    out->disk_seconds_total = wait->own_s;
    out->data_disk_seconds_total = wait->data_s;
    tri_mutex_unlock(&wait->mutex);
}

void tri_disk_wait_stop(tri_disk_wait *wait)
{
    if (!wait)
        return;
    tri_mutex_lock(&wait->mutex);
    wait->ends = true;
    tri_cond_signal(&wait->cond);
    tri_mutex_unlock(&wait->mutex);
    tri_thread_join(wait->thread);
    tri_cond_fini(&wait->cond);
    tri_mutex_fini(&wait->mutex);
    tri_free(wait);
}
