/* SPDX-License-Identifier: Apache-2.0
 *
 * hf.h: the sections of a tokenizer.json that say how a text is rewritten, cut and put together again.
 */
#ifndef TRI_TEXT_HF_H
#define TRI_TEXT_HF_H

#include "text/json_read.h"
#include "text/tokenizer_impl.h"

/* Each reads one section, which may be null; what is not understood is TRI_EUNSUPPORTED with its name. */
tri_status tri_hf_normalizer(tri_tokenizer *tokenizer, const json_t *section);
tri_status tri_hf_pre_tokenizer(tri_tokenizer *tokenizer, const json_t *section);
tri_status tri_hf_post_processor(tri_tokenizer *tokenizer, const json_t *section);
tri_status tri_hf_decoder(tri_tokenizer *tokenizer, const json_t *section);

#endif
