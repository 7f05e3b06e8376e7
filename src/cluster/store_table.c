/* SPDX-License-Identifier: Apache-2.0
 *
 * store_table.c: requests of a store's clients and the table that answers them, protocol in docs/formats/wire.md.
 *
 * Values are counted references: a thousand clients that are sent the same value share its bytes. All values and keys
 * together, half-received ones too, stay below TRI_STORE_TOTAL_NBYTES. Knows no sockets: bytes come in and go out by
 * store_server.c.
 */
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cluster/store_server_impl.h"

#define BUCKETS_FIRST 64
#define ENTRY_NBYTES  128 /* what a key costs besides its bytes and its value */
#define KEPT          '=' /* before a key of the table in a journal; keys of others begin otherwise */

static store_value *value_create(tri_store_server *server, uint32_t nbytes)
{
    store_value *value = NULL;

    if (nbytes + server->held_nbytes <= TRI_STORE_TOTAL_NBYTES)
        value = tri_alloc(sizeof *value + nbytes + 1);
    if (!value)
        return NULL;
    value->refs = 1;
    value->nbytes = nbytes;
    value->bytes[nbytes] = 0;
    server->held_nbytes += nbytes;
    return value;
}

static void value_release(tri_store_server *server, store_value *value)
{
    if (value && --value->refs == 0) {
        server->held_nbytes -= value->nbytes;
        tri_free(value);
    }
}

/* An entry is one block, found by its bucket. */
static store_entry **bucket_of(const tri_store_server *server, const char *key)
{
    return &server->buckets[XXH3_64bits(key, strlen(key)) & (server->bucket_count - 1)];
}

static store_entry *entry_find(const tri_store_server *server, const char *key)
{
    store_entry *entry = server->buckets ? *bucket_of(server, key) : NULL;

    while (entry && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

static void entry_link(store_entry **bucket, store_entry *entry)
{
    entry->next = *bucket;
    entry->link = bucket;
    if (entry->next)
        entry->next->link = &entry->next;
    *bucket = entry;
}

/* At most one entry a bucket, on average; longer chains where memory is out. False: there are no buckets. */
static bool buckets_grow(tri_store_server *server)
{
    size_t count = server->bucket_count, wanted = count > 0 ? 2 * count : BUCKETS_FIRST;
    store_entry **before = server->buckets, **after;

    if (server->entry_count < count)
        return true;
    after = tri_alloc_zero(wanted, sizeof(store_entry *));
    if (!after)
        return before != NULL;
    server->buckets = after;
    server->bucket_count = wanted;
    for (size_t i = 0; i < count; i++) {
        while (before[i]) {
            store_entry *entry = before[i];

            before[i] = entry->next;
            entry_link(bucket_of(server, entry->key), entry);
        }
    }
    tri_free(before);
    return true;
}

/* NULL when there is no room. */
static store_entry *entry_make(tri_store_server *server, const char *key)
{
    store_entry *entry = entry_find(server, key);

    if (entry || server->held_nbytes + ENTRY_NBYTES + strlen(key) > TRI_STORE_TOTAL_NBYTES)
        return entry;
    if (!buckets_grow(server))
        return NULL;
    entry = tri_alloc_zero(1, sizeof *entry + strlen(key) + 1);
    if (!entry)
        return NULL;
    memcpy(entry->key, key, strlen(key) + 1);
    server->held_nbytes += ENTRY_NBYTES + strlen(key);
    server->entry_count++;
    entry_link(bucket_of(server, key), entry);
    return entry;
}

/* An entry lives while it has a value or somebody waits for it. */
static void entry_settle(tri_store_server *server, store_entry *entry)
{
    if (entry->value || entry->waiters)
        return;
    server->held_nbytes -= ENTRY_NBYTES + strlen(entry->key);
    server->entry_count--;
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    tri_free(entry);
}

static void owed_remove(store_client *client)
{
    if (!client->owed_link)
        return;
    *client->owed_link = client->next_owed;
    if (client->next_owed)
        client->next_owed->owed_link = client->owed_link;
    client->owed_link = NULL;
}

static void wait_end(tri_store_server *server, store_client *client)
{
    store_entry *entry = client->entry;

    if (!entry)
        return;
    for (store_client **at = &entry->waiters; *at; at = &(*at)->next_waiter) {
        if (*at == client) {
            *at = client->next_waiter;
            break;
        }
    }
    client->entry = NULL;
    entry_settle(server, entry);
}

void tri_store_client_destroy(tri_store_server *server, store_client *client)
{
    wait_end(server, client);
    owed_remove(client);
    value_release(server, client->body);
    value_release(server, client->reply);
    if (client->proven)
        atomic_fetch_sub(&server->connected, 1);
    else
        tri_crowd_remove(&server->unproven, &client->caller);
    tri_free(client);
}

/* Starts the reply; takes the reference to value (NULL: an empty one). */
static void reply_start(store_client *client, tri_status status, int64_t number, store_value *value)
{
    tri_store_message message = {.op = (uint8_t)(client->request.op | TRI_STORE_REPLY),
                                 .status = (uint8_t)status,
                                 .ticket = client->request.ticket,
                                 .number = number,
                                 .value_nbytes = value ? value->nbytes : 0};

    tri_store_message_write(&message, client->header);
    client->reply = value;
    client->at = 0;
    client->state = CLIENT_REPLY;
}

/* Small texts are outside the account: one per client. */
static void reply_text(tri_store_server *server, store_client *client, tri_status status, const void *bytes,
                       size_t nbytes)
{
    store_value *value = tri_alloc(sizeof *value + nbytes + 1);

    if (value) {
        value->refs = 1;
        value->nbytes = (uint32_t)nbytes;
        memcpy(value->bytes, bytes, nbytes);
        server->held_nbytes += nbytes; /* value_release takes it off again */
    }
    reply_start(client, status, 0, value);
}

static void reply_error(tri_store_server *server, store_client *client, tri_status status, const char *text)
{
    reply_text(server, client, status, text, strlen(text));
}

static void reply_full(tri_store_server *server, store_client *client)
{
    char text[128];

    snprintf(text, sizeof text, "the store is full: want at most %u bytes in all, %zu are held", TRI_STORE_TOTAL_NBYTES,
             server->held_nbytes);
    reply_error(server, client, TRI_EINVAL, text);
}

/* Before anybody hears of it: a server that takes over knows all that anybody has read. */
static void change_keep(tri_store_server *server, const char *key, const store_value *value)
{
    char kept[TRI_STORE_KEY_NBYTES + 2] = {KEPT};

    if (!server->journal || strncmp(key, TRI_STORE_BEAT, strlen(TRI_STORE_BEAT)) == 0)
        return;
    memcpy(kept + 1, key, strlen(key) + 1);
    tri_journal_put(server->journal, kept, value ? value->bytes : NULL, value ? value->nbytes : 0);
}

/* Takes the reference. */
static void entry_fill(tri_store_server *server, store_entry *entry, store_value *value)
{
    store_client *next;

    change_keep(server, entry->key, value);
    value_release(server, entry->value);
    entry->value = value;
    for (store_client *client = entry->waiters; client; client = next) {
        next = client->next_waiter;
        client->entry = NULL;
        value->refs++;
        reply_start(client, TRI_OK, 0, value);
        client->next_owed = server->owed;
        client->owed_link = &server->owed;
        if (client->next_owed)
            client->next_owed->owed_link = &client->next_owed;
        server->owed = client;
    }
    entry->waiters = NULL;
}

static void answer_prove(tri_store_server *server, store_client *client)
{
    unsigned char want[TRI_AUTH_NBYTES];
    const unsigned char *nonce = (const unsigned char *)client->body->bytes;
    tri_status status;

    client->ending = true;
    status = tri_store_proof(server->token, "client", client->nonce, nonce, want);
    if (status != TRI_OK) {
        reply_error(server, client, status, tri_last_error());
        return;
    }
    if (!tri_auth_equals(want, nonce + TRI_STORE_NONCE_NBYTES)) {
        reply_error(server, client, TRI_ECONFIG, "this process does not know the token of the job (TRIREME_TOKEN)");
        return;
    }
    status = tri_store_proof(server->token, "server", client->nonce, nonce, want);
    if (status == TRI_OK)
        status = tri_store_proof(server->token, "tlskey", client->nonce, nonce, client->secret);
    if (status != TRI_OK) {
        reply_error(server, client, status, tri_last_error());
        return;
    }
    client->ending = false;
    client->proven = true;
    tri_crowd_remove(&server->unproven, &client->caller);
    atomic_fetch_add(&server->connected, 1);
    reply_text(server, client, TRI_OK, want, sizeof want);
}

static void answer_set(tri_store_server *server, store_client *client)
{
    store_entry *entry = entry_make(server, client->key);

    if (!entry) {
        reply_full(server, client);
        return;
    }
    entry_fill(server, entry, client->body);
    client->body = NULL;
    reply_start(client, TRI_OK, 0, NULL);
}

static void answer_claim(tri_store_server *server, store_client *client)
{
    store_entry *entry = entry_make(server, client->key);

    if (!entry) {
        reply_full(server, client);
        return;
    }
    if (!entry->value) {
        entry_fill(server, entry, client->body);
        client->body = NULL;
    }
    entry->value->refs++;
    reply_start(client, TRI_OK, 0, entry->value);
}

static void answer_wait(tri_store_server *server, store_client *client)
{
    store_entry *entry = entry_make(server, client->key);
    int64_t now_ns = tri_now_ns(), ns = client->request.number;

    if (!entry) {
        reply_full(server, client);
    } else if (entry->value) {
        entry->value->refs++;
        reply_start(client, TRI_OK, 0, entry->value);
    } else {
        client->state = CLIENT_WAITS;
        client->deadline_ns = ns < 0 || ns > TRI_FOREVER - now_ns ? TRI_FOREVER : now_ns + ns;
        if (client->deadline_ns < server->sweep_ns)
            server->sweep_ns = client->deadline_ns;
        client->entry = entry;
        client->next_waiter = entry->waiters;
        entry->waiters = client;
    }
}

/* What changes nothing leaves nothing: neither a key nor a record in the journal. */
static void answer_number(tri_store_server *server, store_client *client, bool raises)
{
    store_entry *entry = entry_find(server, client->key);
    store_value *value = entry ? entry->value : NULL;
    char text[32];
    int64_t before, after;
    tri_store_sum none = {0}, sum = {client->request.number, raises};
    tri_status status = tri_store_sum_make(value ? value->bytes : NULL, value ? value->nbytes : 0, none, &before);

    if (status == TRI_OK)
        status = tri_store_sum_make(value ? value->bytes : NULL, value ? value->nbytes : 0, sum, &after);
    if (status != TRI_OK) {
        reply_error(server, client, status, tri_last_error());
        return;
    }
    if (after == before) {
        reply_start(client, TRI_OK, after, NULL);
        return;
    }
    entry = entry_make(server, client->key);
    value = entry ? value_create(server, (uint32_t)snprintf(text, sizeof text, "%lld", (long long)after)) : NULL;
    if (!value) {
        if (entry)
            entry_settle(server, entry);
        reply_full(server, client);
        return;
    }
    memcpy(value->bytes, text, value->nbytes);
    entry_fill(server, entry, value);
    reply_start(client, TRI_OK, after, NULL);
}

/* Also one of no bytes. */
static bool has_value(const tri_store_message *request)
{
    return request->op == TRI_STORE_SET || request->op == TRI_STORE_CLAIM;
}

static void answer(tri_store_server *server, store_client *client)
{
    store_entry *entry;

    if (client->request.op == TRI_STORE_PROVE) {
        answer_prove(server, client);
    } else if (tri_store_key_check(client->key, client->request.key_nbytes) != TRI_OK) {
        reply_error(server, client, TRI_EINVAL, tri_last_error());
    } else if (!client->body && (client->request.value_nbytes > 0 || has_value(&client->request))) {
        reply_full(server, client);
    } else if (client->request.op == TRI_STORE_SET) {
        answer_set(server, client);
    } else if (client->request.op == TRI_STORE_WAIT) {
        answer_wait(server, client);
    } else if (client->request.op == TRI_STORE_CLAIM) {
        answer_claim(server, client);
    } else if (client->request.op == TRI_STORE_ADD) {
        answer_number(server, client, false);
    } else if (client->request.op == TRI_STORE_RAISE) {
        answer_number(server, client, true);
    } else {
        entry = entry_find(server, client->key);
        if (entry) {
            change_keep(server, client->key, NULL);
            value_release(server, entry->value);
            entry->value = NULL;
            entry_settle(server, entry);
        }
        reply_start(client, TRI_OK, 0, NULL);
    }
    value_release(server, client->body);
    client->body = NULL;
}

void tri_store_client_greet(tri_store_server *server, store_client *client)
{
    client->request.op = TRI_STORE_GREET;
    reply_text(server, client, TRI_OK, client->nonce, sizeof client->nonce);
}

void tri_store_client_give_up(tri_store_server *server, store_client *client)
{
    wait_end(server, client);
    reply_error(server, client, TRI_ETIMEOUT, "want it to be set before the deadline, nobody did");
}

/* A whole header is there. False: drop the client. */
static bool header_arrived(tri_store_server *server, store_client *client)
{
    tri_store_message *request = &client->request;
    tri_status status = tri_store_message_read(client->header, request);
    bool is_proof = request->op == TRI_STORE_PROVE;

    if (status == TRI_EFORMAT)
        return false;
    if (status == TRI_OK && (request->op & TRI_STORE_REPLY || request->op == TRI_STORE_GREET))
        return false;
    if (is_proof == client->proven)
        return false;
    if (is_proof && (request->key_nbytes != 0 || request->value_nbytes != TRI_STORE_PROOF_NBYTES))
        return false;
    if (status != TRI_OK) { /* what follows cannot be trusted to have the length it says */
        client->ending = true;
        reply_error(server, client, status, tri_last_error());
        return true;
    }
    client->at = 0;
    client->state = CLIENT_BODY;
    memset(client->key, 0, sizeof client->key);
    if (request->value_nbytes > 0 || has_value(request))
        client->body = value_create(server, request->value_nbytes);
    /* A client without the token does not learn how full the store is. */
    return client->body || client->proven;
}

static size_t request_nbytes(const store_client *client)
{
    return (size_t)client->request.key_nbytes + client->request.value_nbytes;
}

char *tri_store_client_room(store_client *client, size_t *nbytes)
{
    size_t key_nbytes = client->request.key_nbytes;

    if (client->state == CLIENT_HEADER) {
        *nbytes = sizeof client->header - client->at;
        return (char *)client->header + client->at;
    }
    if (client->state != CLIENT_BODY)
        return NULL;
    if (client->at < key_nbytes) {
        *nbytes = key_nbytes - client->at;
        return client->key + client->at;
    }
    *nbytes = request_nbytes(client) - client->at;
    if (client->body)
        return client->body->bytes + (client->at - key_nbytes);
    if (*nbytes > sizeof client->skipped)
        *nbytes = sizeof client->skipped;
    return client->skipped;
}

bool tri_store_client_take(tri_store_server *server, store_client *client, size_t nbytes)
{
    client->at += nbytes;
    if (client->state == CLIENT_HEADER && client->at == sizeof client->header && !header_arrived(server, client))
        return false;
    if (client->state == CLIENT_BODY && client->at == request_nbytes(client)) {
        client->state = CLIENT_REPLY; /* unless the answer is to wait */
        answer(server, client);
    }
    return true;
}

const char *tri_store_client_reply(const store_client *client, size_t *nbytes)
{
    size_t body_nbytes = client->reply ? client->reply->nbytes : 0;

    if (client->at < sizeof client->header) {
        *nbytes = sizeof client->header - client->at;
        return (const char *)client->header + client->at;
    }
    *nbytes = sizeof client->header + body_nbytes - client->at;
    return *nbytes > 0 ? client->reply->bytes + (client->at - sizeof client->header) : NULL;
}

bool tri_store_client_next(tri_store_server *server, store_client *client)
{
    owed_remove(client);
    value_release(server, client->reply);
    client->reply = NULL;
    client->at = 0;
    client->state = CLIENT_HEADER;
    return !client->ending;
}

static tri_status entry_restore(void *arg, const char *key, const char *bytes, size_t nbytes)
{
    tri_store_server *server = arg;

    if (key[0] != KEPT)
        return TRI_OK;
    store_entry *entry = entry_make(server, key + 1);
    store_value *value = entry ? value_create(server, (uint32_t)nbytes) : NULL;

    if (!value)
        return TRI_ENOMEM;
    memcpy(value->bytes, bytes, nbytes);
    entry->value = value;
    return TRI_OK;
}

tri_status tri_store_table_restore(tri_store_server *server)
{
    return server->journal ? tri_journal_each(server->journal, entry_restore, server) : TRI_OK;
}

void tri_store_table_fini(tri_store_server *server)
{
    for (size_t i = 0; i < server->bucket_count; i++) {
        while (server->buckets[i]) {
            store_entry *entry = server->buckets[i];

            value_release(server, entry->value);
            entry->value = NULL;
            entry_settle(server, entry);
        }
    }
    tri_free(server->buckets);
}
