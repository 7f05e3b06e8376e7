/* SPDX-License-Identifier: Apache-2.0
 *
 * finding.c: a finding, and findings as text: a line each, fields apart by tabs.
 */
#include <stdio.h>
#include <string.h>

#include "doctor/doctor.h"

static const char *const names[TRI_RESULT_COUNT] = {"ok", "note", "warn", "fail"};

const char *tri_result_name(tri_result result)
{
    return names[result];
}

tri_finding *tri_finding_add(tri_vector *findings, const char *check, tri_result result)
{
    tri_finding *finding = tri_vector_push(findings, NULL);

    if (!finding)
        return NULL;
    finding->result = result;
    TRI_FINDING_SET(finding->check, "%s", check);
    return finding;
}

/* Text of other programs may hold anything: one line, no tabs. */
static void clean(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 32 || *text == 127)
            *text = ' ';
    }
}

void tri_finding_print(char *field, size_t capacity, const char *format, ...)
{
    va_list args;
    int nbytes;

    va_start(args, format);
    nbytes = vsnprintf(field, capacity, format, args);
    va_end(args);
    if (nbytes >= (int)capacity && capacity > 4)
        memcpy(field + capacity - 4, "...", 4);
    clean(field);
}

void tri_finding_worse(tri_finding *finding, tri_result result)
{
    if (finding->result < result)
        finding->result = result;
}

tri_status tri_findings_write(const tri_vector *findings, tri_string *out)
{
    for (size_t i = 0; i < findings->count; i++) {
        const tri_finding *at = tri_vector_at(findings, i);

        TRI_TRY(tri_string_appendf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", names[at->result], at->check, at->host, at->found,
                                   at->wanted, at->fix));
    }
    return TRI_OK;
}

bool tri_field_next(const char **text, char end, char *field, size_t capacity)
{
    size_t nbytes = strcspn(*text, "\t\n");

    if (nbytes >= capacity || (*text)[nbytes] != end)
        return false;
    memcpy(field, *text, nbytes);
    field[nbytes] = 0;
    *text += nbytes + 1;
    return true;
}

static bool line_read(const char **text, tri_finding *finding)
{
    char result[8];
    int index = 0;

    if (!tri_field_next(text, '\t', result, sizeof result))
        return false;
    while (index < TRI_RESULT_COUNT && strcmp(names[index], result) != 0)
        index++;
    if (index == TRI_RESULT_COUNT || !tri_field_next(text, '\t', finding->check, sizeof finding->check) ||
        !tri_field_next(text, '\t', finding->host, sizeof finding->host) ||
        !tri_field_next(text, '\t', finding->found, sizeof finding->found) ||
        !tri_field_next(text, '\t', finding->wanted, sizeof finding->wanted) ||
        !tri_field_next(text, '\n', finding->fix, sizeof finding->fix))
        return false;
    finding->result = (tri_result)index;
    return true;
}

tri_status tri_findings_read(const char *text, tri_vector *findings)
{
    while (*text) {
        tri_finding finding = {0};

        if (!line_read(&text, &finding))
            return tri_fail(TRI_EFORMAT, "want lines of findings, got '%.40s'", text);
        if (!tri_vector_push(findings, &finding))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}
