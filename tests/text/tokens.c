/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.c: a file to tokens and back, for scripts that compare with other tokenizers or measure beside them.
 *
 * usage: text_tokens TOKENIZER FILE [--threads N] [--rounds N] [--ids OUT] [--text OUT] [--save OUT] [--whole]
 *
 * TOKENIZER is "char" or what tri_tokenizer_open takes. With --rounds it prints the seconds of each round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "text/tokenizer.h"

#define THREADS_MAX  64
#define CHUNK_NBYTES ((size_t)256 << 10)

typedef struct options {
    const char *tokenizer, *file, *ids, *text, *save;
    int threads, rounds;
    unsigned flags;
} options;

typedef struct worker {
    const tri_tokenizer *tokenizer;
    tri_encoder *encoder;
    const char *text;
    size_t nbytes;
    int number, count; /* of this worker and of all */
    unsigned flags;
    tri_ids ids;
} worker;

static void check(tri_status status)
{
    if (status == TRI_OK)
        return;
    fprintf(stderr, "error: %s\n", tri_last_error());
    exit(1);
}

static void write_file(const char *path, const void *bytes, size_t nbytes)
{
    if (path != NULL)
        check(tri_fs_write_swap(path, bytes, nbytes));
}

/* Chunks number, number + count, ...; a single worker takes the text as it is. */
static void encode_chunks(void *arg)
{
    worker *work = arg;
    work->ids.count = 0;
    if (work->count == 1) {
        check(tri_encode(work->encoder, work->text, work->nbytes, work->flags, &work->ids));
        return;
    }
    for (size_t first = (size_t)work->number * CHUNK_NBYTES; first < work->nbytes;
         first += (size_t)work->count * CHUNK_NBYTES) {
        size_t begin = tri_tokenizer_cut(work->tokenizer, work->text, work->nbytes, first);
        size_t end = tri_tokenizer_cut(work->tokenizer, work->text, work->nbytes, first + CHUNK_NBYTES);
        check(
            tri_encode(work->encoder, work->text + begin, end - begin, begin > 0 ? TRI_ENCODE_RESUME : 0, &work->ids));
    }
}

static double encode_all(worker *workers, int count)
{
    tri_thread *threads[THREADS_MAX];
    int64_t begin = tri_now_ns();
    for (int i = 1; i < count; i++)
        check(tri_thread_start(&threads[i], "encode", encode_chunks, &workers[i]));
    encode_chunks(&workers[0]);
    for (int i = 1; i < count; i++)
        tri_thread_join(threads[i]);
    return (double)(tri_now_ns() - begin) * 1e-9;
}

static void run(const options *given, const tri_tokenizer *tokenizer, const char *text, size_t nbytes)
{
    static worker workers[THREADS_MAX];
    for (int i = 0; i < given->threads; i++) {
        workers[i] = (worker){tokenizer, NULL, text, nbytes, i, given->threads, given->flags, {0}};
        check(tri_encoder_create(tokenizer, &workers[i].encoder));
    }
    for (int i = 0; i < given->rounds; i++)
        printf("%.6f\n", encode_all(workers, given->threads));
    if (given->rounds == 0)
        encode_all(workers, given->threads);
    write_file(given->ids, workers[0].ids.items, workers[0].ids.count * sizeof(int32_t));
    if (given->text != NULL) {
        tri_string back = {0};
        check(tri_decode(tokenizer, workers[0].ids.items, workers[0].ids.count, false, &back));
        write_file(given->text, tri_string_text(&back), back.nbytes);
        tri_string_fini(&back);
    }
    for (int i = 0; i < given->threads; i++) {
        tri_ids_fini(&workers[i].ids);
        tri_encoder_destroy(workers[i].encoder);
    }
}

static options read_arguments(int argc, char **argv)
{
    options given = {.tokenizer = argv[1], .file = argv[2], .threads = 1};
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--whole") == 0) {
            given.flags = TRI_ENCODE_WHOLE;
            continue;
        }
        if (strcmp(argv[i], "--threads") == 0)
            given.threads = atoi(value);
        else if (strcmp(argv[i], "--rounds") == 0)
            given.rounds = atoi(value);
        else if (strcmp(argv[i], "--ids") == 0)
            given.ids = value;
        else if (strcmp(argv[i], "--text") == 0)
            given.text = value;
        else if (strcmp(argv[i], "--save") == 0)
            given.save = value;
        i++;
    }
    return given;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    options given = read_arguments(argc, argv);
    char *text;
    size_t nbytes;
    tri_tokenizer *tokenizer;
    if (given.threads < 1 || given.threads > THREADS_MAX)
        return 2;
    check(tri_fs_read(given.file, 0, &text, &nbytes));
    check(strcmp(given.tokenizer, "char") == 0
              ? tri_tokenizer_chars((const void *const[]){text}, &nbytes, 1, false, &tokenizer)
              : tri_tokenizer_open(given.tokenizer, &tokenizer));
    if (given.save != NULL)
        check(tri_tokenizer_save(tokenizer, given.save));
    run(&given, tokenizer, text, nbytes);
    tri_tokenizer_close(tokenizer);
    tri_free(text);
    return 0;
}
