/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.h: where the tokens of a data set come from: files of them, or a text.
 */
#ifndef TRI_DATA_TOKENS_H
#define TRI_DATA_TOKENS_H

#include "data/formats.h"
#include "data/token_file.h"
#include "text/tokenizer.h"

/* Names of the shards that `trireme data prepare` writes begin so. */
#define TRI_TOKENS_TRAINING   "train"
#define TRI_TOKENS_VALIDATION "validation"
#define TRI_TOKENS_ENDING     ".tokens"
#define TRI_TOKENS_TOKENIZER  "tokenizer.json"

/* Files whose tokens follow each other. */
typedef struct tri_token_files {
    tri_token_file *items;
    int count;
    unsigned char *owned; /* bytes of a text's tokens, else NULL */
} tri_token_files;

/* Paths of the training (or validation) files at data.path, in order; *count 0 where there are none. Free them with
 * tri_fs_list_free. */
tri_status tri_tokens_find(const char *path, bool validation, char ***paths, size_t *count);
/* Is it a folder or a file that holds tokens, or a .txt file? */
bool tri_tokens_can(const char *path);
bool tri_tokens_is_text(const char *path);
tri_status tri_tokens_open_files(char *const *paths, size_t count, tri_token_files *out);
void tri_token_files_close(tri_token_files *files);

/* Tokenizes the training (or validation) part of a text into memory. */
tri_status tri_tokens_open_text(const tri_data_config *config, bool validation, tri_tokenizer **tokenizer,
                                tri_token_files *out);

/* Whether data.path is JSON lines with texts. */
bool tri_tokens_is_lines(const tri_data_config *config);
/* The folder of their tokens, made if it is not there; tri_free() it. *whole: the test files have one of their own, of
 * which all is the test's. */
tri_status tri_tokens_open_lines(const tri_data_config *config, bool test, char **folder, bool *whole);

/* The data set over token files in memory, for the fuzzer; takes over the files (also on failure). */
/* Of data.test. */
double tri_tokens_test_fraction(const tri_data_config *config);
tri_status tri_tokens_parse(const tri_data_config *config, bool test, bool split, tri_token_files *files,
                            tri_dataset **out);

#endif
