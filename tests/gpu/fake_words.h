/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_words.h: words of an environment variable, with commas between, that say what a fake library does.
 */
#ifndef TRI_TESTS_GPU_FAKE_WORDS_H
#define TRI_TESTS_GPU_FAKE_WORDS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_VALUE_NBYTES  512
#define FAKE_INSTANCE_NAME " MIG 1g.8gb" /* behind the name of the card */

/* The text behind "word=" or "word@" up to the next comma, "" without one; NULL: the variable does not have the word.
 */
static inline const char *fake_value(const char *variable, const char *word, char value[FAKE_VALUE_NBYTES])
{
    const char *at = getenv(variable);
    const size_t length = strlen(word);
    for (; at && *at; at += *at == ',') {
        const size_t all = strcspn(at, ",");
        if (strncmp(at, word, length) == 0 && (length == all || at[length] == '=' || at[length] == '@')) {
            snprintf(value, FAKE_VALUE_NBYTES, "%.*s", length == all ? 0 : (int)(all - length - 1), at + length + 1);
            return value;
        }
        at += all;
    }
    return NULL;
}

static inline bool fake_has(const char *variable, const char *word)
{
    char value[FAKE_VALUE_NBYTES];
    return fake_value(variable, word, value) != NULL;
}

/* Cuts NUMBER off "FILE@NUMBER", or 1 if there is none. */
static inline int fake_number(char value[FAKE_VALUE_NBYTES])
{
    char *at = strrchr(value, '@');
    if (!at)
        return 1;
    *at = 0;
    return atoi(at + 1);
}

/* "word=FILE@NUMBER": from the NUMBER-th call of a process on, whoever removes FILE first. */
static inline bool fake_takes(const char *variable, const char *word, int number)
{
    char value[FAKE_VALUE_NBYTES];
    return fake_value(variable, word, value) && number >= fake_number(value) && unlink(value) == 0;
}

#endif
