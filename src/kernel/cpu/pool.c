/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: pools, an image a tile, vectorised over channels. max_pool saves the winner's tap as a byte.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/lanes.h"

typedef struct pool_arg {
    const tri_kernel *kernel;
    const tri_op_call *call;
    tri_window w;
    bool cover; /* windows tile the image: each place of x has one */
} pool_arg;

typedef uint8_t winner_bytes __attribute__((vector_size(TRI_LANES)));

/* Offset of a tap's place in an image of `in`, -1 outside. */
static int64_t place_of(const tri_window *w, int64_t oh, int64_t ow, int64_t tap)
{
    const int64_t h = oh * w->stride[0] - w->pad[0] + tap / w->kernel[1] * w->dilation[0];
    const int64_t v = ow * w->stride[1] - w->pad[1] + tap % w->kernel[1] * w->dilation[1];
    return h >= 0 && h < w->in[0] && v >= 0 && v < w->in[1] ? (h * w->in[1] + v) * w->channels : -1;
}

/* Eight channels at a time with the winners in registers; at[count]: the pixels inside the image. Returns the channels
 * done. */
TRI_CLONES static int64_t max_lanes(const float *const *at, const int32_t *taps, int count, int64_t channels, float *y,
                                    uint8_t *saved)
{
    int64_t c = 0;
    for (; c + TRI_LANES <= channels; c += TRI_LANES) {
        tri_lanes best, x;
        tri_lanes_bits winner = {0};
        winner += taps[0];
        tri_lanes_load(&best, at[0] + c);
        for (int i = 1; i < count; i++) {
            tri_lanes_load(&x, at[i] + c);
            const tri_lanes_bits stays = x <= best; /* NaN wins */
            best = (tri_lanes)(((tri_lanes_bits)best & stays) | ((tri_lanes_bits)x & ~stays));
            winner = (winner & stays) | (taps[i] & ~stays);
        }
        tri_lanes_store(y + c, &best);
        const winner_bytes bytes = __builtin_convertvector(winner, winner_bytes);
        memcpy(saved + c, &bytes, sizeof bytes);
    }
    return c;
}

static void max_pixel(const tri_window *w, int64_t oh, int64_t ow, const float *x, float *y, uint8_t *saved)
{
    const float *at[256];
    int32_t taps[256];
    int count = 0;
    for (int64_t tap = 0; tap < w->kernel[0] * w->kernel[1]; tap++) {
        const int64_t place = place_of(w, oh, ow, tap);
        at[count] = x + place;
        taps[count] = (int32_t)tap;
        count += place >= 0 ? 1 : 0;
    }
    for (int64_t c = max_lanes(at, taps, count, w->channels, y, saved); c < w->channels; c++) {
        float best = at[0][c];
        int32_t winner = taps[0];
        for (int i = 1; i < count; i++) {
            const bool wins = !(at[i][c] <= best);
            winner = wins ? taps[i] : winner;
            best = wins ? at[i][c] : best;
        }
        y[c] = best;
        saved[c] = (uint8_t)winner;
    }
}

static void max_forward_tile(void *arg, int64_t image)
{
    const pool_arg *v = arg;
    const tri_window *w = &v->w;
    const float *x = (const float *)v->call->input[0] + image * w->in[0] * w->in[1] * w->channels;
    const int64_t base = image * w->out[0] * w->out[1] * w->channels;
    for (int64_t o = 0; o < w->out[0] * w->out[1]; o++) {
        const int64_t at = base + o * w->channels;
        max_pixel(w, o / w->out[1], o % w->out[1], x, (float *)v->call->output + at, (uint8_t *)v->call->saved + at);
    }
}

TRI_CLONES static void give_max(float *dx, const uint8_t *winner, const float *dy, int tap, int64_t count, bool cover)
{
    if (cover) {
        for (int64_t c = 0; c < count; c++) {
            dx[c] = winner[c] == tap ? dy[c] : 0.0f;
        }
    } else {
        for (int64_t c = 0; c < count; c++) {
            dx[c] += winner[c] == tap ? dy[c] : 0.0f;
        }
    }
}

static void max_backward_tile(void *arg, int64_t image)
{
    const pool_arg *v = arg;
    const tri_window *w = &v->w;
    const int64_t in_count = w->in[0] * w->in[1] * w->channels, base = image * w->out[0] * w->out[1] * w->channels;
    float *dx = (float *)v->call->dinput[0] + image * in_count;
    if (!v->cover) {
        memset(dx, 0, (size_t)in_count * sizeof(float));
    }
    for (int64_t o = 0; o < w->out[0] * w->out[1]; o++) {
        const int64_t from = base + o * w->channels;
        for (int64_t tap = 0; tap < w->kernel[0] * w->kernel[1]; tap++) {
            const int64_t at = place_of(w, o / w->out[1], o % w->out[1], tap);
            if (at >= 0) {
                give_max(dx + at, (const uint8_t *)v->call->saved + from, (const float *)v->call->doutput + from,
                         (int)tap, w->channels, v->cover);
            }
        }
    }
}

TRI_CLONES static void add_scaled(float *to, const float *from, float scale, int64_t count)
{
    for (int64_t c = 0; c < count; c++) {
        to[c] += scale * from[c];
    }
}

/* One over the number of places of the window inside the image. */
static float share_of(const tri_window *w, int64_t oh, int64_t ow)
{
    int64_t inside = 0;
    for (int64_t tap = 0; tap < w->kernel[0] * w->kernel[1]; tap++) {
        inside += place_of(w, oh, ow, tap) >= 0 ? 1 : 0;
    }
    return 1.0f / (float)inside;
}

static void average_tile(const pool_arg *v, int64_t image, const float *from, float *to, bool back)
{
    const tri_window *w = &v->w;
    const int64_t in_count = w->in[0] * w->in[1] * w->channels, out_count = w->out[0] * w->out[1] * w->channels;
    from += image * (back ? out_count : in_count);
    to += image * (back ? in_count : out_count);
    memset(to, 0, (size_t)(back ? in_count : out_count) * sizeof(float));
    for (int64_t o = 0; o < w->out[0] * w->out[1]; o++) {
        const float share = share_of(w, o / w->out[1], o % w->out[1]);
        for (int64_t tap = 0; tap < w->kernel[0] * w->kernel[1]; tap++) {
            const int64_t at = place_of(w, o / w->out[1], o % w->out[1], tap);
            if (at >= 0) {
                add_scaled(to + (back ? at : o * w->channels), from + (back ? o * w->channels : at), share,
                           w->channels);
            }
        }
    }
}

static void average_forward_tile(void *arg, int64_t image)
{
    const pool_arg *v = arg;
    average_tile(v, image, v->call->input[0], v->call->output, false);
}

static void average_backward_tile(void *arg, int64_t image)
{
    const pool_arg *v = arg;
    average_tile(v, image, v->call->doutput, v->call->dinput[0], true);
}

static void pool_run(const tri_kernel *kernel, const tri_op_call *call, tri_tile_fn body)
{
    pool_arg arg = {kernel, call, tri_window_make(&kernel->desc), true};
    for (int i = 0; i < 2; i++) {
        const tri_window *w = &arg.w;
        arg.cover = arg.cover && w->stride[i] == w->kernel[i] && w->dilation[i] == 1 && w->pad[i] == 0 &&
                    w->in[i] % w->kernel[i] == 0;
    }
    tri_tiles_run(kernel->desc.threads, arg.w.batch * call->shards, body, &arg);
}

static bool winner_fits(const tri_op_desc *desc)
{
    return desc->attr.kernel[0] <= 256 / desc->attr.kernel[1];
}

static tri_status max_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->saved_nbytes = (size_t)tri_shape_count(desc->output);
    return TRI_OK;
}

static void max_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    pool_run(kernel, call, max_forward_tile);
}

static void max_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        pool_run(kernel, call, max_backward_tile);
    }
}

const tri_kernel_ops tri_cpu_max_pool = {
    .op = TRI_OP_MAX_POOL,
    .name = "tiles",
    .can = winner_fits,
    .plan = max_plan,
    .forward = max_forward,
    .backward = max_backward,
};

static void average_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    pool_run(kernel, call, average_forward_tile);
}

static void average_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    if (call->dinput[0] != NULL) {
        pool_run(kernel, call, average_backward_tile);
    }
}

const tri_kernel_ops tri_cpu_avg_pool = {
    .op = TRI_OP_AVG_POOL,
    .name = "tiles",
    .forward = average_forward,
    .backward = average_backward,
};

static void global_forward_tile(void *arg, int64_t image)
{
    const pool_arg *v = arg;
    const tri_shape *in = &v->kernel->desc.input[0];
    const int64_t area = in->dim[1] * in->dim[2], channels = in->dim[3];
    const float *x = (const float *)v->call->input[0] + image * area * channels;
    float *y = (float *)v->call->output + image * channels;
    memset(y, 0, (size_t)channels * sizeof(float));
    for (int64_t i = 0; i < area; i++) {
        add_scaled(y, x + i * channels, 1.0f, channels);
    }
    for (int64_t c = 0; c < channels; c++) {
        y[c] /= (float)area;
    }
}

static void global_backward_tile(void *arg, int64_t image)
{
    const pool_arg *v = arg;
    const tri_shape *in = &v->kernel->desc.input[0];
    const int64_t area = in->dim[1] * in->dim[2], channels = in->dim[3];
    const float *dy = (const float *)v->call->doutput + image * channels;
    float *dx = (float *)v->call->dinput[0] + image * area * channels;
    for (int64_t c = 0; c < channels; c++) {
        dx[c] = dy[c] / (float)area;
    }
    for (int64_t i = 1; i < area; i++) {
        memcpy(dx + i * channels, dx, (size_t)channels * sizeof(float));
    }
}

static void global_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    pool_arg arg = {.kernel = kernel, .call = call};
    tri_tiles_run(kernel->desc.threads, kernel->desc.input[0].dim[0] * call->shards, global_forward_tile, &arg);
}

static void global_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    pool_arg arg = {.kernel = kernel, .call = call};
    if (call->dinput[0] != NULL) {
        tri_tiles_run(kernel->desc.threads, kernel->desc.input[0].dim[0] * call->shards, global_backward_tile, &arg);
    }
}

const tri_kernel_ops tri_cpu_global_pool = {
    .op = TRI_OP_GLOBAL_POOL,
    .name = "tiles",
    .forward = global_forward,
    .backward = global_backward,
};
