/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize.c: bytes go through a table per channel, everything else through a conversion and (x - mean) / deviation.
 */
#include "data/normalize.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tensor/reduce.h"

/* Channels of the figures when every channel has them, 0 when they are unknown. */
static int64_t known_channels(const tri_dataset_info *info)
{
    int64_t channels = info->sample.ndim == 3 ? info->sample.dim[2] : 1;
    if (channels > TRI_NORMALIZE_MAX_CHANNELS)
        return 0;
    for (int64_t c = 0; c < channels; c++)
        if (!(info->deviation[c] > 0))
            return 0;
    return channels;
}

static void fill_table(tri_normalizer *normalizer, bool unit)
{
    for (int64_t c = 0; c < normalizer->channels; c++)
        for (int i = 0; i < 256; i++) {
            float value = unit ? (float)i / 255.0f : (float)i;
            if (normalizer->standard)
                value = (value - normalizer->mean[c]) / normalizer->deviation[c];
            normalizer->table[c][i] = value;
        }
}

tri_status tri_normalizer_init(tri_normalizer *normalizer, const tri_dataset_info *info, const tri_data_config *config)
{
    const tri_normalize how = config->normalize;
    bool bytes = info->dtype == TRI_U8, tokens = tri_is_whole(info->dtype);
    bool none = how == TRI_NORMALIZE_NONE, unit = how == TRI_NORMALIZE_UNIT;
    int64_t known = tokens ? 0 : known_channels(info);
    memset(normalizer, 0, sizeof(*normalizer));
    if (tokens && how != TRI_NORMALIZE_AUTO && !none)
        return tri_fail(TRI_ECONFIG, "data.normalize: integer tokens (%s) stay as they are: want auto or none, got %s",
                        tri_dtype_name(info->dtype), tri_normalize_word(how));
    if (unit && !bytes)
        return tri_fail(TRI_ECONFIG, "data.normalize: unit is for bytes, but the data are %s",
                        tri_dtype_name(info->dtype));
    if (how == TRI_NORMALIZE_STANDARD && known == 0)
        return tri_fail(TRI_ECONFIG,
                        "data.normalize: standard needs the mean and deviation of the data, which are measured for "
                        "bytes only, and known for fashion-mnist and CIFAR: want auto, none or unit");
    normalizer->from = info->dtype;
    normalizer->to = tokens ? TRI_I32 : TRI_F32;
    normalizer->count = tri_shape_count(info->sample);
    normalizer->standard = known > 0 && !none && !unit;
    normalizer->channels = normalizer->standard ? known : 1;
    memcpy(normalizer->mean, info->mean, sizeof(info->mean));
    memcpy(normalizer->deviation, info->deviation, sizeof(info->deviation));
    if (bytes)
        fill_table(normalizer, !none);
    return TRI_OK;
}

/* --- measuring --- */

#define MEASURED_COUNT INT64_C(1024)

typedef struct channel_sums {
    uint64_t sum[TRI_NORMALIZE_MAX_CHANNELS], squares[TRI_NORMALIZE_MAX_CHANNELS];
} channel_sums;

/* Integers: the order of additions does not matter. */
static void sums_add(channel_sums *sums, const uint8_t *sample, int64_t count, int64_t channels)
{
    for (int64_t i = 0; i < count; i++) {
        sums->sum[i % channels] += sample[i];
        sums->squares[i % channels] += (uint64_t)sample[i] * sample[i];
    }
}

static tri_status sums_read(tri_dataset *dataset, int64_t count, int64_t channels, channel_sums *sums)
{
    const tri_dataset_info *info = &dataset->info;
    const int64_t each = tri_shape_count(info->sample);
    uint8_t *sample = tri_alloc((size_t)each);
    void *target = tri_alloc((size_t)tri_shape_count(info->target) * tri_dtype_nbytes(info->target_dtype));
    tri_status status = sample != NULL && target != NULL ? TRI_OK : TRI_ENOMEM;
    for (int64_t i = 0; i < count && status == TRI_OK; i++) {
        const int64_t index = count > 1 ? (int64_t)((__int128)i * (info->count - 1) / (count - 1)) : 0;
        status = tri_dataset_read(dataset, &index, 1, sample, target);
        if (status == TRI_OK)
            sums_add(sums, sample, each, channels);
    }
    tri_free(sample);
    tri_free(target);
    return status;
}

tri_status tri_dataset_measure(tri_dataset *dataset, const tri_data_config *config)
{
    tri_dataset_info *info = &dataset->info;
    const int64_t channels = info->sample.ndim == 3 ? info->sample.dim[2] : 1;
    const int64_t count = info->count < MEASURED_COUNT ? info->count : MEASURED_COUNT;
    channel_sums sums = {0};
    if (config->normalize != TRI_NORMALIZE_STANDARD || info->dtype != TRI_U8 || known_channels(info) > 0 ||
        channels > TRI_NORMALIZE_MAX_CHANNELS)
        return TRI_OK;
    TRI_TRY_IN(sums_read(dataset, count, channels, &sums), "while measuring mean and deviation");
    const double all = (double)count * (double)(tri_shape_count(info->sample) / channels);
    for (int64_t c = 0; c < channels; c++) {
        const double mean = (double)sums.sum[c] / all, variance = (double)sums.squares[c] / all - mean * mean;
        info->mean[c] = (float)(mean / 255);
        info->deviation[c] = variance > 1e-6 ? (float)(sqrt(variance) / 255) : 1; /* all pixels are equal */
    }
    return TRI_OK;
}

#define TURN 1024 /* elements looked up before they go out: whole lines leave, where single floats would each wait */

static void apply_table(const tri_normalizer *normalizer, const uint8_t *stored, float *out)
{
    const int64_t channels = normalizer->channels, count = normalizer->count;
    const int64_t whole = TURN / channels * channels;
    float turn[TURN];
    for (int64_t first = 0; first < count; first += whole) {
        const int64_t rest = count - first < whole ? count - first : whole;
        for (int64_t c = 0; c < channels; c++) {
            const float *table = normalizer->table[c];
            for (int64_t i = c; i < rest; i += channels)
                turn[i] = table[stored[first + i]];
        }
        memcpy(out + first, turn, (size_t)rest * sizeof(float));
    }
}

void tri_normalizer_apply(const tri_normalizer *normalizer, const void *stored, void *out)
{
    if (normalizer->from == TRI_U8) {
        apply_table(normalizer, stored, out);
        return;
    }
    tri_status status = tri_convert(out, normalizer->to, stored, normalizer->from, normalizer->count);
    TRI_ASSERT(status == TRI_OK); /* both types were checked in init */
    if (!normalizer->standard)
        return;
    float *values = out;
    for (int64_t i = 0; i < normalizer->count; i++) {
        int64_t c = i % normalizer->channels;
        values[i] = (values[i] - normalizer->mean[c]) / normalizer->deviation[c];
    }
}

void tri_normalizer_black(const tri_normalizer *normalizer, int64_t channels, float *out)
{
    for (int64_t i = 0; i < channels; i++) {
        int64_t c = i % normalizer->channels;
        if (normalizer->from == TRI_U8)
            out[i] = normalizer->table[c][0];
        else
            out[i] = normalizer->standard ? -normalizer->mean[c] / normalizer->deviation[c] : 0.0f;
    }
}
