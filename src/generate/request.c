/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c: a line of JSON to a request, every field checked.
 */
#include "generate/request.h"

#include <math.h>
#include <string.h>

#include "text/json_read.h"

#define TOKENS_LIMIT 1000000000

tri_status tri_generate_request_check(const tri_generate_request *request)
{
    const tri_pick_rule *rule = &request->rule;
    if (request->max_tokens < 0 || request->max_tokens > TOKENS_LIMIT)
        return tri_fail(TRI_ECONFIG, "max tokens: want 0 to %d, got %lld", TOKENS_LIMIT,
                        (long long)request->max_tokens);
    if (request->slide < 0)
        return tri_fail(TRI_ECONFIG, "slide: want 0 (a text ends where the context does) or more tokens, got %lld",
                        (long long)request->slide);
    if (!(rule->temperature >= 0) || !isfinite(rule->temperature))
        return tri_fail(TRI_ECONFIG, "temperature: want 0 (the likeliest token) or more, got %g", rule->temperature);
    if (rule->top_k < 0)
        return tri_fail(TRI_ECONFIG, "top k: want 0 (all) or more tokens, got %lld", (long long)rule->top_k);
    if (!(rule->top_p > 0 && rule->top_p <= 1))
        return tri_fail(TRI_ECONFIG, "top p: want a probability above 0, at most 1 (all), got %g", rule->top_p);
    if (!(rule->repeat > 0) || !isfinite(rule->repeat))
        return tri_fail(TRI_ECONFIG, "repeat: want a factor above 0, 1 changes nothing, got %g", rule->repeat);
    return TRI_OK;
}

void tri_generate_request_fini(tri_generate_request *request)
{
    tri_free((char *)(uintptr_t)request->prompt);
    tri_free((char *)(uintptr_t)request->stop);
    request->prompt = request->stop = NULL;
}

static tri_status text_take(const json_t *object, const char *name, bool needed, const char *origin, const char **out,
                            size_t *nbytes)
{
    json_t *value;
    TRI_TRY(tri_json_field(object, name, JSON_STRING, needed, origin, "a line", &value));
    const char *text = value ? json_string_value(value) : *out;
    const size_t length = value ? json_string_length(value) : text ? strlen(text) : 0;
    if (nbytes)
        *nbytes = length;
    *out = NULL;
    if (!text)
        return TRI_OK;
    char *copy = tri_alloc(length + 1); /* the text may hold zeros */
    if (!copy)
        return TRI_ENOMEM;
    memcpy(copy, text, length);
    copy[length] = 0;
    *out = copy;
    return TRI_OK;
}

static tri_status number_read(const json_t *value, const char *name, const char *origin, double *out)
{
    if (!value || json_is_null(value))
        return TRI_OK;
    if (!json_is_number(value))
        return tri_fail(TRI_EFORMAT, "%s: '%s': want a number", origin, name);
    *out = json_number_value(value);
    return TRI_OK;
}

static tri_status whole_read(const json_t *value, const char *name, const char *origin, int64_t *out)
{
    if (!value || json_is_null(value))
        return TRI_OK;
    if (!json_is_integer(value))
        return tri_fail(TRI_EFORMAT, "%s: '%s': want a whole number", origin, name);
    *out = (int64_t)json_integer_value(value);
    return TRI_OK;
}

static tri_status object_read(json_t *object, const char *origin, tri_generate_request *request)
{
    int64_t seed = (int64_t)request->rule.seed;
    static const char *const names[] = {"prompt", "max_tokens", "slide", "temperature", "top_k",
                                        "top_p",  "repeat",     "seed",  "stop"};
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
            known = known || strcmp(names[i], name) == 0;
        if (!known)
            return tri_fail(TRI_EFORMAT,
                            "%s: there is no field '%.40s' (prompt, max_tokens, slide, temperature, top_k, "
                            "top_p, repeat, seed, stop)",
                            origin, name);
    }
    TRI_TRY(whole_read(json_object_get(object, "max_tokens"), "max_tokens", origin, &request->max_tokens));
    TRI_TRY(whole_read(json_object_get(object, "slide"), "slide", origin, &request->slide));
    TRI_TRY(number_read(json_object_get(object, "temperature"), "temperature", origin, &request->rule.temperature));
    TRI_TRY(whole_read(json_object_get(object, "top_k"), "top_k", origin, &request->rule.top_k));
    TRI_TRY(number_read(json_object_get(object, "top_p"), "top_p", origin, &request->rule.top_p));
    TRI_TRY(number_read(json_object_get(object, "repeat"), "repeat", origin, &request->rule.repeat));
    TRI_TRY(whole_read(json_object_get(object, "seed"), "seed", origin, &seed));
    request->rule.seed = (uint64_t)seed;
    tri_status status = tri_generate_request_check(request);
    if (status != TRI_OK)
        return tri_fail_context(TRI_EFORMAT, "%s", origin);
    TRI_TRY(text_take(object, "prompt", true, origin, &request->prompt, &request->prompt_nbytes));
    return text_take(object, "stop", false, origin, &request->stop, NULL);
}

tri_status tri_generate_request_parse(const char *line, size_t nbytes, const char *origin,
                                      tri_generate_request *request)
{
    json_t *root = NULL;
    const tri_generate_request given = *request;
    tri_status status = tri_json_load(line, nbytes, origin, &root);
    if (status == TRI_OK) {
        request->prompt = NULL;
        status = object_read(root, origin, request);
    }
    if (status != TRI_OK) {
        if (request->prompt != given.prompt)
            tri_free((char *)(uintptr_t)request->prompt);
        *request = given;
    }
    json_decref(root);
    return status;
}
