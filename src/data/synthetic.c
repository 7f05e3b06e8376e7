/* SPDX-License-Identifier: Apache-2.0
 *
 * synthetic.c: a problem that can be learned, made up sample by sample: each one is a pure function of its index.
 *
 * Classes: normal noise around one centre per class; the centres are about five deviations apart, so that a good model
 * is right about 19 times in 20 but never always. Real targets (data.classes -1): a fixed linear function plus noise.
 * Tokens: the next one follows from the one before by a fixed rule three times in four, and is any at all otherwise.
 * Clicks: clicks.h.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/clicks.h"
#include "data/formats.h"

#define SEED            UINT64_C(0x7472697265)
#define CLASSES_DEFAULT 10
#define CENTRE_DISTANCE 3.5f
#define TARGET_NOISE    0.1f

typedef struct synthetic_dataset {
    tri_dataset base;
    int64_t width;
    int64_t first; /* index of sample 0: the test samples follow the training samples */
    bool tokens;
    tri_clicks clicks; /* fields 0: something else */
    uint64_t *keys;    /* [width] of one sample of them */
    float *centres;    /* [classes, width], or [1, width]: the weights of the linear function */
} synthetic_dataset;

static bool synthetic_can(const tri_data_config *config)
{
    return config->path[0] == 0 && strcmp(config->name, "synthetic") == 0;
}

static void make_sample(const synthetic_dataset *synthetic, int64_t index, float *sample, void *target)
{
    tri_rng noise = {SEED, tri_rng_stream("synthetic sample", (uint64_t)index, 0)};
    int64_t width = synthetic->width, classes = synthetic->base.info.classes;
    for (int64_t i = 0; i < width; i++)
        sample[i] = tri_rng_normal(noise, (uint64_t)i);
    if (classes == 0) {
        float value = TARGET_NOISE * tri_rng_normal(noise, (uint64_t)width);
        for (int64_t i = 0; i < width; i++)
            value += sample[i] * synthetic->centres[i];
        memcpy(target, &value, sizeof(value));
        return;
    }
    tri_rng labels = {SEED, tri_rng_stream("synthetic label", 0, 0)};
    int32_t label = (int32_t)tri_rng_below(labels, (uint64_t)index, (uint64_t)classes);
    for (int64_t i = 0; i < width; i++)
        sample[i] += synthetic->centres[label * width + i];
    memcpy(target, &label, sizeof(label));
}

static void make_tokens(const synthetic_dataset *synthetic, int64_t index, int32_t *sample, int32_t *target)
{
    tri_rng rng = {SEED, tri_rng_stream("synthetic tokens", (uint64_t)index, 0)};
    int64_t width = synthetic->width;
    uint64_t words = (uint64_t)synthetic->base.info.classes, token = tri_rng_below(rng, 0, words);
    for (int64_t i = 0; i < width; i++) {
        uint64_t number = 2 * (uint64_t)i + 1;
        bool follows = tri_rng_below(rng, number, 4) > 0;
        sample[i] = (int32_t)token;
        token = follows ? (3 * token + 1) % words : tri_rng_below(rng, number + 1, words);
        target[i] = (int32_t)token;
    }
}

static void make_click(const synthetic_dataset *synthetic, int64_t index, int32_t *sample, void *target)
{
    bool clicked = tri_clicks_sample(&synthetic->clicks, (uint64_t)index, synthetic->keys);
    for (int64_t i = 0; i < synthetic->width; i++)
        sample[i] = (int32_t)synthetic->keys[i];
    if (synthetic->base.info.target_dtype == TRI_F32)
        memcpy(target, &(float){clicked ? 1.0f : 0.0f}, sizeof(float));
    else
        memcpy(target, &(int32_t){clicked}, sizeof(int32_t));
}

static tri_status synthetic_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples,
                                 void *targets)
{
    synthetic_dataset *synthetic = tri_container_of(dataset, synthetic_dataset, base);
    int64_t width = synthetic->width;
    for (int64_t i = 0; i < count; i++) {
        int64_t index = synthetic->first + indices[i];
        if (synthetic->tokens)
            make_tokens(synthetic, index, (int32_t *)samples + i * width, (int32_t *)targets + i * width);
        else if (synthetic->clicks.fields > 0)
            make_click(synthetic, index, (int32_t *)samples + i * width, (unsigned char *)targets + 4 * i);
        else
            make_sample(synthetic, index, (float *)samples + i * width, (unsigned char *)targets + 4 * i);
    }
    return TRI_OK;
}

static void synthetic_close(tri_dataset *dataset)
{
    synthetic_dataset *synthetic = tri_container_of(dataset, synthetic_dataset, base);
    tri_free(synthetic->centres);
    tri_free(synthetic->keys);
    tri_free(synthetic);
}

static tri_status plan_clicks(synthetic_dataset *synthetic, const tri_data_config *config)
{
    if (config->synthetic_tokens)
        return tri_fail(TRI_ECONFIG, "data.synthetic_keys and data.synthetic_tokens: want one of them");
    if (config->synthetic_keys < config->synthetic_width)
        return tri_fail(TRI_ECONFIG, "data.synthetic_keys: want at least data.synthetic_width, which is %lld, got %lld",
                        (long long)config->synthetic_width, (long long)config->synthetic_keys);
    if (synthetic->base.info.classes == 1)
        return tri_fail(TRI_ECONFIG, "data.synthetic_keys: want data.classes of at least 2, or -1, got 1");
    synthetic->base.info.dtype = TRI_I32;
    synthetic->clicks = tri_clicks_make(SEED, (int)config->synthetic_width, config->synthetic_keys);
    synthetic->keys = tri_alloc_zero((size_t)synthetic->width, sizeof(*synthetic->keys));
    return synthetic->keys ? TRI_OK : TRI_ENOMEM;
}

static tri_status plan(synthetic_dataset *synthetic, const tri_data_config *config, bool test)
{
    tri_dataset_info *info = &synthetic->base.info;
    int64_t test_count = (config->synthetic_count + 7) / 8;
    synthetic->width = config->synthetic_width;
    synthetic->first = test ? config->synthetic_count : 0;
    info->count = test ? test_count : config->synthetic_count;
    info->sample = tri_shape_make(1, &config->synthetic_width);
    info->dtype = TRI_F32;
    TRI_TRY(tri_target_plan(info, config, "synthetic", TRI_I32, config->synthetic_keys > 0 ? 2 : CLASSES_DEFAULT));
    if (config->synthetic_keys > 0)
        return plan_clicks(synthetic, config);
    synthetic->tokens = config->synthetic_tokens;
    if (synthetic->tokens) {
        if (info->classes < 1)
            return tri_fail(TRI_ECONFIG, "data.synthetic_tokens: want data.classes of at least 1, got %lld",
                            (long long)config->classes);
        info->dtype = TRI_I32;
        info->target = info->sample;
        return TRI_OK;
    }
    size_t count = (size_t)(info->classes > 0 ? info->classes : 1) * (size_t)synthetic->width;
    synthetic->centres = tri_alloc_zero(count, sizeof(float));
    if (synthetic->centres == NULL)
        return TRI_ENOMEM;
    tri_rng rng = {SEED, tri_rng_stream("synthetic centres", 0, 0)};
    float distance = info->classes > 0 ? CENTRE_DISTANCE : 1.0f;
    for (size_t i = 0; i < count; i++)
        synthetic->centres[i] = distance / sqrtf((float)synthetic->width) * tri_rng_normal(rng, i);
    return TRI_OK;
}

static tri_status synthetic_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    const bool test = part == TRI_PART_TEST;
    synthetic_dataset *synthetic = tri_alloc_zero(1, sizeof(*synthetic));
    if (synthetic == NULL)
        return TRI_ENOMEM;
    synthetic->base.ops = &tri_dataset_synthetic;
    tri_status status = plan(synthetic, config, test);
    if (status != TRI_OK) {
        synthetic_close(&synthetic->base);
        return status;
    }
    *out = &synthetic->base;
    return TRI_OK;
}

const tri_dataset_ops tri_dataset_synthetic = {
    .name = "synthetic",
    .does = "made up: normal noise around a centre per class; a pure function of the index",
    .can = synthetic_can,
    .open = synthetic_open,
    .read = synthetic_read,
    .close = synthetic_close,
};
