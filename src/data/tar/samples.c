/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.c: see samples.h.
 */
#include "data/tar/samples.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "data/shards.h"
#include "data/tar/tar.h"

#define LABEL_LIMIT ((uint64_t)1 << 20) /* bytes of a .cls, .json or .txt */
#define TEXT_LIMIT  1000                /* bytes of a label */
#define JSON_FLAGS  (JSON_DECODE_ANY | JSON_REJECT_DUPLICATES)

/* What an entry is to its sample. Of several labels the first in this order counts. */
enum { ROLE_CLS, ROLE_JSON, ROLE_TXT, LABEL_ROLES, ROLE_IMAGE = LABEL_ROLES, ROLE_OTHER };

static const struct {
    const char *ending;
    int role;
} endings[] = {{"cls", ROLE_CLS},    {"json", ROLE_JSON}, {"txt", ROLE_TXT},   {"jpg", ROLE_IMAGE},
               {"jpeg", ROLE_IMAGE}, {"png", ROLE_IMAGE}, {"webp", ROLE_IMAGE}};

/* The sample whose entries are read. */
typedef struct grouping {
    const tri_source *source;
    const char *field;
    tri_tar_samples *out;
    tri_map keys;   /* of the file's samples -> where the first header is */
    tri_string key; /* "": none yet */
    tri_tar_sample sample;
    const char *labels[LABEL_ROLES];
    tri_string endings; /* " jpg cls": those that it has */
} grouping;

static tri_status wrong(const grouping *group, uint64_t at, const char *name, const char *what)
{
    return tri_fail(TRI_EFORMAT, "%s: byte %" PRIu64 " (%.200s): %s", group->source->origin, at, name, what);
}

static bool is_text(const char *text, size_t nbytes)
{
    size_t each;
    for (size_t i = 0; i < nbytes; i += each) {
        each = tri_utf8_nbytes(text + i);
        if (each == 0 || (unsigned char)text[i] < 0x20)
            return false;
    }
    return true;
}

/* The only copy of a label. */
static tri_status label_keep(tri_tar_samples *samples, const char *text, const char **out)
{
    int64_t place;
    if (!tri_map_find(&samples->labels, text, &place)) {
        const char *copy = tri_arena_strdup(&samples->arena, text);
        place = (int64_t)samples->texts.count;
        if (copy == NULL || tri_vector_push(&samples->texts, &copy) == NULL)
            return TRI_ENOMEM;
        TRI_TRY(tri_map_set(&samples->labels, text, place));
    }
    *out = *(const char **)tri_vector_at(&samples->texts, (size_t)place);
    return TRI_OK;
}

/* --- labels --- */

static tri_status json_label(const grouping *group, const tri_tar_entry *entry, const char *text, size_t nbytes,
                             tri_string *out)
{
    const char *const names[] = {group->field[0] != 0 ? group->field : "label", "class", "cls"};
    json_error_t error;
    json_t *root = json_loadb(text, nbytes, JSON_FLAGS, &error);
    if (root == NULL)
        return tri_fail(TRI_EFORMAT, "%s: byte %" PRIu64 " (%.200s): line %d of the JSON: %.100s",
                        group->source->origin, entry->header, entry->name, error.line, error.text);
    const json_t *value = NULL;
    for (size_t i = 0; value == NULL && i < (group->field[0] != 0 ? 1 : TRI_COUNT_OF(names)); i++)
        value = json_object_get(root, names[i]);
    tri_status status = TRI_OK;
    if (json_is_string(value))
        status = tri_string_append_bytes(out, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        status = tri_string_appendf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (value != NULL)
        status = wrong(group, entry->header, entry->name, "want a text or a whole number as label");
    json_decref(root);
    return status;
}

static tri_status label_read(grouping *group, const tri_tar_entry *entry, int role)
{
    const char *text = (const char *)group->source->bytes + entry->at;
    size_t nbytes = (size_t)entry->nbytes;
    tri_string label = {0};
    if (entry->nbytes > LABEL_LIMIT)
        return wrong(group, entry->header, entry->name, "a label of more than 1 MiB");
    tri_status status = TRI_OK;
    if (role == ROLE_JSON) {
        status = json_label(group, entry, text, nbytes, &label);
    } else {
        while (nbytes > 0 && isspace((unsigned char)text[nbytes - 1]))
            nbytes--;
        while (nbytes > 0 && isspace((unsigned char)*text)) {
            text++;
            nbytes--;
        }
        status = tri_string_append_bytes(&label, text, nbytes);
    }
    if (role == ROLE_TXT && (label.nbytes > TEXT_LIMIT || memchr(tri_string_text(&label), '\n', label.nbytes) != NULL))
        tri_string_clear(&label); /* it describes the image */
    if (status == TRI_OK && (label.nbytes > TEXT_LIMIT || !is_text(tri_string_text(&label), label.nbytes)))
        status = wrong(group, entry->header, entry->name, "want a label of one line in UTF-8 and at most 1,000 bytes");
    if (status == TRI_OK)
        status = label_keep(group->out, tri_string_text(&label), &group->labels[role]);
    tri_string_fini(&label);
    return status;
}

/* --- samples --- */

static tri_status sample_end(grouping *group)
{
    if (group->key.nbytes == 0)
        return TRI_OK;
    group->sample.label = "";
    for (int role = LABEL_ROLES; role-- > 0;)
        if (group->labels[role] != NULL && group->labels[role][0] != 0)
            group->sample.label = group->labels[role];
    if (group->field[0] != 0) /* that of the JSON alone */
        group->sample.label = group->labels[ROLE_JSON] != NULL ? group->labels[ROLE_JSON] : "";
    return tri_vector_push(&group->out->items, &group->sample) != NULL ? TRI_OK : TRI_ENOMEM;
}

static tri_status sample_begin(grouping *group, const tri_tar_entry *entry, size_t key_nbytes)
{
    int64_t before;
    TRI_TRY(sample_end(group));
    tri_string_clear(&group->key);
    tri_string_clear(&group->endings);
    memset(group->labels, 0, sizeof(group->labels));
    TRI_TRY(tri_string_append_bytes(&group->key, entry->name, key_nbytes));
    group->sample = (tri_tar_sample){.at = entry->header, .hash = XXH3_64bits(entry->name, key_nbytes), .label = ""};
    if (tri_map_find(&group->keys, group->key.text, &before))
        return tri_fail(TRI_EFORMAT,
                        "%s: byte %" PRIu64 ": the name '%.200s' comes twice, first at byte %" PRId64
                        ": want the entries of a sample one after the other",
                        group->source->origin, entry->header, group->key.text, before);
    return tri_map_set(&group->keys, group->key.text, (int64_t)entry->header);
}

static tri_status ending_add(grouping *group, const tri_tar_entry *entry, const char *ending)
{
    char *word = tri_format(" %s ", ending);
    tri_status status = word != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && strstr(tri_string_text(&group->endings), word) != NULL)
        status = wrong(group, entry->header, entry->name, "the name comes twice");
    if (status == TRI_OK)
        status = tri_string_append(&group->endings, word);
    tri_free(word);
    return status;
}

static int role_of(const char *ending)
{
    for (size_t i = 0; i < TRI_COUNT_OF(endings); i++)
        if (strcasecmp(ending, endings[i].ending) == 0)
            return endings[i].role;
    return ROLE_OTHER;
}

static tri_status entry_add(grouping *group, const tri_tar_entry *entry)
{
    const char *slash = strrchr(entry->name, '/'), *base = slash != NULL ? slash + 1 : entry->name;
    const char *dot = strchr(base, '.');
    if (base[0] == '.' || base[0] == 0 || dot == NULL) { /* hidden, as those that macOS adds, or no part of a sample */
        group->out->others++;
        return TRI_OK;
    }
    const size_t key = (size_t)(dot - entry->name);
    if (group->key.nbytes != key || memcmp(group->key.text, entry->name, key) != 0)
        TRI_TRY(sample_begin(group, entry, key));
    TRI_TRY(ending_add(group, entry, dot + 1));
    const int role = role_of(dot + 1);
    if (role < LABEL_ROLES)
        return label_read(group, entry, role);
    if (role == ROLE_OTHER) {
        group->out->others++;
        return TRI_OK;
    }
    if (group->sample.nbytes > 0)
        return wrong(group, entry->header, entry->name, "a second image of the sample: want one (.jpg, .png or .webp)");
    if (entry->nbytes == 0)
        return wrong(group, entry->header, entry->name, "the file is empty");
    group->sample.at = entry->at;
    group->sample.nbytes = entry->nbytes;
    return TRI_OK;
}

static void samples_init(tri_tar_samples *samples)
{
    *samples = (tri_tar_samples){.items = {.each = sizeof(tri_tar_sample)}, .texts = {.each = sizeof(char *)}};
}

tri_status tri_tar_samples_parse(const tri_source *source, const char *field, tri_tar_samples *out)
{
    tri_tar tar;
    tri_tar_entry entry;
    bool more = true;
    grouping group = {.source = source, .field = field, .out = out};
    samples_init(out);
    tri_tar_open(&tar, source);
    tri_status status = TRI_OK;
    while (status == TRI_OK && more) {
        status = tri_tar_next(&tar, &entry, &more);
        if (status == TRI_OK && more)
            status = entry_add(&group, &entry);
    }
    if (status == TRI_OK)
        status = sample_end(&group);
    tri_tar_close(&tar);
    tri_map_fini(&group.keys);
    tri_string_fini(&group.key);
    tri_string_fini(&group.endings);
    if (status != TRI_OK)
        tri_tar_samples_fini(out);
    return status;
}

void tri_tar_samples_fini(tri_tar_samples *samples)
{
    tri_arena_fini(&samples->arena);
    tri_vector_fini(&samples->items);
    tri_vector_fini(&samples->texts);
    tri_map_fini(&samples->labels);
    *samples = (tri_tar_samples){0};
}

/* --- the index --- */

tri_status tri_tar_index_print(const tri_tar_samples *samples, const char *head, tri_string *out)
{
    TRI_TRY(tri_string_append(out, head));
    for (size_t i = 0; i < samples->items.count; i++) {
        const tri_tar_sample *sample = tri_vector_at(&samples->items, i);
        TRI_TRY(tri_string_appendf(out, "%" PRIu64 " %" PRIu64 " %016" PRIx64 " %s\n", sample->at, sample->nbytes,
                                   sample->hash, sample->label));
    }
    return tri_string_appendf(out, "end %zu %" PRId64 " %016" PRIx64 "\n", samples->items.count, samples->others,
                              XXH3_64bits(tri_string_text(out), out->nbytes));
}

/* "AT NBYTES HASH LABEL"; `line` ends in a 0 byte. */
static bool line_read(char *line, tri_tar_samples *out)
{
    tri_tar_sample sample;
    char *at = line, *stop;
    sample.at = strtoull(at, &stop, 10);
    if (stop == at || *stop != ' ')
        return false;
    at = stop + 1;
    sample.nbytes = strtoull(at, &stop, 10);
    if (stop == at || *stop != ' ')
        return false;
    at = stop + 1;
    sample.hash = strtoull(at, &stop, 16);
    return stop != at && *stop == ' ' && label_keep(out, stop + 1, &sample.label) == TRI_OK &&
           tri_vector_push(&out->items, &sample) != NULL;
}

bool tri_tar_index_parse(const char *text, size_t nbytes, const char *head, tri_tar_samples *out)
{
    samples_init(out);
    const size_t first = strlen(head);
    const char *last = nbytes > 1 ? memrchr(text, '\n', nbytes - 1) : NULL;
    unsigned long long count;
    uint64_t sum;
    if (nbytes <= first || memcmp(text, head, first) != 0 || last == NULL || text[nbytes - 1] != '\n' ||
        sscanf(last + 1, "end %llu %" SCNd64 " %" SCNx64, &count, &out->others, &sum) != 3 ||
        XXH3_64bits(text, (size_t)(last + 1 - text)) != sum)
        return false;
    char *lines = tri_strndup(text + first, (size_t)(last + 1 - text) - first);
    bool good = lines != NULL;
    for (char *line = lines; good && *line != 0;) {
        char *end = strchr(line, '\n');
        *end = 0;
        good = line_read(line, out);
        line = end + 1;
    }
    tri_free(lines);
    if (good && out->items.count == count)
        return true;
    tri_tar_samples_fini(out);
    return false;
}

/* What an index must begin with to be that of the file as it is now. */
static tri_status head_make(const char *path, const char *field, char **out)
{
    uint64_t nbytes;
    int64_t changed;
    TRI_TRY(tri_fs_nbytes(path, &nbytes));
    TRI_TRY(tri_fs_changed(path, &changed));
    *out = tri_format("trireme tar index 1, %" PRIu64 " bytes of %" PRId64 ", label '%s'\n", nbytes, changed, field);
    return *out != NULL ? TRI_OK : TRI_ENOMEM;
}

/* Where nothing can be written, the file is read each time. */
static void index_save(const tri_tar_samples *samples, const char *index, const char *head)
{
    tri_string text = {0};
    if (tri_tar_index_print(samples, head, &text) == TRI_OK &&
        tri_fs_write_swap(index, tri_string_text(&text), text.nbytes) != TRI_OK)
        tri_log(TRI_LOG_WARN,
                "%s: the index of a tar file is not kept: the file is read through at each start "
                "(data.index: another folder): %s",
                index, tri_last_error());
    tri_string_fini(&text);
}

/* An index that is kept, if it is that of the file as it is now. */
static bool index_read(const char *index, const char *head, tri_tar_samples *out)
{
    char *text = NULL;
    size_t nbytes;
    bool is = tri_fs_exists(index) && tri_fs_read(index, 0, &text, &nbytes) == TRI_OK &&
              tri_tar_index_parse(text, nbytes, head, out);
    tri_free(text);
    return is;
}

static tri_status index_make(const char *path, const char *index, const char *head, const char *field,
                             tri_tar_samples *out)
{
    tri_source source;
    TRI_TRY(tri_source_open(&source, path));
    tri_status status = tri_tar_samples_parse(&source, field, out);
    tri_source_fini(&source);
    if (status == TRI_OK && index != NULL)
        index_save(out, index, head);
    return status;
}

/* One process of a host reads the file through, the others wait. */
static tri_status index_find(const char *path, const char *index, const char *head, const char *field,
                             tri_tar_samples *out)
{
    tri_fs_lock lock;
    if (index_read(index, head, out))
        return TRI_OK;
    TRI_TRY(tri_index_lock(index, &lock));
    tri_status status = index_read(index, head, out) ? TRI_OK : index_make(path, index, head, field, out);
    tri_fs_lock_release(&lock);
    return status;
}

tri_status tri_tar_samples_load(const char *path, const char *index_folder, const char *field, tri_tar_samples *out)
{
    char *head = NULL, *index = NULL;
    TRI_TRY(head_make(path, field, &head));
    if (tri_index_path(index_folder, path, "index", &index) != TRI_OK)
        tri_log(TRI_LOG_WARN, "the index of a tar file is not kept (data.index: another folder): %s", tri_last_error());
    tri_status status =
        index != NULL ? index_find(path, index, head, field, out) : index_make(path, NULL, head, field, out);
    tri_free(index);
    tri_free(head);
    return status;
}
