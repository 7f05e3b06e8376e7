/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_store.c: what clients send to a store's server. The bytes go to two clients in turn, a new request to the one
 * that is owed nothing; a client that is dropped is replaced by a stranger.
 *
 * First byte: bit 0: the clients have shown the token already; bit 1: a proof is made right first, so that what lies
 * behind it is reached; bit 2: the table is nearly full; bits 3 to 7: at most so many bytes arrive at once (0: all).
 */
#include <string.h>

#include "cluster/store_server_impl.h"
#include "fuzz/fuzz.h"

#define CLIENTS 2

size_t tri_fuzz_accepted;

static store_client *client_make(tri_store_server *server, bool proven)
{
    store_client *client = tri_alloc_zero(1, sizeof *client);
    TRI_ASSERT(client);
    client->proven = proven;
    if (proven)
        server->connected++;
    else
        tri_crowd_add(&server->unproven, &client->caller, 0, 0);
    tri_store_client_greet(server, client);
    return client;
}

/* Takes the whole reply, which must be one message. False: the server hangs up. */
static bool reply_read(tri_store_server *server, store_client *client)
{
    unsigned char header[TRI_STORE_HEADER_NBYTES];
    tri_store_message message;
    size_t nbytes, total = 0;
    for (const char *from; (from = tri_store_client_reply(client, &nbytes)) != NULL; total += nbytes) {
        if (total == 0) {
            TRI_ASSERT(nbytes == sizeof header);
            memcpy(header, from, nbytes);
        }
        client->at += nbytes;
    }
    TRI_ASSERT(tri_store_message_read(header, &message) == TRI_OK && message.op & TRI_STORE_REPLY);
    TRI_ASSERT(total == sizeof header + message.value_nbytes);
    if (message.status == TRI_OK && message.op != (TRI_STORE_GREET | TRI_STORE_REPLY))
        tri_fuzz_accepted++;
    return tri_store_client_next(server, client);
}

static void proof_correct(const tri_store_server *server, store_client *client)
{
    unsigned char *nonce = (unsigned char *)client->body->bytes;
    TRI_ASSERT(tri_store_proof(server->token, "client", client->nonce, nonce, nonce + TRI_STORE_NONCE_NBYTES) ==
               TRI_OK);
}

/* Puts bytes into the client's room, *at moves on. False: the server hangs up. */
static bool request_write(tri_store_server *server, store_client *client, const uint8_t *bytes, size_t nbytes,
                          size_t *at)
{
    size_t room_nbytes, at_once = bytes[0] >> 3 ? bytes[0] >> 3 : nbytes;
    for (char *room; *at < nbytes && (room = tri_store_client_room(client, &room_nbytes)) != NULL;) {
        size_t count = nbytes - *at < room_nbytes ? nbytes - *at : room_nbytes;
        count = count < at_once ? count : at_once;
        memcpy(room, bytes + *at, count);
        *at += count;
        if (bytes[0] & 2 && client->state == CLIENT_BODY && client->request.op == TRI_STORE_PROVE &&
            count == room_nbytes)
            proof_correct(server, client);
        if (!tri_store_client_take(server, client, count))
            return false;
    }
    return true;
}

/* What one look at the client brings. False: the server hangs up. */
static bool client_turn(tri_store_server *server, store_client *client, const uint8_t *bytes, size_t nbytes, size_t *at)
{
    if (client->state == CLIENT_WAITS && *at < nbytes && bytes[*at] == 0xff) {
        ++*at;
        tri_store_client_give_up(server, client); /* its deadline passes */
    }
    if (client->state == CLIENT_REPLY && !reply_read(server, client))
        return false;
    return request_write(server, client, bytes, nbytes, at);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    static tri_store_server server;
    store_client *clients[CLIENTS];
    if (nbytes < 1)
        return 0;
    memset(&server, 0, sizeof server);
    memcpy(server.token, "token", 6);
    server.held_nbytes = bytes[0] & 4 ? TRI_STORE_TOTAL_NBYTES - 400 : 0;
    size_t held_nbytes = server.held_nbytes, at = 1;
    for (int c = 0; c < CLIENTS; c++)
        clients[c] = client_make(&server, bytes[0] & 1);
    for (int idle = 0; idle < CLIENTS; idle++) {
        for (int c = 0; c < CLIENTS; c++) {
            size_t before = at;
            if (!client_turn(&server, clients[c], bytes, nbytes, &at)) {
                tri_store_client_destroy(&server, clients[c]);
                clients[c] = client_make(&server, false);
            }
            if (at > before)
                idle = -1;
        }
    }
    for (int c = 0; c < CLIENTS; c++)
        tri_store_client_destroy(&server, clients[c]);
    TRI_ASSERT(server.connected == 0 && server.unproven.all.count == 0);
    tri_store_table_fini(&server);
    TRI_ASSERT(server.held_nbytes == held_nbytes);
    return 0;
}

/* op, status, key bytes, value bytes, ticket, number; then key and value */
#define SET    "TRS2\2\0\1\0\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0k5"
#define WAIT   "TRS2\3\0\1\0\0\0\0\0\2\0\0\0\xff\xff\xff\xff\xff\xff\xff\xffk"
#define ADD    "TRS2\4\0\1\0\0\0\0\0\3\0\0\0\7\0\0\0\0\0\0\0k"
#define REMOVE "TRS2\5\0\1\0\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0k"
#define PROVE                                                                                                          \
    "TRS2\1\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0nonce of the client, 32 bytes aan hmac of sha256, that is 32 here"
const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1" WAIT SET WAIT ADD WAIT REMOVE ADD REMOVE),
    TRI_FUZZ_SEED("\1" WAIT WAIT "\xff" SET),
    TRI_FUZZ_SEED("\2" PROVE PROVE SET WAIT ADD REMOVE),
    TRI_FUZZ_SEED("\x1d" SET ADD WAIT REMOVE),
    TRI_FUZZ_REFUSED("\0" PROVE SET),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRS2", "TRS2\2", "TRS2\3", "TRS2\4", "TRS2\5", "9223372036854775807"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
