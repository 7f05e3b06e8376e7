/* SPDX-License-Identifier: Apache-2.0
 *
 * config_guard.c: what a configuration says of steps that go wrong: guards, the loss scale, comparisons of replicas,
 * stragglers. Whether it can be had, and what follows for others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/core/config.h"

tri_guard_act tri_guard_act_of(const char *text)
{
    static const char *const names[] = {[TRI_GUARD_OFF] = "off",
                                        [TRI_GUARD_STOP] = "stop",
                                        [TRI_GUARD_SKIP] = "skip",
                                        [TRI_GUARD_ROLLBACK] = "rollback"};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        if (strcmp(names[i], text) == 0)
            return (tri_guard_act)i;
    return TRI_GUARD_STOP;
}

tri_status tri_guard_skip_check(const tri_config *config, const char *what, const char *besides)
{
    if (tri_sync_is_apart(&config->parallel) || strcmp(config->parallel.sync, "ps") == 0)
        return tri_fail(TRI_ECONFIG,
                        "%s wants all workers to skip the same steps: parallel.sync %s lets each go by itself (%s)",
                        what, config->parallel.sync, besides);
    return TRI_OK;
}

tri_status tri_guard_check(const tri_config *config)
{
    const tri_train_config *train = &config->train;
    const struct {
        const char *key, *text;
    } rows[] = {{"train.on_nonfinite", train->on_nonfinite}, {"train.on_spike", train->on_spike}};
    if (strcmp(train->precision, "f16") == 0 && tri_guard_act_of(train->on_nonfinite) >= TRI_GUARD_SKIP)
        return tri_fail(TRI_ECONFIG,
                        "train.on_nonfinite %s: with train.precision f16 the loss scale skips steps whose gradients "
                        "are no numbers: want stop",
                        train->on_nonfinite);
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        char what[64];
        snprintf(what, sizeof(what), "%s %.16s", rows[i].key, rows[i].text);
        /* Workers that go by themselves can each leave its own step out; the mean of losses would be each one's too. */
        bool own = i == 0 && tri_guard_act_of(rows[i].text) == TRI_GUARD_SKIP && tri_sync_is_apart(&config->parallel);
        if (tri_guard_act_of(rows[i].text) >= TRI_GUARD_SKIP && !own)
            TRI_TRY(tri_guard_skip_check(config, what, "stop can be had"));
    }
    return TRI_OK;
}

bool tri_guard_skips(const tri_config *config)
{
    return tri_guard_act_of(config->train.on_nonfinite) >= TRI_GUARD_SKIP ||
           tri_guard_act_of(config->train.on_spike) >= TRI_GUARD_SKIP;
}

bool tri_sums_may_be_undone(const tri_config *config)
{
    return tri_guard_skips(config) || strcmp(config->train.verify_every, "off") != 0;
}

bool tri_guard_copies(const tri_config *config)
{
    return tri_guard_act_of(config->train.on_nonfinite) == TRI_GUARD_ROLLBACK ||
           tri_guard_act_of(config->train.on_spike) == TRI_GUARD_ROLLBACK;
}

static bool is_power(int64_t value)
{
    return value > 0 && (value & (value - 1)) == 0;
}

tri_status tri_loss_scale_check(const tri_config *config)
{
    const tri_train_config *train = &config->train;
    if (train->loss_scale != 0 && !is_power(train->loss_scale))
        return tri_fail(TRI_ECONFIG, "train.loss_scale: want a power of two or 0, found %lld",
                        (long long)train->loss_scale);
    if (!is_power(train->loss_scale_init))
        return tri_fail(TRI_ECONFIG, "train.loss_scale_init: want a power of two, found %lld",
                        (long long)train->loss_scale_init);
    if (strcmp(train->precision, "f16") != 0)
        return TRI_OK;
    if (strcmp(config->parallel.compress, "none") != 0)
        return tri_fail(TRI_ECONFIG,
                        "train.precision f16 changes the scale of the gradients, of which parallel.compress %s would "
                        "keep back some in the one before (bf16 has no loss scale)",
                        config->parallel.compress);
    return tri_guard_skip_check(config, "train.precision f16", "bf16 has no loss scale");
}

bool tri_verify_number(const char *text, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    return end != text && *end == 0 && *value > 0 && *value < INT64_C(1000000000);
}

tri_status tri_verify_check(const tri_config *config)
{
    const char *text = config->train.verify_every;
    int64_t number;
    if (strcmp(text, "auto") == 0 || strcmp(text, "off") == 0)
        return TRI_OK;
    if (!tri_verify_number(text, &number))
        return tri_fail(TRI_ECONFIG, "train.verify_every: want auto, off or a number of steps, found '%s'", text);
    if (tri_sync_is_apart(&config->parallel) || strcmp(config->parallel.sync, "ps") == 0)
        return tri_fail(TRI_ECONFIG,
                        "train.verify_every %s: with parallel.sync %s no two workers have the same weights: "
                        "want off or auto",
                        text, config->parallel.sync);
    return TRI_OK;
}

tri_status tri_stragglers_check(const tri_config *config, bool elastic)
{
    if (strcmp(config->train.on_straggler, "replace") != 0)
        return TRI_OK;
    if (!elastic)
        return tri_fail(TRI_ECONFIG,
                        "train.on_straggler replace goes with --elastic: elsewhere nobody can leave; want tell or off");
    if (config->monitor.watch_every_s > 0)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "train.on_straggler replace: want monitor.watch_every_s above 0, got 0: nobody looks");
}
