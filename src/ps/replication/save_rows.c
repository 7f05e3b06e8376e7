/* SPDX-License-Identifier: Apache-2.0
 *
 * save_rows.c: tables of rows to files and back, while pushes continue.
 *
 * A save is of one moment: each slot is written as it is then, between two messages, or before the first push that
 * would change it. With bsp the moment of a slot is the end of a step. A file holds the texts of all tables and then
 * slots, each with a hash; the folder's manifest lists the files. docs/formats/ps.md.
 */
#include <stdio.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/yaml.h"
#include "ps/pack.h"
#include "ps/replication/chain.h"
#include "ps/server/connection.h"
#include "ps/server/kv.h"

#define FILE_MAGIC "trirows1"

struct kv_save {
    ps_client_connection *client; /* who needs it; NULL: is gone */
    ps_head head;
    char *path, *part;                   /* of the file, and while it is written */
    int table_count;                     /* those of then */
    int64_t due[PS_TABLES_MAX];          /* bsp: the steps after which it is of */
    bool saved[PS_TABLES_MAX][PS_SLOTS]; /* or not held */
    int left;                            /* slots */
    int next_table, next_slot;
    uint64_t nbytes, hash; /* of the file so far */
    tri_status status;
    char message[TRI_ERROR_NBYTES];
};

static void save_free(ps_kv *kv)
{
    if (kv->save) {
        tri_free(kv->save->path);
        tri_free(kv->save->part);
    }
    tri_free(kv->save);
    kv->save = NULL;
}

/* --- writing --- */

static void append(kv_save *save, const tri_string *bytes)
{
    if (save->status == TRI_OK)
        save->status = tri_fs_append(save->part, tri_string_text(bytes), bytes->nbytes);
    if (save->status != TRI_OK && save->message[0] == '\0')
        snprintf(save->message, sizeof(save->message), "%s", tri_last_error());
    save->hash ^= XXH3_64bits_withSeed(tri_string_text(bytes), bytes->nbytes, save->nbytes);
    save->nbytes += bytes->nbytes;
}

static tri_status head_write(const ps_kv *kv, kv_save *save)
{
    tri_string head = {0};
    tri_status status = tri_string_append(&head, FILE_MAGIC);
    if (status == TRI_OK)
        status = ps_put_u32(&head, (uint32_t)kv->table_count);
    for (int t = 0; t < kv->table_count && status == TRI_OK; t++) {
        const tri_string *text = &kv->tables[t]->text;
        status = ps_put_u32(&head, (uint32_t)text->nbytes);
        if (status == TRI_OK)
            status = tri_string_append_bytes(&head, tri_string_text(text), text->nbytes);
    }
    if (status == TRI_OK)
        append(save, &head);
    tri_string_fini(&head);
    return status;
}

/* table, slot, nbytes, xxh3, bytes */
static tri_status slot_save(kv_save *save, const kv_table *table, int slot)
{
    tri_string out = {0};
    tri_status status = ps_put_u32(&out, (uint32_t)table->number);
    if (status == TRI_OK)
        status = ps_put_u32(&out, (uint32_t)slot);
    if (status == TRI_OK)
        status = ps_put_u64(&out, 0);
    if (status == TRI_OK)
        status = ps_put_u64(&out, 0);
    size_t head = out.nbytes;
    if (status == TRI_OK)
        status = tri_ps_kv_slot_write(table, slot, false, &out);
    if (status == TRI_OK) {
        unsigned char *bytes = (unsigned char *)out.text;
        tri_bytes_write_u64(bytes + head - 16, out.nbytes - head);
        tri_bytes_write_u64(bytes + head - 8, XXH3_64bits(bytes + head, out.nbytes - head));
        append(save, &out);
    }
    tri_string_fini(&out);
    save->saved[table->number][slot] = true;
    save->left--;
    return status;
}

static bool slot_is_due(const kv_save *save, const kv_table *table, int slot)
{
    return table->number < save->table_count && !save->saved[table->number][slot] &&
           (table->spec.table.consistency != PS_BSP || table->slots[slot].clock >= save->due[table->number]);
}

tri_status tri_ps_kv_save_before(const kv_table *table, int slot)
{
    kv_save *save = table->kv->save;
    return save && slot_is_due(save, table, slot) ? slot_save(save, table, slot) : TRI_OK;
}

static tri_status save_end(tri_ps_server *server)
{
    kv_save *save = server->kv->save;
    tri_ps_beat_excuse(server, (int64_t)(server->setup.net->timeout_s * 1e3)); /* the disk may take its time */
    if (save->status == TRI_OK)
        save->status = tri_fs_sync(save->part);
    if (save->status == TRI_OK)
        save->status = tri_fs_rename(save->part, save->path);
    if (save->status != TRI_OK && save->message[0] == '\0')
        snprintf(save->message, sizeof(save->message), "%s", tri_last_error());
    if (save->client && save->status != TRI_OK)
        (void)tri_ps_kv_failed(save->client, &save->head, tri_fail_copy(save->status, save->message));
    else if (save->client) {
        char text[256];
        const char *name = strrchr(save->path, '/');
        snprintf(text, sizeof(text), "- [%s, %llu, %016llx]\n", name ? name + 1 : save->path,
                 (unsigned long long)save->nbytes, (unsigned long long)save->hash);
        ps_head answer = {.kind = PS_KV_DONE, .request = save->head.request, .nbytes = strlen(text)};
        tri_ps_answer(save->client, &answer, text, false);
    }
    save_free(server->kv);
    return TRI_OK;
}

bool tri_ps_kv_is_busy(const ps_kv *kv)
{
    const kv_save *save = kv->save;
    for (int t = 0; save && t < save->table_count; t++)
        for (int s = 0; s < PS_SLOTS; s++)
            if (slot_is_due(save, kv->tables[t], s))
                return true;
    return save && save->left == 0;
}

tri_status tri_ps_kv_go_on(tri_ps_server *server)
{
    ps_kv *kv = server->kv;
    kv_save *save = kv->save;
    for (int i = 0; save && save->left > 0 && i < PS_SLOTS * save->table_count; i++) {
        int table = save->next_table, slot = save->next_slot;
        save->next_slot = (slot + 1) % PS_SLOTS;
        save->next_table = save->next_slot == 0 ? (table + 1) % save->table_count : table;
        if (!slot_is_due(save, kv->tables[table], slot))
            continue;
        TRI_TRY(slot_save(save, kv->tables[table], slot));
        break;
    }
    return save && save->left == 0 ? save_end(server) : TRI_OK;
}

void tri_ps_kv_save_forget(ps_kv *kv, const ps_client_connection *client)
{
    if (kv->save && (!client || kv->save->client == client))
        kv->save->client = NULL;
    if (!client)
        save_free(kv);
}

/* body: how many tables, of each number and step; the folder. */
static tri_status save_read(const tri_ps_server *server, kv_save *save, const void *body, size_t nbytes)
{
    const ps_kv *kv = server->kv;
    ps_reader reader = ps_reader_make(body, nbytes);
    uint32_t count = ps_read_u32(&reader);
    save->table_count = kv->table_count;
    for (uint32_t i = 0; i < count && !reader.ended; i++) {
        uint32_t id = ps_read_u32(&reader);
        int64_t step = (int64_t)ps_read_u64(&reader);
        for (int t = 0; t < kv->table_count; t++)
            if (kv->tables[t]->id == id)
                save->due[t] = step;
    }
    const char *folder = (const char *)reader.at;
    if (reader.ended || reader.left == 0 || memchr(folder, '\0', reader.left))
        return tri_fail(TRI_EFORMAT, "a save: want tables and a folder in %zu bytes", nbytes);
    save->path = tri_format("%.*s/server-%d.rows", (int)reader.left, folder, server->setup.number);
    save->part = tri_format("%.*s/server-%d.part", (int)reader.left, folder, server->setup.number);
    return save->path && save->part ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_ps_kv_save(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body)
{
    ps_kv *kv = server->kv;
    if (kv->save && kv->save->client)
        return tri_ps_kv_failed(client, head, tri_fail(TRI_EINVAL, "another save is under way"));
    save_free(kv); /* of somebody who is gone, and asks again */
    kv_save *save = kv->save = tri_alloc_zero(1, sizeof(*save));
    if (!save)
        return TRI_ENOMEM;
    *save = (kv_save){.client = client, .head = *head};
    tri_status status = save_read(server, save, body, head->nbytes);
    for (int t = 0; t < kv->table_count && status == TRI_OK; t++)
        for (int s = 0; s < PS_SLOTS; s++) {
            save->saved[t][s] = server->view.slots[s] != server->setup.number;
            save->left += !save->saved[t][s];
        }
    if (status == TRI_OK) {
        (void)tri_fs_remove(save->part);
        status = head_write(kv, save);
    }
    if (status != TRI_OK) {
        save_free(kv);
        return status;
    }
    return TRI_OK;
}

/* --- reading --- */

static tri_status fail_file(const char *path, const char *what)
{
    return tri_fail(TRI_EFORMAT, "%s: %s", path, what);
}

/* The tables of a file, by its numbers, as they are here. */
static tri_status head_read(const ps_kv *kv, const char *path, ps_reader *reader, kv_table *tables[PS_TABLES_MAX],
                            uint32_t *count)
{
    const unsigned char *magic = ps_read(reader, strlen(FILE_MAGIC));
    *count = ps_read_u32(reader);
    if (!magic || memcmp(magic, FILE_MAGIC, strlen(FILE_MAGIC)) != 0 || *count > PS_TABLES_MAX)
        return fail_file(path, "no file of rows");
    for (uint32_t t = 0; t < *count; t++) {
        ps_kv_spec spec;
        size_t nbytes = ps_read_u32(reader);
        const unsigned char *text = ps_read(reader, nbytes);
        if (!text)
            return fail_file(path, "cut short");
        TRI_TRY(ps_kv_spec_parse((const char *)text, nbytes, &spec));
        tables[t] = NULL;
        for (int own = 0; own < kv->table_count; own++)
            if (strcmp(kv->tables[own]->spec.name, spec.name) == 0)
                tables[t] = kv->tables[own];
        if (!tables[t])
            return tri_fail(TRI_ENOTFOUND, "%s: table '%s' is not open", path, spec.name);
    }
    return TRI_OK;
}

static tri_status slots_read(const tri_ps_server *server, ps_role role, const char *path, ps_reader *reader,
                             kv_table **tables, uint32_t count)
{
    while (reader->left > 0) {
        uint32_t table = ps_read_u32(reader), slot = ps_read_u32(reader);
        uint64_t nbytes = ps_read_u64(reader), hash = ps_read_u64(reader);
        const unsigned char *bytes = nbytes <= reader->left ? ps_read(reader, (size_t)nbytes) : NULL;
        if (!bytes || table >= count || slot >= PS_SLOTS || XXH3_64bits(bytes, (size_t)nbytes) != hash)
            return fail_file(path, "cut short or damaged");
        if (ps_view_role(&server->view, server->setup.number, (int)slot) == role)
            TRI_TRY_IN(tri_ps_kv_slot_read(tables[table], (int)slot, bytes, (size_t)nbytes), "%s", path);
    }
    return TRI_OK;
}

static tri_status file_load(const tri_ps_server *server, ps_role role, const char *folder, const char *name,
                            uint64_t nbytes)
{
    tri_fs_map map;
    kv_table *tables[PS_TABLES_MAX];
    uint32_t count;
    char *path = tri_format("%s/%s", folder, name);
    if (!path)
        return TRI_ENOMEM;
    tri_status status = tri_fs_map_open(path, &map);
    if (status != TRI_OK) {
        tri_free(path);
        return status;
    }
    ps_reader reader = ps_reader_make(map.bytes, map.nbytes);
    if (map.nbytes != nbytes)
        status = fail_file(path, "not as long as the manifest says");
    if (status == TRI_OK)
        status = head_read(server->kv, path, &reader, tables, &count);
    if (status == TRI_OK)
        status = slots_read(server, role, path, &reader, tables, count);
    tri_fs_map_close(&map);
    tri_free(path);
    return status;
}

static tri_status folder_load(const tri_ps_server *server, ps_role role, const char *folder)
{
    char *text = NULL, *path = tri_format("%s/manifest.yaml", folder);
    size_t nbytes;
    tri_arena arena = {0};
    tri_yaml *root;
    tri_status status = path ? tri_fs_read(path, 1 << 20, &text, &nbytes) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_yaml_parse(&arena, text, nbytes, path, &root);
    const tri_yaml *files = status == TRI_OK ? tri_yaml_find(root, "files") : NULL;
    if (status == TRI_OK && (!files || files->kind != TRI_YAML_LIST))
        status = fail_file(path, "no manifest of rows");
    for (const tri_yaml *file = files ? files->child : NULL; file && status == TRI_OK; file = file->next) {
        int64_t length = 0;
        bool named = file->kind == TRI_YAML_LIST && tri_yaml_count(file) == 3 && file->child->text;
        status = named && !strchr(file->child->text, '/')
                     ? tri_yaml_int(file->child->next, "bytes of a file", 0, INT64_MAX, &length)
                     : fail_file(path, "want [name, bytes, hash] of each file");
        if (status == TRI_OK)
            status = file_load(server, role, folder, file->child->text, (uint64_t)length);
    }
    tri_arena_fini(&arena);
    tri_free(text);
    tri_free(path);
    return status;
}

tri_status tri_ps_kv_load(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body)
{
    char *folder = tri_strndup(body ? body : "", head->nbytes);
    if (!folder)
        return TRI_ENOMEM;
    tri_ps_beat_excuse(server, (int64_t)(server->setup.net->timeout_s * 1e3));
    tri_status status = folder_load(server, client->server >= 0 ? PS_BACKUP : PS_PRIMARY, folder);
    tri_free(folder);
    if (status == TRI_ENOMEM)
        return status;
    if (status != TRI_OK)
        return tri_ps_kv_failed(client, head, status);
    ps_head answer = {.kind = PS_KV_DONE, .request = head->request};
    tri_ps_answer(client, &answer, NULL, false);
    return TRI_OK;
}
