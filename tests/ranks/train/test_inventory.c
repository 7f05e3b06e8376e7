/* SPDX-License-Identifier: Apache-2.0
 *
 * test_inventory.c: the mesh of ranks, and tensors whose elements lie with several of them: rank 0 reads them whole and
 * hands them out again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "nn/build.h"
#include "parallel/mesh.h"
#include "ranks/comm_spawn.h"
#include "train/checkpointing/shard_map.h"

static tri_parallel_config config_of(const char *data, const char *tensor, const char *pipeline)
{
    tri_parallel_config config;
    tri_options_defaults(&tri_parallel_options, &config);
    (void)tri_options_set(&tri_parallel_options, &config, "data", data);
    (void)tri_options_set(&tri_parallel_options, &config, "tensor", tensor);
    (void)tri_options_set(&tri_parallel_options, &config, "pipeline", pipeline);
    return config;
}

/* --- the mesh --- */

static int64_t sum_along(tri_group *group, int64_t value)
{
    if (group && tri_all_reduce(group, &value, &value, 1, TRI_I64, TRI_REDUCE_SUM, NULL) != TRI_OK)
        return -1;
    return value;
}

/* Sums of the ranks' numbers along each edge of 2 x 2 x 2. */
static void sums_edges(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_parallel_config config = config_of("2", "auto", "2");
    tri_mesh mesh;
    SPAWN_CHECK(self, tri_mesh_open(&config, comm, &mesh) == TRI_OK);
    int r = self->rank;
    SPAWN_CHECK(self, mesh.tensor_rank == r % 2 && mesh.data_rank == r / 2 % 2 && mesh.stage == r / 4);
    SPAWN_CHECK(self, sum_along(mesh.tensor_group, r) == 2 * (r - r % 2) + 1);
    SPAWN_CHECK(self, sum_along(mesh.data_group, r) == 2 * (r - r / 2 % 2 * 2) + 2);
    SPAWN_CHECK(self, sum_along(mesh.pipeline_group, r) == 2 * (r % 4) + 4);
    SPAWN_CHECK(self, sum_along(mesh.model_group, r) == 4 * (r / 2 % 2 * 2) + 0 + 1 + 4 + 5);
    tri_mesh_close(&mesh);
    tri_comm_leave(comm);
}

static void groups_run_along_the_edges(void **state)
{
    (void)state;
    assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 8}, sums_edges, NULL));
}

static void sizes_that_do_not_fit_are_refused_with_the_arithmetic(void **state)
{
    (void)state;
    static const struct {
        const char *data, *tensor, *pipeline;
        int ranks;
        const char *words; /* NULL: good */
    } cases[] = {
        {"auto", "2", "2", 8, NULL},
        {"2", "2", "auto", 12, NULL},
        {"auto", "1", "1", 1, NULL},
        {"auto", "3", "2", 8, "data auto x tensor 3 x pipeline 2 needs a multiple of 6 ranks, but 8 take part"},
        {"2", "2", "4", 8, "data 2 x tensor 2 x pipeline 4 needs 16 ranks, but 8 take part"},
        {"2", "2", "1", 8, "data 2 x tensor 2 x pipeline 1 needs 4 ranks, but 8 take part"},
        {"auto", "auto", "1", 8, "parallel.data and parallel.tensor are both auto"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tri_parallel_config config = config_of(cases[i].data, cases[i].tensor, cases[i].pipeline);
        tri_mesh mesh;
        tri_status status = tri_mesh_shape(&config, cases[i].ranks, &mesh);
        assert_int_equal(status, cases[i].words ? TRI_ECONFIG : TRI_OK);
        if (cases[i].words && !strstr(tri_last_error(), cases[i].words))
            fail_msg("want '%s' in: %s", cases[i].words, tri_last_error());
        for (int rank = 0; !cases[i].words && rank < cases[i].ranks; rank++) {
            tri_mesh_place(&mesh, rank);
            assert_int_equal(tri_mesh_rank(&mesh, mesh.data_rank, mesh.tensor_rank, mesh.stage), rank);
        }
    }
}

/* --- tensors of pieces --- */

enum { INPUT = 700, INNER = 500 }; /* a tensor is longer than a window */

/* Two layers cut into `parts` parts: the first by rows, the second by columns; with a tensor of its own between. */
static tri_model *model_of(int parts)
{
    tri_model *m;
    tri_value sum = -1;
    if (tri_model_create("parts", &m) != TRI_OK)
        return NULL;
    tri_value x = tri_model_input(m, TRI_F32, (tri_shape){1, {INPUT}}),
              y = tri_model_target(m, TRI_I32, (tri_shape){0});
    for (int part = 0; part < parts; part++) {
        tri_piece rows = {parts > 1 ? parts : 0, part, 0, 1, INNER, 0},
                  columns = {parts > 1 ? parts : 0, part, 1, 1, INNER, 0};
        tri_build first = {
            .op = TRI_OP_LINEAR,
            .attr = {.bias = true, .units = INNER / parts},
            .input_count = 1,
            .input = {x},
            .name = "a",
            .param = {{"weight", TRI_INIT_FAN_IN, true, false, rows}, {"bias", TRI_INIT_FAN_IN, false, false, rows}}};
        tri_build second = {.op = TRI_OP_LINEAR,
                            .attr = {.units = 6},
                            .input_count = 1,
                            .input = {tri_model_add(m, &first)},
                            .name = "b",
                            .param = {{"weight", TRI_INIT_FAN_IN, true, false, columns}}};
        tri_value value = tri_model_add(m, &second);
        sum = part == 0 ? value : tri_add(m, sum, value);
    }
    tri_cross_entropy(m, tri_layer_norm(m, sum, (tri_norm_options){.name = "n"}), y, 0);
    return m;
}

/* What rank r of 4 holds: parts r and r + 1 of the layers' 4 where r is even, else half of the norm, which rank 1 gives
 * the beginning of and rank 3 all the rest. */
static tri_status extents_make(const tri_params *params, const tri_tensors *tensors, int rank, tri_vector *list)
{
    const tri_param *norm = tri_params_find(params, "n.weight");
    list->each = sizeof(tri_extent);
    if (rank == 1)
        return tri_extents_of_slice(params, tensors, (tri_sync_slice){norm->first, 2}, norm->first, true, list);
    if (rank == 3)
        return tri_extents_of_slice(params, tensors, (tri_sync_slice){norm->first + 2, params->count - norm->first - 2},
                                    norm->first + 2, true, list);
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        if (entry->piece.parts > 0 && entry->piece.part / 2 == rank / 2)
            TRI_TRY(tri_extents_of_slice(params, tensors, (tri_sync_slice){entry->first, entry->count}, entry->first,
                                         true, list));
    }
    return TRI_OK;
}

/* Rank 0's copy of all tensors, or the values it hands out. */
static tri_status all_move(tri_shard_map *map, const tri_tensors *tensors, float *array, float *all, bool reads)
{
    for (int t = 0; t < tensors->count; t++) {
        const tri_tensor_row *row = &tensors->items[t];
        if (!reads) {
            TRI_TRY(tri_shard_map_write(map, array, row->first, all + row->first));
            continue;
        }
        for (int64_t at = 0, count; at < row->count; at += count) {
            const float *values;
            count = row->count - at;
            TRI_TRY(tri_shard_map_read(map, array, row->first + at, &count, &values));
            memcpy(all + row->first + at, values, (size_t)count * sizeof(float));
        }
    }
    return TRI_OK;
}

typedef struct store_case {
    tri_params *params, *whole;
    tri_tensors tensors;
} store_case;

static void moves_tensors(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    store_case s = {0};
    tri_model *parts = model_of(4), *one = model_of(1);
    tri_vector list = {0};
    tri_shard_map *map = NULL;
    SPAWN_CHECK(self, parts && one && tri_params_create(parts, tri_device_host(), 5, &s.params) == TRI_OK);
    SPAWN_CHECK(self, tri_params_create(one, tri_device_host(), 5, &s.whole) == TRI_OK);
    SPAWN_CHECK(self, tri_tensors_init(parts, &s.tensors) == TRI_OK && s.tensors.count == 5);
    SPAWN_CHECK(self, extents_make(s.params, &s.tensors, self->rank, &list) == TRI_OK);
    SPAWN_CHECK(self, tri_shard_map_create(tri_comm_world(comm), &s.tensors, &list, &map) == TRI_OK);
    SPAWN_CHECK(self, tri_shard_map_is_spread(map));
    float *array = s.params->values, *all = tri_alloc_zero((size_t)s.tensors.total, sizeof(float));
    for (int t = 0; self->rank > 0 && t < s.tensors.count; t++)
        SPAWN_CHECK(self, tri_shard_map_give(map, array, t) == TRI_OK);
    if (self->rank == 0)
        SPAWN_CHECK(self, all_move(map, &s.tensors, array, all, true) == TRI_OK);
    for (int t = 0; self->rank == 0 && t < s.tensors.count; t++) {
        const tri_tensor_row *row = &s.tensors.items[t];
        const float *wanted = s.whole->values + tri_params_find(s.whole, row->name)->first;
        SPAWN_CHECK(self, memcmp(all + row->first, wanted, (size_t)row->count * sizeof(float)) == 0);
    }
    /* And back: twice as much of everything, to those who hold it alone. */
    for (int64_t i = 0; i < s.tensors.total; i++)
        all[i] *= 2;
    for (int t = 0; self->rank > 0 && t < s.tensors.count; t++)
        SPAWN_CHECK(self, tri_shard_map_take(map, array, t) == TRI_OK);
    if (self->rank == 0)
        SPAWN_CHECK(self, all_move(map, &s.tensors, array, all, false) == TRI_OK);
    tri_params *before = NULL;
    SPAWN_CHECK(self, tri_params_create(parts, tri_device_host(), 5, &before) == TRI_OK);
    int64_t doubled = 0, wanted = 0;
    for (int64_t i = 0; i < s.params->count; i++)
        if (array[i] != before->values[i] && array[i] == 2 * before->values[i])
            doubled++;
        else
            SPAWN_CHECK(self, array[i] == before->values[i]);
    for (size_t i = 0; i < list.count; i++) {
        const tri_extent *extent = tri_vector_at(&list, i);
        for (int64_t k = 0; k < extent->high - extent->low; k++)
            wanted += before->values[extent->at + k] != 0;
    }
    SPAWN_CHECK(self, doubled == wanted && wanted > 0);
    tri_params_destroy(before);
    tri_shard_map_destroy(map);
    tri_vector_fini(&list);
    tri_tensors_fini(&s.tensors);
    tri_params_destroy(s.params);
    tri_params_destroy(s.whole);
    tri_model_destroy(parts);
    tri_model_destroy(one);
    tri_free(all);
    tri_comm_leave(comm);
}

static void pieces_of_four_ranks_are_the_tensors_of_one(void **state)
{
    (void)state;
    assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = 4}, moves_tensors, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_run_along_the_edges),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused_with_the_arithmetic),
        cmocka_unit_test(pieces_of_four_ranks_are_the_tensors_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
