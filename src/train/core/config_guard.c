/* SPDX-License-Identifier: Apache-2.0
 *
 * config_guard.c: what a configuration says of steps that go wrong: guards, the loss scale, comparisons of replicas,
 * stragglers. Whether it can be had, and what follows for others.
 */
#include <stdio.h>

#include "train/core/config.h"

tri_guard_act tri_guard_on_nonfinite(const tri_config *config)
{
    return (tri_guard_act)(config->train.on_nonfinite - TRI_NONFINITE_STOP + TRI_GUARD_STOP);
}

tri_guard_act tri_guard_on_spike(const tri_config *config)
{
    return (tri_guard_act)(config->train.on_spike - TRI_SPIKE_OFF + TRI_GUARD_OFF);
}

/* `what` lets a step move nothing, which needs all workers to do so together; `besides` ends the message. */
static tri_status skip_check(const tri_config *config, const char *what, const char *besides)
{
    if (tri_sync_is_local(&config->parallel) || config->parallel.sync == TRI_SYNC_PS)
        return tri_fail(TRI_ECONFIG,
                        "%s needs all workers to skip the same steps: parallel.sync %s lets each go by itself (%s)",
                        what, tri_sync_kind_word(config->parallel.sync), besides);
    return TRI_OK;
}

tri_status tri_guard_check(const tri_config *config)
{
    const tri_train_config *train = &config->train;
    const struct {
        const char *key, *word;
        tri_guard_act act;
    } rows[] = {{"train.on_nonfinite", tri_on_nonfinite_word(train->on_nonfinite), tri_guard_on_nonfinite(config)},
                {"train.on_spike", tri_on_spike_word(train->on_spike), tri_guard_on_spike(config)}};
    if (train->precision == TRI_PRECISION_F16 && rows[0].act >= TRI_GUARD_SKIP)
        return tri_fail(TRI_ECONFIG,
                        "train.on_nonfinite %s: with train.precision f16 the loss scale skips steps whose gradients "
                        "are no numbers: want stop",
                        rows[0].word);
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        char what[64];
        snprintf(what, sizeof(what), "%s %.16s", rows[i].key, rows[i].word);
        /* Workers that go by themselves can each leave its own step out; the mean of losses would be each one's too. */
        bool own = i == 0 && rows[i].act == TRI_GUARD_SKIP && tri_sync_is_local(&config->parallel);
        if (rows[i].act >= TRI_GUARD_SKIP && !own)
            TRI_TRY(skip_check(config, what, "stop can be had"));
    }
    return TRI_OK;
}

bool tri_guard_skips(const tri_config *config)
{
    return tri_guard_on_nonfinite(config) >= TRI_GUARD_SKIP || tri_guard_on_spike(config) >= TRI_GUARD_SKIP;
}

bool tri_sums_may_be_undone(const tri_config *config)
{
    return tri_guard_skips(config) || config->train.verify_every != TRI_VERIFY_OFF;
}

bool tri_guard_copies(const tri_config *config)
{
    return tri_guard_on_nonfinite(config) == TRI_GUARD_ROLLBACK || tri_guard_on_spike(config) == TRI_GUARD_ROLLBACK;
}

static bool is_power(int64_t value)
{
    return value > 0 && (value & (value - 1)) == 0;
}

tri_status tri_loss_scale_check(const tri_config *config)
{
    const tri_train_config *train = &config->train;
    if (train->loss_scale != 0 && !is_power(train->loss_scale))
        return tri_fail(TRI_ECONFIG, "train.loss_scale: want a power of two or 0, got %lld",
                        (long long)train->loss_scale);
    if (!is_power(train->loss_scale_init))
        return tri_fail(TRI_ECONFIG, "train.loss_scale_init: want a power of two, got %lld",
                        (long long)train->loss_scale_init);
    if (train->precision != TRI_PRECISION_F16)
        return TRI_OK;
    if (config->parallel.compress != TRI_COMPRESS_NONE)
        return tri_fail(TRI_ECONFIG,
                        "train.precision f16 changes the scale of the gradients, of which parallel.compress %s would "
                        "keep back some in the one before (bf16 has no loss scale)",
                        tri_compress_kind_word(config->parallel.compress));
    return skip_check(config, "train.precision f16", "bf16 has no loss scale");
}

tri_status tri_verify_check(const tri_config *config)
{
    int64_t steps = config->train.verify_every;
    if (steps > 0 && (tri_sync_is_local(&config->parallel) || config->parallel.sync == TRI_SYNC_PS))
        return tri_fail(TRI_ECONFIG,
                        "train.verify_every %lld: with parallel.sync %s no two workers have the same weights: "
                        "want off or auto",
                        (long long)steps, tri_sync_kind_word(config->parallel.sync));
    return TRI_OK;
}

tri_status tri_stragglers_check(const tri_config *config, bool elastic)
{
    if (config->train.on_straggler != TRI_STRAGGLER_REPLACE)
        return TRI_OK;
    if (!elastic)
        return tri_fail(
            TRI_ECONFIG,
            "train.on_straggler replace requires --elastic: without it no worker can leave; want warn or off");
    if (config->monitor.watch_every_s > 0)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "train.on_straggler replace: want monitor.watch_every_s above 0, got 0: nobody looks");
}
