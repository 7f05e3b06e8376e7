/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.tmpl.h: the loops of one element type; included by reduce.c once per type, with
 *   T         type of an element in memory            A         type in which it is combined
 *   NAME(op)  name of the loop of an operation        LOAD(x)   T to A        STORE(x)  A to T
 *   SUM PRODUCT MIN MAX (a, b) on A                   DIVIDE(a, divisor)
 * All of them are undefined again at the end.
 */
#define LOOP(op, COMBINE)                                                                                              \
    TRI_CLONES static void NAME(op)(void *out, const void *a, const void *b, int64_t count)                            \
    {                                                                                                                  \
        T *to = out;                                                                                                   \
        const T *left = a, *right = b;                                                                                 \
        TRI_APART                                                                                                      \
        for (int64_t i = 0; i < count; i++)                                                                            \
            to[i] = STORE(COMBINE(LOAD(left[i]), LOAD(right[i])));                                                     \
    }
LOOP(sum, SUM)
LOOP(product, PRODUCT)
LOOP(min, MIN)
LOOP(max, MAX)
#undef LOOP

TRI_CLONES static void NAME(sum_both)(void *a, void *b, int64_t count)
{
    T *left = a, *right = b;
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        T sum = STORE(SUM(LOAD(left[i]), LOAD(right[i])));
        left[i] = sum;
        right[i] = sum;
    }
}

TRI_CLONES static void NAME(divide)(void *data, int64_t count, int64_t divisor)
{
    T *to = data;
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        to[i] = STORE(DIVIDE(LOAD(to[i]), divisor));
}

#undef T
#undef A
#undef NAME
#undef LOAD
#undef STORE
#undef SUM
#undef PRODUCT
#undef MIN
#undef MAX
#undef DIVIDE
