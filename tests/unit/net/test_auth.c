/* SPDX-License-Identifier: Apache-2.0 */
#include "net/auth.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "unit/net/cmocka_all.h"

static void hex(const unsigned char bytes[TRI_AUTH_NBYTES], char text[65])
{
    for (int i = 0; i < TRI_AUTH_NBYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static void sha256_of(const char *message, const char *wanted)
{
    unsigned char out[TRI_AUTH_NBYTES];
    char text[65];

    assert_int_equal(tri_auth_sha256(message, strlen(message), out), TRI_OK);
    hex(out, text);
    assert_string_equal(text, wanted);
}

/* FIPS 180-4 examples. */
static void sha256_gives_the_standard_digests(void **state)
{
    (void)state;
    sha256_of("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_of("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* RFC 4231, case 2; a key longer than a block (case 6); nothing at all. */
static void hmac_gives_the_standard_proofs(void **state)
{
    unsigned char out[TRI_AUTH_NBYTES];
    char text[65], key[132];
    const char *longer = "Test Using Larger Than Block-Size Key - Hash Key First";

    (void)state;
    assert_int_equal(tri_auth_prove("Jefe", "what do ya want for nothing?", 28, out), TRI_OK);
    hex(out, text);
    assert_string_equal(text, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, 131);
    key[131] = 0;
    assert_int_equal(tri_auth_prove(key, longer, strlen(longer), out), TRI_OK);
    hex(out, text);
    assert_string_equal(text, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    assert_int_equal(tri_auth_prove("", "", 0, out), TRI_OK);
    hex(out, text);
    assert_string_equal(text, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void equality_looks_at_every_byte(void **state)
{
    unsigned char a[TRI_AUTH_NBYTES] = {1, 2, 3}, b[TRI_AUTH_NBYTES] = {1, 2, 3};

    (void)state;
    assert_true(tri_auth_equals(a, b));
    for (int i = 0; i < TRI_AUTH_NBYTES; i++) {
        b[i] ^= 0x80;
        assert_false(tri_auth_equals(a, b));
        b[i] ^= 0x80;
    }
}

/* The linker gives HMAC() and EVP_Digest() of auth.c to these. */
static bool refuses;

unsigned char *__real_HMAC(const EVP_MD *kind, const void *key, int key_nbytes, const unsigned char *bytes,
                           size_t nbytes, unsigned char *out, unsigned *out_nbytes);
unsigned char *__wrap_HMAC(const EVP_MD *kind, const void *key, int key_nbytes, const unsigned char *bytes,
                           size_t nbytes, unsigned char *out, unsigned *out_nbytes);
unsigned char *__wrap_HMAC(const EVP_MD *kind, const void *key, int key_nbytes, const unsigned char *bytes,
                           size_t nbytes, unsigned char *out, unsigned *out_nbytes)
{
    return refuses ? NULL : __real_HMAC(kind, key, key_nbytes, bytes, nbytes, out, out_nbytes);
}

int __real_EVP_Digest(const void *bytes, size_t nbytes, unsigned char *out, unsigned *out_nbytes, const EVP_MD *kind,
                      ENGINE *engine);
int __wrap_EVP_Digest(const void *bytes, size_t nbytes, unsigned char *out, unsigned *out_nbytes, const EVP_MD *kind,
                      ENGINE *engine);
int __wrap_EVP_Digest(const void *bytes, size_t nbytes, unsigned char *out, unsigned *out_nbytes, const EVP_MD *kind,
                      ENGINE *engine)
{
    return refuses ? 0 : __real_EVP_Digest(bytes, nbytes, out, out_nbytes, kind, engine);
}

/* Names of a job are seen by others: they have nothing of the token, and are alike for all its processes. */
static void an_id_of_a_job_does_not_show_its_token(void **state)
{
    char token[TRI_AUTH_HEX_NBYTES], id[TRI_AUTH_JOB_NBYTES], again[TRI_AUTH_JOB_NBYTES];

    (void)state;
    assert_int_equal(tri_auth_job_id("0123456789abcdef", id), TRI_OK);
    assert_string_equal(id, "cc0e37960611990c569c8e9856bd323c");
    for (int i = 0; i < 100; i++) {
        tri_auth_token_make(token);
        assert_int_equal(strspn(token, "0123456789abcdef"), 64);
        assert_int_equal(tri_auth_job_id(token, id), TRI_OK);
        assert_int_equal(tri_auth_job_id(token, again), TRI_OK);
        assert_string_equal(id, again);
        assert_int_equal(strlen(id), 32);
        id[8] = 0;
        assert_null(strstr(token, id));
    }
}

static void a_library_that_refuses_is_an_error(void **state)
{
    unsigned char out[TRI_AUTH_NBYTES];

    (void)state;
    refuses = true;
    assert_int_equal(tri_auth_sha256("abc", 3, out), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), "libcrypto: want SHA-256, got: no reason");
    assert_int_equal(tri_auth_prove("key", "abc", 3, out), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), "libcrypto: want HMAC-SHA-256, got: no reason");
    refuses = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_gives_the_standard_digests),  cmocka_unit_test(hmac_gives_the_standard_proofs),
        cmocka_unit_test(equality_looks_at_every_byte),       cmocka_unit_test(an_id_of_a_job_does_not_show_its_token),
        cmocka_unit_test(a_library_that_refuses_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
