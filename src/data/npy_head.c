/* SPDX-License-Identifier: Apache-2.0
 *
 * npy_head.c: the head of a .npy file: a magic, a length, and a Python dictionary that is parsed here by hand.
 *
 * Grammar: { key : value , ... } with the keys 'descr' (a string), 'fortran_order' (True, False), 'shape' (a tuple of
 * numbers), each once, in any order, spaces anywhere. numpy/lib/format.py writes it.
 */
#include <inttypes.h>
#include <string.h>

#include "data/npy.h"

#define HEAD_LIMIT_NBYTES (UINT32_C(1) << 16) /* what version 1.0 can say; numpy.load itself stops at 10,000 */

typedef struct npy_text {
    const char *origin;
    const char *at, *end;
    const char *begin;
} npy_text;

static tri_status wrong(const npy_text *text, const char *wanted)
{
    int left = (int)(text->end - text->at < 12 ? text->end - text->at : 12);
    return tri_fail(TRI_EFORMAT, "%s: npy head, byte %zu: want %s, got '%.*s'", text->origin,
                    (size_t)(text->at - text->begin), wanted, left, text->at);
}

static void skip_spaces(npy_text *text)
{
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' || *text->at == '\r'))
        text->at++;
}

static bool accept(npy_text *text, char wanted)
{
    skip_spaces(text);
    if (text->at == text->end || *text->at != wanted)
        return false;
    text->at++;
    return true;
}

static bool accept_word(npy_text *text, const char *word)
{
    skip_spaces(text);
    size_t nbytes = strlen(word);
    if ((size_t)(text->end - text->at) < nbytes || memcmp(text->at, word, nbytes) != 0)
        return false;
    text->at += nbytes;
    return true;
}

/* A quoted string without escapes: none of the known ones has any. */
static tri_status read_string(npy_text *text, char out[32])
{
    skip_spaces(text);
    if (text->at == text->end || (*text->at != '\'' && *text->at != '"'))
        return wrong(text, "a string");
    char quote = *text->at++;
    size_t count = 0;
    while (text->at < text->end && *text->at != quote) {
        if (count == 31 || *text->at == '\\' || *text->at == 0)
            return wrong(text, "the end of a short string");
        out[count++] = *text->at++;
    }
    if (text->at == text->end)
        return wrong(text, "a closing quote");
    text->at++;
    out[count] = 0;
    return TRI_OK;
}

static tri_status read_dim(npy_text *text, int64_t *out)
{
    skip_spaces(text);
    if (text->at == text->end || *text->at < '0' || *text->at > '9')
        return wrong(text, "a number >= 0");
    int64_t value = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *text->at - '0', &value))
            return wrong(text, "a number below 2^63");
    if (text->at < text->end && *text->at == 'L') /* Python 2 wrote longs so */
        text->at++;
    *out = value;
    return TRI_OK;
}

static tri_status read_shape(npy_text *text, tri_shape *shape)
{
    if (!accept(text, '('))
        return wrong(text, "'('");
    *shape = (tri_shape){0};
    while (!accept(text, ')')) {
        if (shape->ndim == TRI_MAX_DIMS)
            return tri_fail(TRI_EUNSUPPORTED, "%s: want at most %d dimensions", text->origin, TRI_MAX_DIMS);
        TRI_TRY(read_dim(text, &shape->dim[shape->ndim++]));
        if (!accept(text, ',')) {
            if (!accept(text, ')'))
                return wrong(text, "',' or ')'");
            break;
        }
    }
    return TRI_OK;
}

static tri_status read_type(npy_text *text, tri_dtype *dtype)
{
    static const struct {
        const char *code;
        tri_dtype dtype;
    } known[] = {{"f2", TRI_F16}, {"f4", TRI_F32}, {"f8", TRI_F64}, {"u1", TRI_U8},
                 {"i1", TRI_I8},  {"i4", TRI_I32}, {"i8", TRI_I64}};
    skip_spaces(text);
    if (text->at < text->end && *text->at == '[')
        return tri_fail(TRI_EUNSUPPORTED, "%s: structured arrays are not supported", text->origin);
    char code[32];
    TRI_TRY(read_string(text, code));
    for (size_t i = 0; i < TRI_COUNT_OF(known); i++) {
        if (code[0] == 0 || strcmp(code + 1, known[i].code) != 0)
            continue;
        if (code[0] == '>' && tri_dtype_nbytes(known[i].dtype) > 1)
            return tri_fail(TRI_EUNSUPPORTED, "%s: elements are big endian ('%s'); save them as little endian",
                            text->origin, code);
        if (strchr("<|=>", code[0]) == NULL)
            break;
        *dtype = known[i].dtype;
        return TRI_OK;
    }
    return tri_fail(TRI_EUNSUPPORTED, "%s: elements are '%s'; want f2, f4, f8, u1, i1, i4 or i8, little endian",
                    text->origin, code);
}

static tri_status read_fortran(npy_text *text, bool *fortran)
{
    *fortran = accept_word(text, "True");
    if (!*fortran && !accept_word(text, "False"))
        return wrong(text, "True or False");
    return TRI_OK;
}

static tri_status read_dictionary(npy_text *text, tri_npy_head *head)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false}, fortran = false;
    if (!accept(text, '{'))
        return wrong(text, "'{'");
    while (!accept(text, '}')) {
        char key[32];
        TRI_TRY(read_string(text, key));
        size_t which = 0;
        while (which < TRI_COUNT_OF(keys) && strcmp(key, keys[which]) != 0)
            which++;
        if (which == TRI_COUNT_OF(keys) || seen[which])
            return tri_fail(TRI_EFORMAT, "%s: npy head: %s key '%s'", text->origin,
                            which == TRI_COUNT_OF(keys) ? "unknown" : "repeated", key);
        seen[which] = true;
        if (!accept(text, ':'))
            return wrong(text, "':'");
        TRI_TRY(which == 0   ? read_type(text, &head->dtype)
                : which == 1 ? read_fortran(text, &fortran)
                             : read_shape(text, &head->shape));
        if (!accept(text, ',')) {
            if (!accept(text, '}'))
                return wrong(text, "',' or '}'");
            break;
        }
    }
    skip_spaces(text);
    if (text->at != text->end)
        return wrong(text, "nothing more");
    for (size_t i = 0; i < TRI_COUNT_OF(keys); i++)
        if (!seen[i])
            return tri_fail(TRI_EFORMAT, "%s: npy head: '%s' is missing", text->origin, keys[i]);
    if (fortran && head->shape.ndim > 1)
        return tri_fail(TRI_EUNSUPPORTED, "%s: the array is in Fortran order; save numpy.ascontiguousarray(x)",
                        text->origin);
    return TRI_OK;
}

tri_status tri_npy_head_read(tri_stream *stream, tri_npy_head *head)
{
    const char *origin = stream->source->origin;
    unsigned char fixed[12] = {0};
    TRI_TRY(tri_stream_read(stream, fixed, 8));
    if (memcmp(fixed, "\x93NUMPY", 6) != 0)
        return tri_fail(TRI_EFORMAT, "%s: no npy file: it does not begin with \\x93NUMPY", origin);
    if (fixed[6] < 1 || fixed[6] > 3 || fixed[7] != 0)
        return tri_fail(TRI_EUNSUPPORTED, "%s: want npy version 1.0, 2.0 or 3.0, got %d.%d", origin, fixed[6],
                        fixed[7]);
    size_t length_nbytes = fixed[6] == 1 ? 2 : 4;
    TRI_TRY(tri_stream_read(stream, fixed + 8, length_nbytes));
    uint32_t nbytes = fixed[8] | (uint32_t)fixed[9] << 8 | (uint32_t)fixed[10] << 16 | (uint32_t)fixed[11] << 24;
    if (nbytes > HEAD_LIMIT_NBYTES)
        return tri_fail(TRI_EFORMAT, "%s: want an npy head of at most %u bytes, got %u", origin, HEAD_LIMIT_NBYTES,
                        nbytes);
    char *bytes = tri_alloc(nbytes);
    if (bytes == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_stream_read(stream, bytes, nbytes);
    npy_text text = {.origin = origin, .at = bytes, .end = bytes + nbytes, .begin = bytes};
    if (status == TRI_OK)
        status = read_dictionary(&text, head);
    tri_free(bytes);
    head->nbytes = 8 + length_nbytes + nbytes;
    return status;
}
