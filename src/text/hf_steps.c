/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_steps.c: normalizer, pre-tokenizer, post-processor and decoder of a tokenizer.json.
 */
#include <string.h>

#include "text/hf.h"

#define STEPS_DEPTH 4

typedef tri_status (*step_fn)(tri_tokenizer *tokenizer, const json_t *step, const char *type);

/* One step, or the steps of a Sequence, whose list has the name `list`. */
static tri_status read_steps(tri_tokenizer *tokenizer, const json_t *step, const char *where, const char *list,
                             int depth, step_fn read)
{
    const char *type;
    json_t *steps;
    if (step == NULL || json_is_null(step))
        return TRI_OK;
    TRI_TRY(tri_json_type(step, tokenizer->origin, where, &type));
    if (strcmp(type, "Sequence") != 0)
        return read(tokenizer, step, type);
    if (depth == STEPS_DEPTH)
        return tri_fail(TRI_EFORMAT, "%s: %s: sequences of sequences of sequences", tokenizer->origin, where);
    TRI_TRY(tri_json_field(step, list, JSON_ARRAY, true, tokenizer->origin, where, &steps));
    for (size_t i = 0; i < json_array_size(steps); i++)
        TRI_TRY(read_steps(tokenizer, json_array_get(steps, i), where, list, depth + 1, read));
    return TRI_OK;
}

static tri_status fail_unknown(const tri_tokenizer *tokenizer, const char *where, const char *type, const char *known)
{
    return tri_fail(TRI_EUNSUPPORTED, "%s: %s '%.64s' is not understood (%s)", tokenizer->origin, where, type, known);
}

/* {"String": text} or {"Regex": text}. */
static tri_status read_pattern(const tri_tokenizer *tokenizer, const json_t *step, const char *where, json_t **string,
                               json_t **regex)
{
    json_t *pattern;
    TRI_TRY(tri_json_field(step, "pattern", JSON_OBJECT, true, tokenizer->origin, where, &pattern));
    TRI_TRY(tri_json_field(pattern, "String", JSON_STRING, false, tokenizer->origin, where, string));
    TRI_TRY(tri_json_field(pattern, "Regex", JSON_STRING, false, tokenizer->origin, where, regex));
    if (*string == NULL && *regex == NULL)
        return tri_fail(TRI_EFORMAT, "%s: %s: want a pattern of 'String' or 'Regex'", tokenizer->origin, where);
    return TRI_OK;
}

static tri_status read_replace(tri_tokenizer *tokenizer, const json_t *step, const char *where, tri_rewrites *rewrites)
{
    json_t *string, *regex, *content;
    TRI_TRY(read_pattern(tokenizer, step, where, &string, &regex));
    TRI_TRY(tri_json_field(step, "content", JSON_STRING, true, tokenizer->origin, where, &content));
    if (string == NULL)
        return fail_unknown(tokenizer, where, json_string_value(regex), "Replace with a String");
    return tri_rewrites_add(tokenizer, rewrites, json_string_value(string), json_string_length(string),
                            json_string_value(content), json_string_length(content));
}

/* --- normalizer --- */

static tri_status normalizer_step(tri_tokenizer *tokenizer, const json_t *step, const char *type)
{
    json_t *text;
    if (strcmp(type, "Replace") == 0)
        return read_replace(tokenizer, step, "normalizer", &tokenizer->normalizer);
    if (strcmp(type, "NFC") == 0)
        return tri_rewrites_add_compose(tokenizer, &tokenizer->normalizer);
    if (strcmp(type, "Prepend") != 0)
        return fail_unknown(tokenizer, "normalizer", type, "NFC, Prepend, Replace");
    TRI_TRY(tri_json_field(step, "prepend", JSON_STRING, true, tokenizer->origin, "normalizer", &text));
    return tri_rewrites_add(tokenizer, &tokenizer->normalizer, NULL, 0, json_string_value(text),
                            json_string_length(text));
}

tri_status tri_hf_normalizer(tri_tokenizer *tokenizer, const json_t *section)
{
    return read_steps(tokenizer, section, "normalizer", "normalizers", 0, normalizer_step);
}

/* --- pre-tokenizer --- */

static tri_status set_scan(tri_tokenizer *tokenizer, tri_scan_kind kind)
{
    if (tokenizer->scan != TRI_SCAN_WHOLE)
        return tri_fail(TRI_EUNSUPPORTED, "%s: pre_tokenizer: two rules that cut the text into words",
                        tokenizer->origin);
    tokenizer->scan = kind;
    return TRI_OK;
}

static tri_status read_byte_level(tri_tokenizer *tokenizer, const json_t *step)
{
    bool prefix, regex;
    TRI_TRY(tri_json_flag(step, "add_prefix_space", true, tokenizer->origin, "pre_tokenizer", &prefix));
    TRI_TRY(tri_json_flag(step, "use_regex", true, tokenizer->origin, "pre_tokenizer", &regex));
    if (tokenizer->byte_level)
        return tri_fail(TRI_EUNSUPPORTED, "%s: pre_tokenizer: ByteLevel twice", tokenizer->origin);
    if (prefix && tokenizer->scan != TRI_SCAN_WHOLE)
        return tri_fail(TRI_EUNSUPPORTED, "%s: pre_tokenizer: ByteLevel with add_prefix_space behind a Split",
                        tokenizer->origin);
    tokenizer->byte_level = true;
    if (prefix) {
        TRI_TRY(tri_rewrites_add(tokenizer, &tokenizer->before_words, NULL, 0, " ", 1));
        tokenizer->before_words.steps[tokenizer->before_words.count - 1].unless_there = true;
    }
    return regex ? set_scan(tokenizer, TRI_SCAN_GPT) : TRI_OK;
}

static tri_status read_split(tri_tokenizer *tokenizer, const json_t *step)
{
    json_t *string, *regex, *behavior;
    bool invert;
    tri_scan_kind kind;
    TRI_TRY(read_pattern(tokenizer, step, "pre_tokenizer Split", &string, &regex));
    TRI_TRY(tri_json_field(step, "behavior", JSON_STRING, true, tokenizer->origin, "pre_tokenizer Split", &behavior));
    TRI_TRY(tri_json_flag(step, "invert", false, tokenizer->origin, "pre_tokenizer Split", &invert));
    if (regex == NULL || !tri_scan_find(json_string_value(regex), &kind))
        return tri_fail(TRI_EUNSUPPORTED,
                        "%s: the pattern of Split is none that is known (those of GPT-2, Llama 3 and Qwen2 are): %s",
                        tokenizer->origin, json_string_value(regex != NULL ? regex : string));
    if (strcmp(json_string_value(behavior), invert ? "Removed" : "Isolated") != 0)
        return tri_fail(TRI_EUNSUPPORTED, "%s: Split: want the behavior Isolated, got %.32s%s", tokenizer->origin,
                        json_string_value(behavior), invert ? ", inverted" : "");
    if (tokenizer->byte_level)
        return tri_fail(TRI_EUNSUPPORTED, "%s: pre_tokenizer: a Split behind ByteLevel", tokenizer->origin);
    return set_scan(tokenizer, kind);
}

static tri_status read_metaspace(tri_tokenizer *tokenizer, const json_t *step)
{
    json_t *replacement, *scheme;
    bool split, prefix;
    const char *where = "pre_tokenizer Metaspace";
    TRI_TRY(tri_json_field(step, "replacement", JSON_STRING, true, tokenizer->origin, where, &replacement));
    TRI_TRY(tri_json_field(step, "prepend_scheme", JSON_STRING, false, tokenizer->origin, where, &scheme));
    TRI_TRY(tri_json_flag(step, "split", true, tokenizer->origin, where, &split));
    TRI_TRY(tri_json_flag(step, "add_prefix_space", true, tokenizer->origin, where, &prefix));
    const char *name = scheme != NULL ? json_string_value(scheme) : prefix ? "always" : "never";
    if (strcmp(json_string_value(replacement), TRI_GAP) != 0)
        return fail_unknown(tokenizer, where, json_string_value(replacement), "replacement U+2581");
    if (strcmp(name, "always") != 0 && strcmp(name, "first") != 0 && strcmp(name, "never") != 0)
        return fail_unknown(tokenizer, "prepend_scheme", name, "always, first, never");
    TRI_TRY(tri_rewrites_add(tokenizer, &tokenizer->before_words, " ", 1, TRI_GAP, strlen(TRI_GAP)));
    if (strcmp(name, "never") != 0) {
        TRI_TRY(tri_rewrites_add(tokenizer, &tokenizer->before_words, NULL, 0, TRI_GAP, strlen(TRI_GAP)));
        tri_rewrite *last = &tokenizer->before_words.steps[tokenizer->before_words.count - 1];
        last->unless_there = true;
        last->text_begin = strcmp(name, "first") == 0;
    }
    return split ? set_scan(tokenizer, TRI_SCAN_EACH_GAP) : TRI_OK;
}

static tri_status pre_tokenizer_step(tri_tokenizer *tokenizer, const json_t *step, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(tokenizer, step);
    if (strcmp(type, "Split") == 0)
        return read_split(tokenizer, step);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(tokenizer, step);
    return fail_unknown(tokenizer, "pre_tokenizer", type, "ByteLevel, Split, Metaspace");
}

tri_status tri_hf_pre_tokenizer(tri_tokenizer *tokenizer, const json_t *section)
{
    return read_steps(tokenizer, section, "pre_tokenizer", "pretokenizers", 0, pre_tokenizer_step);
}

/* --- post-processor --- */

static tri_status template_token(tri_tokenizer *tokenizer, const json_t *tokens, const char *name, tri_ids *around)
{
    const char *where = "post_processor";
    json_t *token, *ids;
    TRI_TRY(tri_json_field(tokens, name, JSON_OBJECT, true, tokenizer->origin, where, &token));
    TRI_TRY(tri_json_field(token, "ids", JSON_ARRAY, true, tokenizer->origin, where, &ids));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, i));
        size_t nbytes;
        if (!json_is_integer(json_array_get(ids, i)) || id < 0 || id > INT32_MAX ||
            tri_tokenizer_token(tokenizer, (int32_t)id, &nbytes) == NULL)
            return tri_fail(TRI_EFORMAT, "%s: post_processor: '%.64s': there is no token %lld", tokenizer->origin, name,
                            (long long)id);
        if (around->count == TRI_AROUND_MAX)
            return tri_fail(TRI_EUNSUPPORTED, "%s: post_processor: more than %d tokens on one side", tokenizer->origin,
                            TRI_AROUND_MAX);
        TRI_TRY(tri_ids_push(around, (int32_t)id));
    }
    return TRI_OK;
}

static tri_status read_template(tri_tokenizer *tokenizer, const json_t *step)
{
    const char *where = "post_processor";
    json_t *single, *tokens;
    int side = 0;
    TRI_TRY(tri_json_field(step, "single", JSON_ARRAY, true, tokenizer->origin, where, &single));
    TRI_TRY(tri_json_field(step, "special_tokens", JSON_OBJECT, false, tokenizer->origin, where, &tokens));
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        json_t *special, *name;
        if (json_object_get(piece, "Sequence") != NULL && side == 0) {
            side = 1;
            continue;
        }
        TRI_TRY(tri_json_field(piece, "SpecialToken", JSON_OBJECT, true, tokenizer->origin, where, &special));
        TRI_TRY(tri_json_field(special, "id", JSON_STRING, true, tokenizer->origin, where, &name));
        TRI_TRY(template_token(tokenizer, tokens, json_string_value(name), &tokenizer->around[side]));
    }
    if (side == 0)
        return tri_fail(TRI_EFORMAT, "%s: post_processor: 'single' has no Sequence", tokenizer->origin);
    return TRI_OK;
}

static tri_status post_processor_step(tri_tokenizer *tokenizer, const json_t *step, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0) /* moves offsets only */
        return TRI_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(tokenizer, step);
    return fail_unknown(tokenizer, "post_processor", type, "ByteLevel, TemplateProcessing");
}

tri_status tri_hf_post_processor(tri_tokenizer *tokenizer, const json_t *section)
{
    return read_steps(tokenizer, section, "post_processor", "processors", 0, post_processor_step);
}

/* --- decoder --- */

static tri_status read_strip(tri_tokenizer *tokenizer, const json_t *step)
{
    json_t *content, *start, *stop;
    const char *where = "decoder Strip";
    TRI_TRY(tri_json_field(step, "content", JSON_STRING, true, tokenizer->origin, where, &content));
    TRI_TRY(tri_json_field(step, "start", JSON_INTEGER, true, tokenizer->origin, where, &start));
    TRI_TRY(tri_json_field(step, "stop", JSON_INTEGER, true, tokenizer->origin, where, &stop));
    if (json_integer_value(stop) != 0 || json_integer_value(start) < 0 || json_string_length(content) == 0)
        return tri_fail(TRI_EUNSUPPORTED, "%s: decoder Strip: want a content, start >= 0 and stop 0",
                        tokenizer->origin);
    tokenizer->strip_text = tri_arena_strdup(&tokenizer->arena, json_string_value(content));
    if (tokenizer->strip_text == NULL)
        return TRI_ENOMEM;
    tokenizer->leading = TRI_LEADING_STRIPPED;
    tokenizer->strip_nbytes = strlen(tokenizer->strip_text);
    tokenizer->strip_count = json_integer_value(start);
    return TRI_OK;
}

static tri_status decode_metaspace(tri_tokenizer *tokenizer, const json_t *step)
{
    json_t *scheme;
    TRI_TRY(
        tri_json_field(step, "prepend_scheme", JSON_STRING, false, tokenizer->origin, "decoder Metaspace", &scheme));
    if (scheme == NULL || strcmp(json_string_value(scheme), "never") != 0)
        tokenizer->leading = TRI_LEADING_GAPS;
    return tri_rewrites_add(tokenizer, &tokenizer->decoder, TRI_GAP, strlen(TRI_GAP), " ", 1);
}

static tri_status decoder_step(tri_tokenizer *tokenizer, const json_t *step, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0 && !tokenizer->byte_level)
        return tri_fail(TRI_EUNSUPPORTED, "%s: decoder ByteLevel without a pre_tokenizer ByteLevel", tokenizer->origin);
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "Fuse") == 0)
        return TRI_OK;
    if (strcmp(type, "ByteFallback") == 0) {
        tokenizer->decode_bytes = true;
        return TRI_OK;
    }
    if (strcmp(type, "Replace") == 0)
        return read_replace(tokenizer, step, "decoder", &tokenizer->decoder);
    if (strcmp(type, "Strip") == 0)
        return read_strip(tokenizer, step);
    if (strcmp(type, "Metaspace") == 0)
        return decode_metaspace(tokenizer, step);
    return fail_unknown(tokenizer, "decoder", type, "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip");
}

tri_status tri_hf_decoder(tri_tokenizer *tokenizer, const json_t *section)
{
    return read_steps(tokenizer, section, "decoder", "decoders", 0, decoder_step);
}
