/* SPDX-License-Identifier: Apache-2.0
 *
 * generate_batch.h: what the two ways of `trireme generate` share, and the one with a file of prompts.
 */
#ifndef TRI_CLI_GENERATE_BATCH_H
#define TRI_CLI_GENERATE_BATCH_H

#include "base/json.h"
#include "generate/source.h"

/* A whole file, or standard input for "-"; tri_free. */
tri_status generate_file_read(const char *path, char **text, size_t *nbytes);
/* text, finish, prompt_tokens, tokens. */
void generate_result_print(tri_json *json, const tri_generate_result *result);
/* Every line of the file through the model; what a line leaves out is as in `request`. Answers go to standard output in
 * order, each as soon as it and all before it are there; what is wrong with a line is said in its place, and
 * TRI_EFORMAT comes back then. */
tri_status generate_batch(const tri_text_model *model, const char *path, const tri_generate_request *request);

#endif
