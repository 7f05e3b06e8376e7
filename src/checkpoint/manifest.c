/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.c: the manifest as JSON. Its last field, "check", is the hash of all bytes before it, so that a manifest
 * that was cut or changed is found out before it is believed.
 */
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fs.h"
#include "base/json.h"

#define FORMAT_NAME       "trireme checkpoint"
#define TEXT_LIMIT_NBYTES ((uint64_t)256 << 20)
#define CHECK_KEY         ",\"check\":"
#define HASH_PREFIX       "xxh3 "
#define CRC_PREFIX        "crc32c "

static void hash_print(uint64_t hash, char text[32])
{
    snprintf(text, 32, HASH_PREFIX "%016" PRIx64, hash);
}

static void print_files(tri_json *json, const tri_manifest *manifest)
{
    char text[32];
    tri_json files = tri_json_array_in(json, "files");
    for (int i = 0; i < manifest->file_count; i++) {
        const tri_manifest_file *from = &manifest->files[i];
        tri_json file = tri_json_object_in(&files, NULL);
        tri_json_text(&file, "name", from->name);
        tri_json_int(&file, "nbytes", (int64_t)from->nbytes);
        snprintf(text, sizeof(text), CRC_PREFIX "%08" PRIx32, from->header);
        tri_json_text(&file, "header", text);
        tri_json checks = tri_json_array_in(&file, "crc32c");
        for (int64_t c = 0; c < from->check_count; c++) {
            snprintf(text, sizeof(text), "%08" PRIx32, from->checks[c]);
            tri_json_text(&checks, NULL, text);
        }
        tri_json_end(&checks); /* the failure stays in file, then in files, then in json */
        tri_json_end(&file);
    }
    tri_json_end(&files);
}

tri_status tri_manifest_print(const tri_manifest *manifest, tri_string *out)
{
    char text[32];
    tri_json json = tri_json_object(out);
    tri_json_text(&json, "format", FORMAT_NAME);
    tri_json_int(&json, "version", TRI_MANIFEST_VERSION);
    tri_json_text(&json, "trireme", TRI_VERSION);
    tri_json_int(&json, "step", manifest->run.step);
    hash_print(manifest->run.weights_hash, text);
    tri_json_text(&json, "weights", text);
    hash_print(manifest->run.config_hash, text);
    tri_json_text(&json, "config", text);
    tri_json_text(&json, "bits", manifest->run.bits);
    if (manifest->run.loss_scale > 0) {
        tri_json_real(&json, "loss_scale", manifest->run.loss_scale);
        tri_json_int(&json, "loss_scale_good", manifest->run.loss_scale_good);
        tri_json_int(&json, "loss_scale_lost", manifest->run.loss_scale_lost);
    }
    if (manifest->run.guard_steps > 0 || manifest->run.guard_acts > 0) {
        tri_json_real(&json, "guard_loss", manifest->run.guard_loss);
        tri_json_int(&json, "guard_steps", manifest->run.guard_steps);
        tri_json_int(&json, "guard_acts", manifest->run.guard_acts);
    }
    if (manifest->run.kernels[0])
        tri_json_text(&json, "kernels", manifest->run.kernels);
    if (manifest->run.data_count > 0) {
        tri_json_int(&json, "data_samples", manifest->run.data_count);
        tri_json_text(&json, "data_shape", manifest->run.data_shape);
        hash_print(manifest->run.data_digest, text);
        tri_json_text(&json, "data", text);
    }
    if (manifest->run.has_pushes) {
        tri_json_int(&json, "pushes_least", manifest->run.pushes_least);
        tri_json_int(&json, "pushes_most", manifest->run.pushes_most);
    }
    print_files(&json, manifest);
    TRI_TRY(tri_json_end(&json));
    /* "}" gives way to the last field */
    out->text[--out->nbytes] = 0;
    hash_print(XXH3_64bits(out->text, out->nbytes), text);
    return tri_string_appendf(out, CHECK_KEY "\"%s\"}\n", text);
}

static bool read_hash(const char *text, uint64_t *hash)
{
    size_t prefix = strlen(HASH_PREFIX);
    if (text == NULL || strncmp(text, HASH_PREFIX, prefix) != 0 || strlen(text) != prefix + 16 ||
        strspn(text + prefix, "0123456789abcdef") != 16)
        return false;
    *hash = strtoull(text + prefix, NULL, 16);
    return true;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool read_int(const json_t *object, const char *key, int64_t *value)
{
    const json_t *found = json_object_get(object, key);
    *value = json_integer_value(found);
    return json_is_integer(found) && *value >= 0;
}

static bool read_crc(const char *text, const char *prefix, uint32_t *crc)
{
    size_t length = strlen(prefix);
    if (text == NULL || strncmp(text, prefix, length) != 0 || strlen(text) != length + 8 ||
        strspn(text + length, "0123456789abcdef") != 8)
        return false;
    *crc = (uint32_t)strtoul(text + length, NULL, 16);
    return true;
}

static tri_status read_checks(const json_t *entry, const char *origin, tri_manifest_file *file)
{
    const json_t *list = json_object_get(entry, "crc32c");
    size_t count = json_array_size(list);
    bool good = json_is_array(list) && read_crc(text_of(entry, "header"), CRC_PREFIX, &file->header);
    file->checks = tri_alloc(count * sizeof(uint32_t) + 1);
    if (file->checks == NULL)
        return TRI_ENOMEM;
    file->check_count = (int64_t)count;
    for (size_t i = 0; good && i < count; i++)
        good = read_crc(json_string_value(json_array_get(list, i)), "", &file->checks[i]);
    return good ? TRI_OK : tri_fail(TRI_EFORMAT, "%s: %s: want header and crc32c, checksums", origin, file->name);
}

static tri_status read_files(const json_t *list, const char *origin, tri_manifest *manifest)
{
    static const char *const names[TRI_MANIFEST_MAX_FILES] = {TRI_MODEL_FILE, TRI_STATE_FILE};
    size_t count = json_array_size(list);
    if (count < 1 || count > TRI_MANIFEST_MAX_FILES)
        return tri_fail(TRI_EFORMAT, "%s: want 1 or 2 files, got %zu", origin, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = text_of(entry, "name");
        int64_t nbytes;
        tri_manifest_file *file = &manifest->files[i];
        if (name == NULL || strcmp(name, names[i]) != 0)
            return tri_fail(TRI_EFORMAT, "%s: want file %zu to be %s, got '%.40s'", origin, i, names[i],
                            name != NULL ? name : "nothing");
        if (!read_int(entry, "nbytes", &nbytes))
            return tri_fail(TRI_EFORMAT, "%s: %s: want nbytes", origin, name);
        strcpy(file->name, name);
        file->nbytes = (uint64_t)nbytes;
        manifest->file_count = (int)i + 1;
        TRI_TRY(read_checks(entry, origin, file));
    }
    return TRI_OK;
}

static tri_status read_loss_scale(const json_t *object, const char *origin, tri_checkpoint_manifest *run)
{
    const json_t *scale = json_object_get(object, "loss_scale");
    if (scale == NULL)
        return TRI_OK;
    run->loss_scale = json_number_value(scale);
    if (!(run->loss_scale > 0) || !read_int(object, "loss_scale_good", &run->loss_scale_good) ||
        !read_int(object, "loss_scale_lost", &run->loss_scale_lost))
        return tri_fail(TRI_EFORMAT, "%s: want a loss_scale above 0, loss_scale_good and loss_scale_lost", origin);
    return TRI_OK;
}

static tri_status read_guard(const json_t *object, const char *origin, tri_checkpoint_manifest *run)
{
    const json_t *loss = json_object_get(object, "guard_loss");
    if (loss == NULL)
        return TRI_OK;
    run->guard_loss = json_number_value(loss);
    if (!json_is_number(loss) || !read_int(object, "guard_steps", &run->guard_steps) ||
        !read_int(object, "guard_acts", &run->guard_acts))
        return tri_fail(TRI_EFORMAT, "%s: want numbers as guard_loss, guard_steps and guard_acts", origin);
    return TRI_OK;
}

static tri_status read_kernels(const json_t *object, const char *origin, tri_checkpoint_manifest *run)
{
    const char *kernels = text_of(object, "kernels");
    if (json_object_get(object, "kernels") == NULL)
        return TRI_OK;
    if (kernels == NULL || strlen(kernels) >= sizeof(run->kernels))
        return tri_fail(TRI_EFORMAT, "%s: want kernels, a text of fewer than %zu bytes", origin, sizeof(run->kernels));
    strcpy(run->kernels, kernels);
    return TRI_OK;
}

static tri_status read_data(const json_t *object, const char *origin, tri_checkpoint_manifest *run)
{
    const char *shape = text_of(object, "data_shape");
    if (json_object_get(object, "data_samples") == NULL)
        return TRI_OK;
    if (!read_int(object, "data_samples", &run->data_count) || shape == NULL ||
        strlen(shape) >= sizeof(run->data_shape) || !read_hash(text_of(object, "data"), &run->data_digest))
        return tri_fail(TRI_EFORMAT, "%s: want data_samples, data_shape and data, a hash", origin);
    strcpy(run->data_shape, shape);
    return TRI_OK;
}

static tri_status read_pushes(const json_t *object, const char *origin, tri_checkpoint_manifest *run)
{
    run->has_pushes = json_object_get(object, "pushes_least") != NULL;
    if (run->has_pushes &&
        (!read_int(object, "pushes_least", &run->pushes_least) || !read_int(object, "pushes_most", &run->pushes_most)))
        return tri_fail(TRI_EFORMAT, "%s: want whole numbers as pushes_least and pushes_most", origin);
    return TRI_OK;
}

static tri_status read_fields(const json_t *object, const char *origin, tri_manifest *manifest)
{
    int64_t version;
    const char *format = text_of(object, "format"), *bits = text_of(object, "bits");
    if (format == NULL || strcmp(format, FORMAT_NAME) != 0 || !read_int(object, "version", &version))
        return tri_fail(TRI_EFORMAT, "%s: no manifest: want format '%s' and a version", origin, FORMAT_NAME);
    if (version != TRI_MANIFEST_VERSION)
        return tri_fail(TRI_EUNSUPPORTED, "%s: want version %d, got %" PRId64, origin, TRI_MANIFEST_VERSION, version);
    if (!read_int(object, "step", &manifest->run.step) ||
        !read_hash(text_of(object, "weights"), &manifest->run.weights_hash) ||
        !read_hash(text_of(object, "config"), &manifest->run.config_hash))
        return tri_fail(TRI_EFORMAT, "%s: want step, weights and config", origin);
    if (bits == NULL || strlen(bits) >= sizeof(manifest->run.bits))
        return tri_fail(TRI_EFORMAT, "%s: want bits, a text of at most %zu bytes", origin,
                        sizeof(manifest->run.bits) - 1);
    strcpy(manifest->run.bits, bits);
    TRI_TRY(read_loss_scale(object, origin, &manifest->run));
    TRI_TRY(read_guard(object, origin, &manifest->run));
    TRI_TRY(read_data(object, origin, &manifest->run));
    TRI_TRY(read_kernels(object, origin, &manifest->run));
    TRI_TRY(read_pushes(object, origin, &manifest->run));
    return read_files(json_object_get(object, "files"), origin, manifest);
}

/* The last ,"check": of the text; no field before it can contain that, because quotes within texts are escaped. */
static tri_status check_text(const char *text, size_t nbytes, const char *origin, const json_t *object)
{
    size_t key = strlen(CHECK_KEY);
    uint64_t hash;
    if (!read_hash(text_of(object, "check"), &hash))
        return tri_fail(TRI_EFORMAT, "%s: no manifest: want check, a hash", origin);
    for (size_t at = nbytes; at-- > 0;)
        if (nbytes - at >= key && memcmp(text + at, CHECK_KEY, key) == 0) {
            if (XXH3_64bits(text, at) == hash)
                return TRI_OK;
            break;
        }
    return tri_fail(TRI_EFORMAT, "%s: its check does not fit its text: it was changed or damaged", origin);
}

tri_status tri_manifest_parse(const char *text, size_t nbytes, const char *origin, tri_manifest *manifest)
{
    json_error_t error;
    *manifest = (tri_manifest){0};
    json_t *object = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL)
        return tri_fail(TRI_EFORMAT, "%s:%d: %s", origin, error.line, error.text);
    tri_status status = check_text(text, nbytes, origin, object);
    if (status == TRI_OK)
        status = read_fields(object, origin, manifest);
    json_decref(object);
    if (status != TRI_OK)
        tri_manifest_fini(manifest);
    return status;
}

void tri_manifest_fini(tri_manifest *manifest)
{
    for (int i = 0; i < manifest->file_count; i++)
        tri_free(manifest->files[i].checks);
    *manifest = (tri_manifest){0};
}

tri_status tri_manifest_load(const char *path, tri_manifest *manifest)
{
    char *file = tri_format("%s/%s", path, TRI_MANIFEST_FILE), *text = NULL;
    size_t nbytes = 0;
    if (file == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_fs_read(file, TEXT_LIMIT_NBYTES, &text, &nbytes);
    if (status == TRI_OK)
        status = tri_manifest_parse(text, nbytes, file, manifest);
    tri_free(text);
    tri_free(file);
    return status;
}
