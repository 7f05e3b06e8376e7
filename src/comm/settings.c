/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c: the options of section comm for those that have no configuration of a run: programs that join a job by
 * themselves, other libraries' processes, measurements. TRIREME_COMM is over the defaults, words of a command line
 * over both. comm/ and net/ have a table each; who sets an option need not know which.
 */
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"

#define BLANKS  " \t\n"
#define SECTION "comm."

static tri_status fail_word(const char *word)
{
    return tri_fail(TRI_ECONFIG, "want " SECTION "KEY=VALUE, such as comm.encrypt=on, got '%.200s'", word);
}

tri_status tri_comm_setting(const char *word, tri_comm_config *config, tri_net_config *net)
{
    const char *equals = strchr(word, '=');
    size_t head = strlen(SECTION);
    char key[64];
    if (strncmp(word, SECTION, head) != 0 || !equals || (size_t)(equals - word) >= sizeof(key))
        return fail_word(word);
    snprintf(key, sizeof(key), "%.*s", (int)(equals - word - (ptrdiff_t)head), word + head);
    if (tri_options_find(&tri_comm_options, key))
        return tri_options_set(&tri_comm_options, config, key, equals + 1);
    if (tri_options_find(&tri_net_options, key))
        return tri_options_set(&tri_net_options, net, key, equals + 1);
    const char *names[64];
    const tri_option_table *tables[] = {&tri_comm_options, &tri_net_options};
    size_t count = 0;
    for (size_t t = 0; t < TRI_COUNT_OF(tables); t++)
        for (size_t i = 0; i < tables[t]->count && count < TRI_COUNT_OF(names); i++)
            names[count++] = tables[t]->rows[i].field;
    const char *near = tri_options_nearest(key, names, count);
    return tri_fail(TRI_ECONFIG, "there is no option '" SECTION "%s'%s%s%s", key,
                    near ? "; did you mean '" SECTION : "", near ? near : "", near ? "'?" : "");
}

tri_status tri_comm_settings_read(tri_cluster_lookup lookup, void *arg, tri_comm_config *config, tri_net_config *net)
{
    tri_options_defaults(&tri_comm_options, config);
    tri_options_defaults(&tri_net_options, net);
    const char *text = tri_cluster_settings(lookup, arg);
    for (text += strspn(text, BLANKS); *text; text += strspn(text, BLANKS)) {
        size_t nbytes = strcspn(text, BLANKS);
        char *word = tri_strndup(text, nbytes);
        if (!word)
            return TRI_ENOMEM;
        tri_status status = tri_comm_setting(word, config, net);
        tri_free(word);
        TRI_TRY_IN(status, "TRIREME_COMM");
        text += nbytes;
    }
    return TRI_OK;
}
