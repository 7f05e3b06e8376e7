/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest.h: the options of the next trial. The same seed and the same trials before it give the same ones.
 */
#ifndef TRI_TUNE_SUGGEST_H
#define TRI_TUNE_SUGGEST_H

#include "tune/trials.h"

/* Adds trial `number`, with its options; *out NULL: the search has no more. Not saved yet. */
tri_status tri_suggest(const tri_sweep *sweep, tri_trials *trials, int number, tri_trial **out);

#endif
