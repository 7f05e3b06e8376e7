/* SPDX-License-Identifier: Apache-2.0
 *
 * rewrite.c: what is put in front of a text and replaced in it before it is cut into words.
 */
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/unicode.h"

static char *copy_text(tri_arena *arena, const char *text, size_t nbytes)
{
    char *copy = tri_arena_alloc(arena, nbytes + 1, 1);
    if (copy != NULL && nbytes > 0)
        memcpy(copy, text, nbytes);
    return copy;
}

static tri_status check_room(const tri_tokenizer *tokenizer, const tri_rewrites *rewrites)
{
    if (rewrites->count < TRI_REWRITES_MAX)
        return TRI_OK;
    return tri_fail(TRI_EUNSUPPORTED, "%s: want at most %d steps of rewriting a text", tokenizer->origin,
                    TRI_REWRITES_MAX);
}

tri_status tri_rewrites_add_compose(tri_tokenizer *tokenizer, tri_rewrites *rewrites)
{
    TRI_TRY(check_room(tokenizer, rewrites));
    rewrites->steps[rewrites->count++] = (tri_rewrite){.compose = true};
    return TRI_OK;
}

tri_status tri_rewrites_add(tri_tokenizer *tokenizer, tri_rewrites *rewrites, const char *from, size_t from_nbytes,
                            const char *to, size_t to_nbytes)
{
    TRI_TRY(check_room(tokenizer, rewrites));
    if (from != NULL && from_nbytes == 0)
        return tri_fail(TRI_EFORMAT, "%s: Replace: the pattern is empty", tokenizer->origin);
    tri_rewrite step = {.from_nbytes = from_nbytes, .to_nbytes = to_nbytes};
    step.to = copy_text(&tokenizer->arena, to, to_nbytes);
    step.from = from != NULL ? copy_text(&tokenizer->arena, from, from_nbytes) : NULL;
    if (step.to == NULL || (from != NULL && step.from == NULL))
        return TRI_ENOMEM;
    rewrites->steps[rewrites->count++] = step;
    return TRI_OK;
}

/* What a step may make of a text: a file that needs more is hostile. */
#define GROWTH_LIMIT        64
#define GROWTH_LIMIT_NBYTES 4096

static tri_status append(tri_string *out, const char *text, size_t nbytes, size_t limit)
{
    if (nbytes > limit || out->nbytes > limit - nbytes)
        return tri_fail(TRI_EFORMAT, "the normalizer or decoder makes a text more than %d times longer", GROWTH_LIMIT);
    return tri_string_append_bytes(out, text, nbytes);
}

static tri_status replace_all(const tri_rewrite *step, const char *text, size_t nbytes, size_t limit, tri_string *out)
{
    for (size_t at = 0; at < nbytes;) {
        const char *found = memmem(text + at, nbytes - at, step->from, step->from_nbytes);
        size_t end = found != NULL ? (size_t)(found - text) : nbytes;
        TRI_TRY(append(out, text + at, end - at, limit));
        if (found == NULL)
            break;
        TRI_TRY(append(out, step->to, step->to_nbytes, limit));
        at = end + step->from_nbytes;
    }
    return TRI_OK;
}

static bool goes_in_front(const tri_rewrite *step, bool begin, bool resume, const char *text, size_t nbytes)
{
    if (nbytes == 0 || resume || (step->text_begin && !begin))
        return false;
    return !step->unless_there || nbytes < step->to_nbytes || memcmp(text, step->to, step->to_nbytes) != 0;
}

tri_status tri_rewrites_apply(const tri_rewrites *rewrites, bool begin, bool resume, tri_string buffers[2],
                              const char *text, size_t nbytes, const char **out, size_t *out_nbytes)
{
    const size_t limit = GROWTH_LIMIT * nbytes + GROWTH_LIMIT_NBYTES;
    *out = text;
    *out_nbytes = nbytes;
    for (int i = 0; i < rewrites->count; i++) {
        const tri_rewrite *step = &rewrites->steps[i];
        tri_string *buffer = &buffers[*out == buffers[0].text];
        if (step->from == NULL && !step->compose && !goes_in_front(step, begin, resume, *out, *out_nbytes))
            continue;
        tri_string_clear(buffer);
        if (step->compose) {
            TRI_TRY(tri_unicode_compose(*out, *out_nbytes, buffer)); /* three times as long at most */
        } else if (step->from != NULL) {
            TRI_TRY(replace_all(step, *out, *out_nbytes, limit, buffer));
        } else {
            TRI_TRY(append(buffer, step->to, step->to_nbytes, limit));
            TRI_TRY(append(buffer, *out, *out_nbytes, limit));
        }
        *out = tri_string_text(buffer);
        *out_nbytes = buffer->nbytes;
    }
    return TRI_OK;
}
