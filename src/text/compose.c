/* SPDX-License-Identifier: Apache-2.0
 *
 * compose.c: normalization form C: canonical decomposition, order of marks, composition (Unicode Standard, 3.11).
 *
 * A text is plain characters, which stand for themselves whatever is beside them in front, and stretches of others with
 * the plain character before them. Only stretches are looked up; Hangul syllables follow from arithmetic.
 */
#include <stdlib.h>

#include "base/status.h"
#include "text/unicode.h"

/* Hangul: L leading, V vowels, T trailing; a syllable is L V or L V T. */
#define S_FIRST 0xac00u
#define L_FIRST 0x1100u
#define V_FIRST 0x1161u
#define T_FIRST 0x11a7u /* one before the first */
#define L_COUNT 19u
#define V_COUNT 21u
#define T_COUNT 28u
#define S_COUNT (L_COUNT * V_COUNT * T_COUNT)

/* One character of a stretch, its combining class, and where it stood: what keeps equal marks in order. */
typedef struct mark {
    uint32_t code, class;
    size_t at;
} mark;

static int compare_code(const void *key, const void *item)
{
    const uint32_t code = *(const uint32_t *)key;
    const tri_unicode_triple *triple = item;
    return (code > triple->a) - (code < triple->a);
}

static int compare_run(const void *key, const void *item)
{
    const uint32_t code = *(const uint32_t *)key;
    const tri_unicode_triple *run = item;
    return (code > run->b) - (code < run->a);
}

static int compare_pair(const void *key, const void *item)
{
    const tri_unicode_triple *wanted = key, *triple = item;
    if (wanted->a != triple->a)
        return wanted->a > triple->a ? 1 : -1;
    return (wanted->b > triple->b) - (wanted->b < triple->b);
}

static uint32_t class_of(uint32_t code)
{
    const tri_unicode_triple *run =
        bsearch(&code, tri_unicode_marks, TRI_UNICODE_MARK_COUNT, sizeof(*run), compare_run);
    return run ? run->c : 0;
}

/* No mark, not made of others, and no second half of a pair: true of most there are, not of all. */
static bool is_plain(uint32_t code)
{
    return code < 0xc0 || (code >= 0x3400 && code < 0xa000) || code == TRI_UTF_INVALID;
}

/* What a and b are together, 0: nothing. */
static uint32_t pair_of(uint32_t a, uint32_t b)
{
    if (a - L_FIRST < L_COUNT && b - V_FIRST < V_COUNT)
        return S_FIRST + ((a - L_FIRST) * V_COUNT + (b - V_FIRST)) * T_COUNT;
    if (a - S_FIRST < S_COUNT && (a - S_FIRST) % T_COUNT == 0 && b - T_FIRST - 1 < T_COUNT - 1)
        return a + (b - T_FIRST);
    const tri_unicode_triple wanted = {a, b, 0};
    const tri_unicode_triple *found =
        bsearch(&wanted, tri_unicode_compositions, TRI_UNICODE_COMPOSITION_COUNT, sizeof(*found), compare_pair);
    return found ? found->c : 0;
}

static tri_status mark_push(tri_vector *marks, uint32_t code)
{
    const mark item = {code, class_of(code), marks->count};
    return tri_vector_push(marks, &item) ? TRI_OK : TRI_ENOMEM;
}

/* Recursive as the tables are: at most three steps deep. */
static tri_status decompose(tri_vector *marks, uint32_t code)
{
    if (code - S_FIRST < S_COUNT) {
        const uint32_t index = code - S_FIRST, trailing = index % T_COUNT;
        TRI_TRY(mark_push(marks, L_FIRST + index / (V_COUNT * T_COUNT)));
        TRI_TRY(mark_push(marks, V_FIRST + index / T_COUNT % V_COUNT));
        return trailing > 0 ? mark_push(marks, T_FIRST + trailing) : TRI_OK;
    }
    const tri_unicode_triple *found =
        bsearch(&code, tri_unicode_decompositions, TRI_UNICODE_DECOMPOSITION_COUNT, sizeof(*found), compare_code);
    if (!found)
        return mark_push(marks, code);
    TRI_TRY(decompose(marks, found->b));
    return found->c ? decompose(marks, found->c) : TRI_OK;
}

static int compare_marks(const void *a, const void *b)
{
    const mark *x = a, *y = b;
    if (x->class != y->class)
        return x->class > y->class ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static void order(mark *marks, size_t count)
{
    for (size_t first = 0, end; first < count; first = end) {
        end = first + 1;
        if (marks[first].class == 0)
            continue;
        while (end < count && marks[end].class > 0)
            end++;
        qsort(marks + first, end - first, sizeof(*marks), compare_marks);
    }
}

/* In place; returns how many are left. A mark goes to the last starter unless one of its class or a higher one is
 * between, a starter to the one right before it. */
static size_t put_together(mark *marks, size_t count)
{
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        const bool next = starter != SIZE_MAX && kept == starter + 1;
        const bool open = next || (starter != SIZE_MAX && marks[kept - 1].class < marks[i].class);
        const uint32_t both = open ? pair_of(marks[starter].code, marks[i].code) : 0;
        if (both) {
            marks[starter].code = both;
            continue;
        }
        if (marks[i].class == 0)
            starter = kept;
        marks[kept++] = marks[i];
    }
    return kept;
}

static tri_status stretch_write(tri_vector *marks, tri_string *out)
{
    mark *items = marks->items;
    order(items, marks->count);
    const size_t count = put_together(items, marks->count);
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[4];
        TRI_TRY(tri_string_append_bytes(out, bytes, tri_utf_write(items[i].code, bytes)));
    }
    return TRI_OK;
}

/* The end of the plain characters from `at` on; *last: where the last of them begins, the end if it is none that marks
 * go to. */
static size_t plain_end(const unsigned char *text, size_t nbytes, size_t at, size_t *last)
{
    *last = at;
    while (at < nbytes) {
        uint32_t code;
        size_t length = tri_utf_read(text + at, nbytes - at, &code);
        if (!is_plain(code))
            return at;
        *last = code == TRI_UTF_INVALID ? at + length : at;
        at += length;
    }
    *last = at;
    return at;
}

static tri_status compose(const unsigned char *text, size_t nbytes, tri_vector *marks, tri_string *out)
{
    for (size_t at = 0; at < nbytes;) {
        size_t last, end = plain_end(text, nbytes, at, &last);
        TRI_TRY(tri_string_append_bytes(out, text + at, last - at));
        marks->count = 0;
        for (at = last; at < nbytes;) {
            uint32_t code;
            size_t length = tri_utf_read(text + at, nbytes - at, &code);
            if (is_plain(code) && at >= end)
                break;
            TRI_TRY(decompose(marks, code));
            at += length;
        }
        TRI_TRY(stretch_write(marks, out));
    }
    return TRI_OK;
}

tri_status tri_unicode_compose(const char *text, size_t nbytes, tri_string *out)
{
    tri_vector marks = {.each = sizeof(mark)};
    tri_status status = compose((const unsigned char *)text, nbytes, &marks, out);
    tri_vector_fini(&marks);
    return status;
}
