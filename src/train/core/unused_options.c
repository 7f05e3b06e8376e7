/* SPDX-License-Identifier: Apache-2.0
 *
 * unused_options.c: warns about options of the command line that have no effect in this run, by the conditions in their
 * rows. A file may hold options that only some runs use; an option on the command line is meant to do something.
 */
#include <string.h>

#include "base/log.h"
#include "train/core/config.h"

#define FORMAT "data.format" /* the format of the data, even if the option is auto */

/* Appends the value of the option that `key` begins with. */
static tri_status value_print(const tri_config *config, const char *format, const char *key, tri_string *out)
{
    const tri_config_section *section;
    const tri_option *row = tri_config_row(key, &section);
    if (strncmp(key, FORMAT, strlen(FORMAT)) == 0)
        return tri_string_append(out, format);
    return row ? tri_options_print(row, (const char *)config + section->offset, out) : TRI_EINTERNAL;
}

/* Whether one of the words between bars, up to a blank, is `word`. */
static bool has_word(const char *words, const char *word)
{
    for (size_t span; *words && *words != ' '; words += span + (words[span] == '|')) {
        span = strcspn(words, "| ");
        if (strlen(word) == span && memcmp(words, word, span) == 0)
            return true;
    }
    return false;
}

tri_status tri_config_unmet(const tri_config *config, const char *format, const char *applies, tri_string *unmet)
{
    for (const char *at = applies; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        const char *words = strchr(at, '=') + 1;
        const bool differs = words[-2] == '!';
        tri_string found = {0};
        tri_status status = value_print(config, format, at, &found);
        if (status == TRI_OK && has_word(words, tri_string_text(&found)) == differs)
            status = tri_string_appendf(unmet, "%.*s, got %s", (int)strcspn(at, " "), at, tri_string_text(&found));
        tri_string_fini(&found);
        if (status != TRI_OK || unmet->nbytes > 0)
            return status;
    }
    return TRI_OK;
}

void tri_config_unused_tell(const tri_config *config, const char *format, const char *const *overrides)
{
    for (int i = 0; overrides && overrides[i]; i++) {
        const int length = (int)strcspn(overrides[i], "=");
        const tri_option *row = tri_config_row(overrides[i], NULL);
        tri_string unmet = {0};
        if (row && tri_config_unmet(config, format, row->applies, &unmet) == TRI_OK && unmet.nbytes > 0)
            tri_log(TRI_LOG_WARN, "%.*s has no effect in this run: it needs %s", length, overrides[i],
                    tri_string_text(&unmet));
        tri_string_fini(&unmet);
    }
}
