/* SPDX-License-Identifier: Apache-2.0
 *
 * store_memory.c: a store for ranks of one process: threads, or fibers of a simulation. They share the object.
 */
#include <stdio.h>
#include <string.h>

#include "cluster/store_impl.h"

typedef struct memory_value {
    size_t nbytes;
    char bytes[];
} memory_value;

/* Stays where it is once its key was asked for: a thousand who wait for keys of their own are not woken by each
 * other's.
 */
typedef struct memory_place {
    memory_value *value; /* NULL: there is none */
    tri_cond changed;
} memory_place;

typedef struct memory_store {
    tri_store base;
    tri_mutex mutex;
    tri_map keys;      /* to indices in `places` */
    tri_vector places; /* memory_place * */
} memory_store;

/* Under the lock; NULL: its key is not known. */
static memory_place *place_find(memory_store *store, const char *key)
{
    int64_t at;

    return tri_map_find(&store->keys, key, &at) ? *(memory_place **)tri_vector_at(&store->places, (size_t)at) : NULL;
}

/* Under the lock; NULL: out of memory. */
static memory_place *place_make(memory_store *store, const char *key)
{
    memory_place *place = place_find(store, key);

    if (place)
        return place;
    place = tri_alloc_zero(1, sizeof *place);
    if (!place || !tri_vector_push(&store->places, &place)) {
        tri_free(place);
        return NULL;
    }
    tri_cond_init(&place->changed);
    return tri_map_set(&store->keys, key, (int64_t)store->places.count - 1) == TRI_OK ? place : NULL;
}

/* Under the lock; NULL: there is none. */
static memory_value *value_at(memory_store *store, const char *key)
{
    memory_place *place = place_find(store, key);

    return place ? place->value : NULL;
}

/* Under the lock. */
static tri_status value_put(memory_store *store, const char *key, const void *bytes, size_t nbytes)
{
    memory_value *value = tri_alloc(sizeof *value + nbytes + 1);
    memory_place *place = value ? place_make(store, key) : NULL;

    if (!place) {
        tri_free(value);
        return TRI_ENOMEM;
    }
    value->nbytes = nbytes;
    if (nbytes > 0)
        memcpy(value->bytes, bytes, nbytes);
    value->bytes[nbytes] = 0;
    tri_free(place->value);
    place->value = value;
    tri_cond_broadcast(&place->changed);
    return TRI_OK;
}

static tri_status value_copy(const memory_value *value, char **bytes, size_t *nbytes)
{
    *bytes = tri_alloc(value->nbytes + 1);
    if (!*bytes)
        return TRI_ENOMEM;
    memcpy(*bytes, value->bytes, value->nbytes + 1);
    *nbytes = value->nbytes;
    return TRI_OK;
}

static tri_status memory_set(tri_store *base, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    memory_store *store = tri_container_of(base, memory_store, base);

    (void)deadline_ns;
    tri_mutex_lock(&store->mutex);
    tri_status status = value_put(store, key, bytes, nbytes);
    tri_mutex_unlock(&store->mutex);
    return status;
}

static tri_status memory_wait(tri_store *base, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    memory_store *store = tri_container_of(base, memory_store, base);
    bool late = false;

    tri_mutex_lock(&store->mutex);
    memory_place *place = place_find(store, key);
    if (!place && tri_now_ns() < deadline_ns && !(place = place_make(store, key))) {
        tri_mutex_unlock(&store->mutex);
        return TRI_ENOMEM;
    }
    while (place && !place->value && !late) {
        late = tri_now_ns() >= deadline_ns;
        if (!late)
            tri_cond_wait(&place->changed, &store->mutex, deadline_ns);
    }
    tri_status status = place && place->value ? value_copy(place->value, bytes, nbytes) : TRI_ETIMEOUT;
    tri_mutex_unlock(&store->mutex);
    return status == TRI_ETIMEOUT
               ? tri_fail(status, "store key %s: want it to be set before the deadline, nobody did", key)
               : status;
}

/* Under the lock. */
static tri_status number_change(memory_store *store, const char *key, tri_store_sum sum, int64_t *after)
{
    const memory_value *found = value_at(store, key);
    char text[32];

    TRI_TRY_IN(tri_store_sum_make(found ? found->bytes : NULL, found ? found->nbytes : 0, sum, after), "store key %s",
               key);
    return value_put(store, key, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)*after));
}

static tri_status change_locked(tri_store *base, const char *key, tri_store_sum sum, int64_t *after)
{
    memory_store *store = tri_container_of(base, memory_store, base);

    tri_mutex_lock(&store->mutex);
    tri_status status = number_change(store, key, sum, after);
    tri_mutex_unlock(&store->mutex);
    return status;
}

static tri_status memory_add(tri_store *base, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    (void)deadline_ns;
    return change_locked(base, key, (tri_store_sum){amount, false}, after);
}

static tri_status memory_raise(tri_store *base, const char *key, int64_t least, int64_t *after, int64_t deadline_ns)
{
    (void)deadline_ns;
    return change_locked(base, key, (tri_store_sum){least, true}, after);
}

static tri_status memory_remove(tri_store *base, const char *key, int64_t deadline_ns)
{
    memory_store *store = tri_container_of(base, memory_store, base);

    (void)deadline_ns;
    tri_mutex_lock(&store->mutex);
    memory_place *place = place_find(store, key);
    if (place) {
        tri_free(place->value);
        place->value = NULL;
    }
    tri_mutex_unlock(&store->mutex);
    return TRI_OK;
}

static tri_status memory_claim(tri_store *base, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                               size_t *nbytes, int64_t deadline_ns)
{
    memory_store *store = tri_container_of(base, memory_store, base);
    tri_status status = TRI_OK;

    (void)deadline_ns;
    tri_mutex_lock(&store->mutex);
    if (!value_at(store, key))
        status = value_put(store, key, mine, mine_nbytes);
    if (status == TRI_OK)
        status = value_copy(value_at(store, key), bytes, nbytes);
    tri_mutex_unlock(&store->mutex);
    return status;
}

static void memory_close(tri_store *base)
{
    memory_store *store = tri_container_of(base, memory_store, base);

    for (size_t i = 0; i < store->places.count; i++) {
        memory_place *place = *(memory_place **)tri_vector_at(&store->places, i);

        tri_cond_fini(&place->changed);
        tri_free(place->value);
        tri_free(place);
    }
    tri_vector_fini(&store->places);
    tri_map_fini(&store->keys);
    tri_mutex_fini(&store->mutex);
    tri_free(store);
}

static const tri_store_ops memory_ops = {
    .name = "memory",
    .does = "a table in this process, for its threads or fibers",
    .set = memory_set,
    .wait = memory_wait,
    .add = memory_add,
    .raise = memory_raise,
    .remove = memory_remove,
    .claim = memory_claim,
    .close = memory_close,
};

tri_status tri_store_memory(tri_store **out)
{
    memory_store *store = tri_alloc_zero(1, sizeof *store);

    *out = NULL;
    if (!store)
        return TRI_ENOMEM;
    store->base.ops = &memory_ops;
    store->places.each = sizeof(memory_place *);
    tri_mutex_init(&store->mutex);
    *out = &store->base;
    return TRI_OK;
}
