/* SPDX-License-Identifier: Apache-2.0
 *
 * logistic.c: sparse logistic regression. Servers hold one weight for each key that was ever seen and move it by FTRL;
 * workers pull the weights that a batch needs and push its gradients, and none waits for another.
 *
 *     trireme launch -n 3 --servers 2 -- ./logistic
 */
#include "../example.h"
#include "click.h"

#define BATCH   256
#define BATCHES 400 /* of all workers together */
#define VALUES  1000000

/* Mean loss of a batch, and with `push` a step. */
static double batch_run(tri_kv_table *weights, uint64_t first, bool push)
{
    static uint64_t keys[BATCH * CLICK_FIELDS];
    static float rows[BATCH * CLICK_FIELDS], grads[BATCH * CLICK_FIELDS], clicked[BATCH];
    double loss = 0;
    for (uint64_t i = 0; i < BATCH; i++) {
        click sample = click_make(first + i, VALUES);
        clicked[i] = sample.clicked;
        for (int f = 0; f < CLICK_FIELDS; f++)
            keys[i * CLICK_FIELDS + (uint64_t)f] = sample.keys[f];
    }
    check(tri_kv_pull(weights, keys, BATCH * CLICK_FIELDS, rows, NULL));
    for (int i = 0; i < BATCH; i++) {
        double score = 0, slope;
        for (int f = 0; f < CLICK_FIELDS; f++)
            score += (double)rows[i * CLICK_FIELDS + f];
        loss += click_loss(score, (double)clicked[i], &slope);
        for (int f = 0; f < CLICK_FIELDS; f++)
            grads[i * CLICK_FIELDS + f] = (float)slope;
    }
    if (push)
        check(tri_kv_push(weights, -1, keys, grads, BATCH * CLICK_FIELDS, NULL));
    return loss / BATCH;
}

int main(void)
{
    tri_kv *kv;
    tri_kv_table *weights;
    check(tri_kv_join(&(tri_kv_job){.timeout_s = 60}, &kv));
    if (!kv)
        return 0; /* a server, and the workers have left */
    check(tri_kv_table_open(kv, "weights", 1, "merge: optim, optim: {name: ftrl, lr: 0.1, l1: 0.5}", &weights));
    uint64_t workers = (uint64_t)tri_kv_worker_count(kv), own = (uint64_t)tri_kv_worker(kv);
    double before = batch_run(weights, UINT64_C(1) << 40, false);
    check(tri_kv_barrier(kv));
    for (uint64_t b = own; b < BATCHES; b += workers)
        batch_run(weights, b * BATCH, true);
    check(tri_kv_barrier(kv));
    double after = 0;
    for (uint64_t b = 0; b < 8; b++)
        after += batch_run(weights, (UINT64_C(1) << 40) + b * BATCH, false) / 8;
    if (own == 0) {
        char text[1000];
        check(tri_kv_stats(kv, text, sizeof(text)));
        printf("%sloss of clicks not seen before: %.3f, at first %.3f\n", text, after, before);
    }
    check(tri_kv_close(kv));
    if (after < 0.95 * before)
        return 0;
    fprintf(stderr, "loss of clicks not seen before: want below %.3f (0.95 of the first), got %.3f\n", 0.95 * before,
            after);
    return 1;
}
