/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gemm.c: the three products of linear layers of transformers, in f32 and bf16, as shares of the peak of the
 * cores, beside oneDNN's matmul on packed weights (packed outside of the clock). Not a test.
 *
 * bench_gemm [word [threads [rounds [f32|bf16]]]]: shapes whose name contains the word; 1 thread, 7 rounds, taken in
 * turns; medians. Ours is the whole op: packing and the canonical tree over shards included. Where a type is named,
 * oneDNN alone: lines of "shape pass FLOPs seconds" for bench/share, those of attention's products too.
 */
#include <immintrin.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include "base/amx.h"
#include "base/runtime.h"
#include "kernel/cpu/gemm_half.h"
#include "ops/ops.h"

#define MAX_ROUNDS                    31
#define LINEAR(rows, inputs, outputs) .op = TRI_OP_LINEAR, .x = {rows, inputs}, .units = outputs

/* Rows of one of 8 shards: 16 x 256 tokens of nanoGPT's size, 4 x 256 of GPT-2's. */
static const op_case shapes[] = {
    {.name = "nano.qkv", LINEAR(512, 384, 1152)},
    {.name = "nano.proj", LINEAR(512, 384, 384)},
    {.name = "nano.up", LINEAR(512, 384, 1536)},
    {.name = "nano.down", LINEAR(512, 1536, 384)},
    {.name = "nano.chars", LINEAR(512, 384, 65)},
    {.name = "nano.vocab", LINEAR(128, 384, 50304)},
    {.name = "gpt2.qkv", LINEAR(128, 768, 2304)},
    {.name = "gpt2.proj", LINEAR(128, 768, 768)},
    {.name = "gpt2.up", LINEAR(128, 768, 3072)},
    {.name = "gpt2.down", LINEAR(128, 3072, 768)},
    {.name = "gpt2.vocab", LINEAR(32, 768, 50257)},
    {.name = "half.qkv", LINEAR(64, 768, 2304), .shards = 4},
    {.name = "half.proj", LINEAR(64, 768, 768), .shards = 4},
    {.name = "half.up", LINEAR(64, 768, 3072), .shards = 4},
    {.name = "half.down", LINEAR(64, 3072, 768), .shards = 4},
    {.name = "half.vocab", LINEAR(64, 768, 50257), .shards = 4},
    {.name = "mlp.fc1", LINEAR(16, 784, 512)},
    {.name = "mlp.fc2", LINEAR(16, 512, 256)},
};

enum { FORWARD, INPUT, WEIGHT, PASSES };
static const char *const pass_names[PASSES] = {"forward", "input", "weight"};

/* ---- the peak ---- */

#define CHAINS(X)    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define CHAIN_COUNT  12
#define DECLARE(i)   __m512 c##i = _mm512_set1_ps((float)i);
#define F32_STEP(i)  __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(c##i) : "v"(a), "v"(b));
#define BF16_STEP(i) __asm__ volatile("vdpbf16ps %1, %2, %0" : "+v"(c##i) : "v"(a), "v"(b));

__attribute__((target("avx512f"))) static void peak_loop(bool half, long steps)
{
    const __m512 a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(1e-9f);
    CHAINS(DECLARE)
    for (long i = 0; i < steps && !half; i++) {
        CHAINS(F32_STEP)
    }
    for (long i = 0; i < steps && half; i++) {
        CHAINS(BF16_STEP)
    }
}

/* Four chains over the tiles of AMX, as many as hide each other. */
__attribute__((target("amx-tile,amx-bf16"))) static void peak_tiles(long steps)
{
    tri_gemm_amx.enter();
    for (long i = 0; i < steps; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    tri_gemm_amx.leave();
}

typedef struct peak_loop_row {
    void (*run)(long steps);
    double flops; /* of a step */
} peak_loop_row;

static void peak_f32(long steps)
{
    peak_loop(false, steps);
}

static void peak_bf16(long steps)
{
    peak_loop(true, steps);
}

static peak_loop_row peak_row(bool half)
{
    if (!half) {
        return (peak_loop_row){peak_f32, 32.0 * CHAIN_COUNT};
    }
    return tri_amx_allowed() ? (peak_loop_row){peak_tiles, 4 * 2.0 * 16 * 16 * 32}
                             : (peak_loop_row){peak_bf16, 64.0 * CHAIN_COUNT};
}

/* FLOP/s of `threads` cores at once; 0: this processor has no such instruction. */
static double peak_measure(bool half, int threads)
{
    if (!__builtin_cpu_supports("avx512f") || (half && !__builtin_cpu_supports("avx512bf16"))) {
        return 0;
    }
    const long steps = 3000000;
    const peak_loop_row row = peak_row(half);
    double best = 0;
    for (int round = 0; round < 5; round++) {
        const int64_t begin = tri_now_ns();
#pragma omp parallel num_threads(threads)
        row.run(steps);
        const double seconds = (double)(tri_now_ns() - begin) * 1e-9;
        best = fmax(best, row.flops * (double)steps * threads / seconds);
    }
    return best;
}

/* ---- oneDNN ---- */

typedef struct peer {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[3];
    void *data[3];
} peer;

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void must(dnnl_status_t status, const char *what)
{
    if (status != dnnl_success) {
        fprintf(stderr, "bench_gemm: oneDNN: %s: status %d\n", what, (int)status);
        exit(1);
    }
}

#if DNNL_VERSION_MAJOR < 3
static dnnl_memory_desc_t form(int64_t rows, int64_t columns, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    must(dnnl_memory_desc_init_by_tag(&md, 2, (dnnl_dims_t){rows, columns}, type, tag), "a layout");
    return md;
}

static void peer_memory(peer *p, int i, int name, const_dnnl_primitive_desc_t pd, dnnl_query_t query, int index)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, query, index);
    const size_t nbytes = dnnl_memory_desc_get_size(md);
    p->data[i] = tri_alloc_bulk(nbytes);
    memset(p->data[i], 0x3c, nbytes); /* a small normal number in both types */
    p->arg[i].arg = name;
    must(dnnl_memory_create(&p->arg[i].memory, md, engine, p->data[i]), "a memory");
}

static void peer_make(peer *p, const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *c)
{
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    must(dnnl_matmul_desc_init(&desc, a, b, NULL, c), "matmul");
    must(dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL), "matmul");
    must(dnnl_primitive_create(&p->primitive, pd), "matmul");
    peer_memory(p, 0, DNNL_ARG_SRC, pd, dnnl_query_src_md, 0);
    peer_memory(p, 1, DNNL_ARG_WEIGHTS, pd, dnnl_query_weights_md, 0);
    peer_memory(p, 2, DNNL_ARG_DST, pd, dnnl_query_dst_md, 0);
    dnnl_primitive_desc_destroy(pd);
}

static void peer_open(peer *p, const op_run *r, int pass, bool half)
{
    const tri_op_desc *d = &r->kernel.desc;
    const int64_t units = d->param[0].dim[0], channels = d->param[0].dim[1];
    const int64_t rows = r->output_count / units * r->call.shards;
    const int64_t m = pass == WEIGHT ? units : rows, n = pass == FORWARD ? units : channels;
    const int64_t k = pass == FORWARD ? channels : pass == INPUT ? units : rows;
    const dnnl_data_type_t type = half ? dnnl_bf16 : dnnl_f32;
    const dnnl_memory_desc_t a = form(m, k, type, pass == WEIGHT ? dnnl_ba : dnnl_ab);
    const dnnl_memory_desc_t b = form(k, n, type, pass == WEIGHT ? dnnl_ab : dnnl_format_tag_any);
    const dnnl_memory_desc_t c = form(m, n, pass == WEIGHT ? dnnl_f32 : type, dnnl_ab);
    peer_make(p, &a, &b, &c);
}

/* Attention of the small GPT: all heads of all samples, and the six products of one head. Each head's rows lie
 * together, and oneDNN forms whole squares of places by places, of which a causal model needs half. */
enum { HEADS = 16 * 6, PLACES = 256, WIDTH = 64, HEAD_PRODUCTS = 6 };

typedef struct head_product {
    int pass;
    int64_t m, k, n;
    bool a_turned, b_turned;
} head_product;

static const head_product head_products[HEAD_PRODUCTS] = {
    {FORWARD, PLACES, WIDTH, PLACES, false, true},  /* scores = q k' */
    {FORWARD, PLACES, PLACES, WIDTH, false, false}, /* y = p v */
    {INPUT, PLACES, WIDTH, PLACES, false, true},    /* dp = dy v' */
    {INPUT, PLACES, PLACES, WIDTH, true, false},    /* dv = p' dy */
    {INPUT, PLACES, PLACES, WIDTH, false, false},   /* dq = ds k */
    {INPUT, PLACES, PLACES, WIDTH, true, false},    /* dk = ds' q */
};

static void peer_open_heads(peer *p, const head_product *h, bool half)
{
    const dnnl_data_type_t type = half ? dnnl_bf16 : dnnl_f32;
    dnnl_memory_desc_t a, b, c;
    const dnnl_format_tag_t tag[2] = {dnnl_abc, dnnl_acb};
    must(dnnl_memory_desc_init_by_tag(&a, 3, (dnnl_dims_t){HEADS, h->m, h->k}, type, tag[h->a_turned]), "a layout");
    must(dnnl_memory_desc_init_by_tag(&b, 3, (dnnl_dims_t){HEADS, h->k, h->n}, type, tag[h->b_turned]), "a layout");
    must(dnnl_memory_desc_init_by_tag(&c, 3, (dnnl_dims_t){HEADS, h->m, h->n}, type, dnnl_abc), "a layout");
    peer_make(p, &a, &b, &c);
}
#else
#error "bench_gemm is written for oneDNN 2.x"
#endif

static void peer_run(peer *p)
{
    must(dnnl_primitive_execute(p->primitive, stream, 3, p->arg), "a run");
    must(dnnl_stream_wait(stream), "a run");
}

static void peer_close(peer *p)
{
    dnnl_primitive_destroy(p->primitive);
    for (int i = 0; i < 3; i++) {
        dnnl_memory_destroy(p->arg[i].memory);
        tri_free(p->data[i]);
    }
}

/* ---- ours ---- */

static void ours_run(op_run *r, int pass)
{
    if (pass == FORWARD) {
        tri_kernel_forward(&r->kernel, &r->call);
        return;
    }
    void *dx = r->call.dinput[0];
    const int parts = r->call.part_count;
    r->call.dinput[0] = pass == INPUT ? dx : NULL;
    r->call.part_count = pass == INPUT ? 0 : parts;
    tri_kernel_backward(&r->kernel, &r->call);
    r->call.dinput[0] = dx;
    r->call.part_count = parts;
}

/* Seconds of one run, of the runs of about 20 ms. */
static double time_runs(op_run *r, peer *p, int pass)
{
    const int64_t begin = tri_now_ns();
    int64_t end = begin;
    int count = 0;
    while (end - begin < 20000000) {
        if (p != NULL) {
            peer_run(p);
        } else {
            ours_run(r, pass);
        }
        count++;
        end = tri_now_ns();
    }
    return (double)(end - begin) * 1e-9 / count;
}

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof(double), compare_times);
    return times[count / 2];
}

/* One line: each product's share of the peak, ours and oneDNN's, and their ratio. */
static void bench_shape(const op_case *c, int threads, int rounds, double peak)
{
    op_run run;
    if (op_open(&run, "cpu", c, threads, false) != TRI_OK) {
        fprintf(stderr, "bench_gemm: %s: %s\n", c->name, tri_last_error());
        exit(1);
    }
    const double flops = 2.0 * (double)(run.output_count * run.call.shards * c->x[1]);
    printf("%-11s %-5s %-9s", c->name, c->half ? "bf16" : "f32",
           run.kernel.ops->name ? run.kernel.ops->name : "reference");
    for (int pass = 0; pass < PASSES; pass++) {
        static double times[2][MAX_ROUNDS];
        peer other = {0};
        peer_open(&other, &run, pass, c->half);
        time_runs(&run, NULL, pass);
        time_runs(&run, &other, pass);
        for (int round = 0; round < rounds; round++) {
            times[0][round] = time_runs(&run, NULL, pass);
            times[1][round] = time_runs(&run, &other, pass);
        }
        const double ours = median(times[0], rounds), theirs = median(times[1], rounds);
        printf("  %s %3.0f %% %3.0f %% %.2f", pass_names[pass], 100 * flops / ours / peak, 100 * flops / theirs / peak,
               theirs / ours);
        peer_close(&other);
    }
    printf("\n");
    fflush(stdout);
    op_close(&run);
}

/* oneDNN alone: seconds of each product. */
static void bench_peer(const op_case *c, int threads, int rounds)
{
    op_run run;
    if (op_open(&run, "cpu", c, threads, false) != TRI_OK) {
        fprintf(stderr, "bench_gemm: %s: %s\n", c->name, tri_last_error());
        exit(1);
    }
    const double flops = 2.0 * (double)(run.output_count * run.call.shards * c->x[1]);
    for (int pass = 0; pass < PASSES; pass++) {
        double times[MAX_ROUNDS];
        peer other = {0};
        peer_open(&other, &run, pass, c->half);
        time_runs(&run, &other, pass);
        for (int round = 0; round < rounds; round++) {
            times[round] = time_runs(&run, &other, pass);
        }
        printf("%s %s %.0f %.9f\n", c->name, pass_names[pass], flops, median(times, rounds));
        peer_close(&other);
    }
    op_close(&run);
}

/* The same of attention: the products of a pass together. */
static void bench_peer_heads(bool half, int rounds)
{
    for (int pass = FORWARD; pass <= INPUT; pass++) {
        double flops = 0, seconds = 0;
        for (int i = 0; i < HEAD_PRODUCTS; i++) {
            const head_product *h = &head_products[i];
            if (h->pass != pass) {
                continue;
            }
            double times[MAX_ROUNDS];
            peer other = {0};
            peer_open_heads(&other, h, half);
            time_runs(NULL, &other, pass);
            for (int round = 0; round < rounds; round++) {
                times[round] = time_runs(NULL, &other, pass);
            }
            flops += 2.0 * HEADS * (double)(h->m * h->k * h->n);
            seconds += median(times, rounds);
            peer_close(&other);
        }
        printf("nano.heads %s %.0f %.9f\n", pass_names[pass], flops, seconds);
    }
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "", *type = argc > 4 ? argv[4] : NULL;
    const int threads = argc > 2 ? atoi(argv[2]) : 1, rounds = argc > 3 ? atoi(argv[3]) : 7;
    if (threads < 1 || rounds < 1 || rounds > MAX_ROUNDS ||
        (type != NULL && strcmp(type, "f32") != 0 && strcmp(type, "bf16") != 0)) {
        fprintf(stderr, "bench_gemm: want at least 1 thread, 1 to %d rounds, and f32 or bf16\n", MAX_ROUNDS);
        return 2;
    }
    omp_set_num_threads(threads);
    must(dnnl_engine_create(&engine, dnnl_cpu, 0), "an engine");
    must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "a stream");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && type != NULL; i++) {
        op_case c = shapes[i];
        c.half = type[0] == 'b' ? TRI_BF16 : TRI_F32;
        if (strstr(c.name, word) != NULL) {
            bench_peer(&c, threads, rounds);
        }
    }
    if (type != NULL && strstr("nano.heads", word) != NULL) {
        bench_peer_heads(type[0] == 'b', rounds);
    }
    for (int half = 0; half < 2 && type == NULL; half++) {
        const double peak = peak_measure(half, threads);
        printf("%s: peak %.0f GFLOP/s on %d thread%s; of it: Trireme, oneDNN, their ratio\n", half ? "bf16" : "f32",
               peak * 1e-9, threads, threads == 1 ? "" : "s");
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && peak > 0; i++) {
            op_case c = shapes[i];
            c.half = half ? TRI_BF16 : TRI_F32;
            if (strstr(c.name, word) != NULL) {
                bench_shape(&c, threads, rounds, peak);
            }
        }
    }
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return 0;
}
