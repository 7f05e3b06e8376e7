/* SPDX-License-Identifier: Apache-2.0
 *
 * test_saves.c: a save that is killed at each of its system calls, or told that one of them failed: what loads
 * afterwards is the old checkpoint or the new one, to the bit, and the next save leaves no trace of it.
 *
 * One process writes all, or three write a share each; each of them in turn is the one that is struck.
 * usage: test_saves [--figures]: more of them, and a line each for bench/reliability.
 *        test_saves --write FOLDER TOLD: three writers save step after step; TOLD has the newest that was said to be
 * saved test_saves --load FOLDER: checks all, prints the newest step (powercut.sh)
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "checkpoint/draft.h"
#include "checkpoint/manifest.h"
#include "process/traced.h"

#define WEIGHTS 262400 /* a little more than one piece under one checksum */
#define RUN     3000   /* elements that are neighbours in one writer's share: whole blocks of the disk and parts */

static struct {
    int points, kept, made; /* struck, of these with the old checkpoint after it, with the new one */
} figures;

/* What the writers of one save and their parent share. */
typedef struct board {
    atomic_bool created, hopeless; /* the draft is there; somebody is dead, or could not begin */
} board;

typedef struct content {
    float weight[WEIGHTS], bias[5], moment[300];
    tri_checkpoint_slice model[2], state[1];
} content;

static void content_make(content *values, int64_t step)
{
    for (int i = 0; i < WEIGHTS; i++)
        values->weight[i] = (float)(step * 1000 + i);
    for (int i = 0; i < 5; i++)
        values->bias[i] = (float)step;
    for (int i = 0; i < 300; i++)
        values->moment[i] = (float)(-step - i);
    values->model[0] = (tri_checkpoint_slice){.name = "a.weight", .shape = {1, {WEIGHTS}}, .values = values->weight};
    values->model[1] = (tri_checkpoint_slice){.name = "a.bias", .shape = {1, {5}}, .values = values->bias};
    values->state[0] = (tri_checkpoint_slice){.name = "m.a.weight", .shape = {2, {3, 100}}, .values = values->moment};
}

/* A writer's runs of one slice. */
static tri_status share_put(tri_checkpoint_draft *draft, int number, const tri_checkpoint_slice *slice, int rank,
                            int writers)
{
    int64_t all = tri_shape_count(slice->shape);
    for (int64_t first = (int64_t)rank * RUN; first < all; first += (int64_t)writers * RUN)
        TRI_TRY(tri_checkpoint_draft_put(draft, number, first, all - first < RUN ? all - first : RUN,
                                         slice->values + first));
    return TRI_OK;
}

static tri_status write_share(tri_checkpoint_draft *draft, const content *values, int rank, int writers)
{
    TRI_TRY(share_put(draft, 0, &values->model[0], rank, writers));
    TRI_TRY(share_put(draft, 1, &values->model[1], rank, writers));
    TRI_TRY(share_put(draft, 2, &values->state[0], rank, writers));
    return tri_checkpoint_draft_sync(draft);
}

static tri_status write_all(const char *folder, int64_t step, int rank, int writers, board *common)
{
    static content values;
    tri_checkpoint_draft *draft = NULL;
    content_make(&values, step);
    const tri_checkpoint_draft_setup setup = {.place = {folder, 2, 0},
                                              .step = step,
                                              .mark = 77,
                                              .given_up = &common->hopeless,
                                              .content = {values.model, values.state, 2, 1}};
    tri_status status = rank == 0 ? tri_checkpoint_draft_create(&setup, &draft) : TRI_OK;
    if (rank == 0)
        atomic_store(status == TRI_OK ? &common->created : &common->hopeless, true);
    while (!atomic_load(&common->created) && !atomic_load(&common->hopeless))
        usleep(200);
    if (rank > 0)
        status = tri_checkpoint_draft_join(&setup, &draft);
    if (rank > 0 && status != TRI_OK)
        atomic_store(&common->hopeless, true);
    if (status == TRI_OK)
        status = write_share(draft, &values, rank, writers);
    if (rank > 0 && draft && tri_checkpoint_draft_tell(draft, rank, status) != TRI_OK)
        atomic_store(&common->hopeless, true);
    if (rank == 0 && status == TRI_OK && writers > 1)
        status = tri_checkpoint_draft_gather(draft, writers, 60000);
    if (rank == 0 && status == TRI_OK)
        status = tri_checkpoint_draft_commit(draft, &(tri_checkpoint_manifest){.step = step, .bits = "reproducible"});
    tri_checkpoint_draft_close(draft);
    return status;
}

/* All writers of one save; *said: that of rank 0 said that it is saved. */
static traced_end save_struck(const char *folder, int64_t step, int writers, int struck, const traced_plan *plan,
                              bool *said)
{
    board *common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[4];
    assert_true(common != MAP_FAILED);
    for (int rank = 0; rank < writers; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            if (rank == struck)
                traced_begin();
            _exit(write_all(folder, step, rank, writers, common) == TRI_OK ? 0 : 1);
        }
    }
    traced_end end = traced_run(pids[struck], plan);
    *said = WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0;
    if (WIFSIGNALED(end.status))
        atomic_store(&common->hopeless, true);
    for (int rank = 0; rank < writers; rank++) {
        int status = 0;
        if (rank == struck)
            continue;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_true(WIFEXITED(status)); /* who was not struck ends by itself */
        if (rank == 0)
            *said = WEXITSTATUS(status) == 0;
    }
    munmap(common, sizeof(*common));
    return end;
}

/* Every visible checkpoint is whole; the newest is of `step` or the one before it, with its values; returns its step.
 */
static int64_t loads(const char *folder, int64_t step, const char *where)
{
    static content wanted, found;
    char **names = NULL, *path = NULL;
    size_t count = 0;
    tri_string skipped = {0};
    tri_checkpoint_manifest manifest;
    assert_int_equal(tri_fs_list(folder, &names, &count), TRI_OK);
    tri_fs_list_free(names, count);
    if (tri_checkpoint_newest(folder, &path, &skipped) != TRI_OK || skipped.nbytes > 0)
        fail_msg("%s: %s %s", where, tri_last_error(), tri_string_text(&skipped));
    content_make(&found, -1);
    const tri_checkpoint_content into = {found.model, found.state, 2, 1};
    assert_int_equal(tri_checkpoint_load(path, &manifest, &into), TRI_OK);
    if (manifest.step != step && manifest.step != step - 1)
        fail_msg("%s: step %lld is the newest, want %lld or the one before", where, (long long)manifest.step,
                 (long long)step);
    content_make(&wanted, manifest.step);
    assert_memory_equal(found.weight, wanted.weight, sizeof(wanted.weight));
    assert_memory_equal(found.bias, wanted.bias, sizeof(wanted.bias));
    assert_memory_equal(found.moment, wanted.moment, sizeof(wanted.moment));
    tri_free(path);
    return manifest.step;
}

static void assert_tidy(const char *folder, const char *where)
{
    char **names, **files, path[400];
    size_t count, file_count;
    assert_int_equal(tri_fs_list(folder, &names, &count), TRI_OK);
    assert_true(count <= 2);
    for (size_t i = 0; i < count; i++) {
        int64_t step;
        if (!tri_checkpoint_name_step(names[i], &step))
            fail_msg("%s: %s is left behind", where, names[i]);
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(tri_fs_list(path, &files, &file_count), TRI_OK);
        assert_int_equal(file_count, 3);
        tri_fs_list_free(files, file_count);
    }
    tri_fs_list_free(names, count);
}

static bool all; /* also what takes long */

/* One save after the other, struck at one call later each time (of three writers: three later, each rank at others),
 * until it has no more. again: it is of a step that is there. */
static void strike_everywhere(int writers, int struck, bool again, traced_fault fault, int error)
{
    char folder[64], where[160];
    bool said;
    snprintf(folder, sizeof(folder), "%s/trireme-saves-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    int64_t step = 1;
    save_struck(folder, step, writers, struck, &(traced_plan){fault, error, 0}, &said);
    assert_true(said);
    for (int at = 1 + struck;; at += all || writers == 1 ? 1 : 3, step += 2) {
        int64_t aim = again ? step : step + 1;
        traced_end end = save_struck(folder, aim, writers, struck, &(traced_plan){fault, error, at}, &said);
        snprintf(where, sizeof(where), "%d writers, rank %d,%s fault %d (%d) at call %d, %s", writers, struck,
                 again ? " again," : "", fault, error, at, end.name);
        if (fault != TRACED_KILL && fault != TRACED_KILL_ANY && !WIFEXITED(end.status))
            fail_msg("%s: it ended with %x", where, (unsigned)end.status);
        int64_t newest = loads(folder, step + 1, where);
        if (said && newest != aim)
            fail_msg("%s: it said that it was saved, and is not there", where);
        save_struck(folder, step + 2, writers, struck, &(traced_plan){fault, error, 0}, &said);
        if (!said)
            fail_msg("%s: the next save did not succeed", where);
        assert_int_equal(loads(folder, step + 2, where), step + 2);
        assert_tidy(folder, where);
        if (!end.hit)
            break;
        figures.points++;
        figures.kept += newest != aim;
        figures.made += newest == aim;
    }
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

static void a_kill_at_any_call_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    if (!traced_works())
        skip();
    traced_fault fault = all ? TRACED_KILL_ANY : TRACED_KILL;
    strike_everywhere(1, 0, false, fault, 0);
    strike_everywhere(1, 0, true, fault, 0);
    for (int rank = 0; rank < 3; rank++)
        strike_everywhere(3, rank, false, fault, 0);
}

static void an_error_of_any_call_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, EIO, EINTR, EROFS};
    if (!traced_works())
        skip();
    for (int e = 0; e < (all ? 4 : 1); e++)
        strike_everywhere(1, 0, all && e % 2, TRACED_ERROR, errors[e]);
    for (int rank = 0; rank < (all ? 3 : 2); rank++)
        strike_everywhere(3, rank, false, TRACED_ERROR, EIO);
    strike_everywhere(3, 1, false, TRACED_SHORT, 0);
    strike_everywhere(1, 0, false, TRACED_SHORT, 0);
}

/* For powercut.sh, until it is killed. */
static int write_on(const char *folder, const char *told)
{
    board *common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED)
        return 1;
    for (int64_t step = 1;; step++) {
        int good = 1;
        *common = (board){0};
        for (int rank = 0; rank < 3; rank++)
            if (fork() == 0)
                _exit(write_all(folder, step, rank, 3, common) == TRI_OK ? 0 : 1);
        for (int rank = 0, status; rank < 3; rank++)
            good &= wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        char text[32];
        int nbytes = snprintf(text, sizeof(text), "%lld\n", (long long)step);
        if (!good || tri_fs_write_swap(told, text, (size_t)nbytes) != TRI_OK)
            return 1;
    }
}

static int load_on(const char *folder)
{
    static content wanted, found;
    char *path = NULL;
    tri_string skipped = {0};
    tri_checkpoint_manifest manifest = {0};
    content_make(&found, -1);
    const tri_checkpoint_content into = {found.model, found.state, 2, 1};
    tri_status status = tri_checkpoint_clear(folder);
    if (status == TRI_OK)
        status = tri_checkpoint_newest(folder, &path, &skipped);
    if (status == TRI_OK)
        status = tri_checkpoint_load(path, &manifest, &into);
    content_make(&wanted, manifest.step);
    bool same = memcmp(found.weight, wanted.weight, sizeof(wanted.weight)) == 0 &&
                memcmp(found.moment, wanted.moment, sizeof(wanted.moment)) == 0;
    if (status != TRI_OK || skipped.nbytes > 0 || !same)
        printf("torn %s %s\n", status != TRI_OK ? tri_last_error() : "", tri_string_text(&skipped));
    else
        printf("%lld\n", (long long)manifest.step);
    tri_free(path);
    tri_string_fini(&skipped);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--write") == 0)
        return write_on(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "--load") == 0)
        return load_on(argv[2]);
    const struct CMUnitTest kills[] = {cmocka_unit_test(a_kill_at_any_call_leaves_the_old_or_the_new)};
    const struct CMUnitTest errors[] = {cmocka_unit_test(an_error_of_any_call_leaves_the_old_or_the_new)};
    bool tells = argc > 1 && strcmp(argv[1], "--figures") == 0;
    all = tells;
    int failed = 0;
    for (int test = 0; test < 2; test++) {
        int64_t start_ns = tri_now_ns();
        memset(&figures, 0, sizeof(figures));
        failed += test == 0 ? cmocka_run_group_tests(kills, NULL, NULL) : cmocka_run_group_tests(errors, NULL, NULL);
        if (tells)
            printf("figures %s points %d old %d new %d seconds %.1f\n", test == 0 ? "kill" : "error", figures.points,
                   figures.kept, figures.made, (double)(tri_now_ns() - start_ns) / 1e9);
    }
    return failed;
}
