/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_hosts.c: the host file, the command line for a remote shell, and this machine's address seen from a host.
 *
 * A remote rank hangs on its standard input: the token comes there first (a command line is public), then names of
 * signals; its end, however it comes about (launcher killed, connection cut), kills the rank's process group.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/launch_parts.h"

#define HOST_LIMIT  65536
#define SETTINGS_MS 10000 /* `ssh -G` runs commands that its configuration names */

static bool name_is_local(const char *name)
{
    char own[256] = "";

    gethostname(own, sizeof own - 1);
    return strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0 ||
           (own[0] && strcmp(name, own) == 0);
}

static const char *without_user(const char *name)
{
    const char *at = strrchr(name, '@');

    return at ? at + 1 : name;
}

/* "[user@]host", and an address of IPv6 also in brackets. What ssh takes for an option is none. */
static tri_status name_parse(const char *word, const char *origin, int number, launch_host *host)
{
    const size_t nbytes = strlen(word);
    const char *name = without_user(word);
    const char *colon = strchr(name, ':');

    if (nbytes >= sizeof host->name || word[0] == '-' || name[0] == '-' || !name[0])
        return tri_fail(TRI_ECONFIG,
                        "%s:%d: want a host of at most %zu bytes that does not begin with '-', got '%.60s'", origin,
                        number, sizeof host->name - 1, word);
    for (size_t i = 0; i < nbytes; i++) {
        if (!isalnum((unsigned char)word[i]) && !strchr(".-_:@%[]", word[i]))
            return tri_fail(TRI_ECONFIG, "%s:%d: want a host name or address, got '%.60s'", origin, number, word);
    }
    const bool is_wrong_address = name[0] == '[' && (!colon || name[1] == '-' || name[strlen(name) - 1] != ']');
    if ((colon && !strchr(colon + 1, ':')) || is_wrong_address)
        return tri_fail(TRI_ECONFIG,
                        "%s:%d: want 'host port=N' for a port of ssh, 'host slots=N' for a number of ranks, got "
                        "'%.60s', which could mean both",
                        origin, number, word);
    if (name[0] == '[')
        snprintf(host->name, sizeof host->name, "%.*s%.*s", (int)(name - word), word, (int)strlen(name) - 2, name + 1);
    else
        memcpy(host->name, word, nbytes + 1);
    return TRI_OK;
}

/* "slots=N" or "port=N". */
static tri_status setting_parse(const char *word, const char *origin, int number, launch_host *host)
{
    const bool is_port = strncmp(word, "port=", 5) == 0;
    const char *digits = is_port ? word + 5 : strncmp(word, "slots=", 6) == 0 ? word + 6 : "";
    char *end = NULL;
    const long value = isdigit((unsigned char)*digits) ? strtol(digits, &end, 10) : -1;

    if (value < 1 || value > (is_port ? 65535 : 65536) || *end)
        return tri_fail(TRI_ECONFIG, "%s:%d: want slots=N with N of 1 to 65536 or port=N behind the host, got '%.60s'",
                        origin, number, word);
    if (is_port)
        snprintf(host->port, sizeof host->port, "%ld", value);
    else
        host->slots = (int)value;
    return TRI_OK;
}

static tri_status host_parse(char *line, const char *origin, int number, tri_vector *hosts)
{
    static const char blank[] = " \t\r";
    launch_host host = {.slots = 1};
    char *save = NULL, *word;

    line[strcspn(line, "#")] = 0;
    word = strtok_r(line, blank, &save);
    if (!word)
        return TRI_OK;
    TRI_TRY(name_parse(word, origin, number, &host));
    while ((word = strtok_r(NULL, blank, &save)) != NULL)
        TRI_TRY(setting_parse(word, origin, number, &host));
    host.is_local = !host.port[0] && name_is_local(without_user(host.name)); /* behind a port may be a container */
    for (size_t i = 0; i < hosts->count; i++) {
        const launch_host *other = tri_vector_at(hosts, i);

        if (strcmp(other->name, host.name) == 0 && strcmp(other->port, host.port) == 0)
            return tri_fail(TRI_ECONFIG, "%s:%d: want each host once (slots=N for more ranks), got %s again", origin,
                            number, host.name);
    }
    if (hosts->count >= HOST_LIMIT)
        return tri_fail(TRI_ECONFIG, "%s:%d: want at most %d hosts", origin, number, HOST_LIMIT);
    return tri_vector_push(hosts, &host) ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_launch_hosts_parse(const char *text, size_t nbytes, const char *origin, tri_vector *hosts)
{
    int number = 0;

    if (memchr(text, 0, nbytes))
        return tri_fail(TRI_ECONFIG, "%s: want a text, got zero bytes in it", origin);
    for (size_t at = 0; at < nbytes;) {
        const char *end = memchr(text + at, '\n', nbytes - at);
        size_t line_nbytes = end ? (size_t)(end - text) - at : nbytes - at;
        char *line = tri_strndup(text + at, line_nbytes);
        tri_status status = line ? host_parse(line, origin, ++number, hosts) : TRI_ENOMEM;

        tri_free(line);
        TRI_TRY(status);
        at += line_nbytes + 1;
    }
    if (hosts->count == 0)
        return tri_fail(TRI_ECONFIG, "%s: want lines '[user@]host [slots=N] [port=N]', got no host", origin);
    return TRI_OK;
}

/* What ssh's configuration calls the host: "hostname 10.0.0.7" of `ssh -G`. */
static bool ssh_name_find(const tri_launch_config *config, const launch_host *host, char name[256])
{
    static const char key[] = "hostname ";
    launch_shell shell;
    char text[4096], *rest = text;

    tri_launch_shell_settings(config, host->name, host->port, &shell);
    if (tri_launch_shell_ask(&shell, host->name, SETTINGS_MS, text, sizeof text) != 0)
        return false;
    for (const char *line; (line = strsep(&rest, "\r\n")) != NULL;) {
        if (strncmp(line, key, sizeof key - 1) == 0)
            return snprintf(name, 256, "%.255s", line + sizeof key - 1) > 0;
    }
    return false;
}

static int name_resolve(const char *name, struct addrinfo **list)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};

    return getaddrinfo(name, "9", &hints, list);
}

tri_status tri_launch_host_name(const tri_launch_config *config, const launch_host *host, char name[256])
{
    struct addrinfo *list;
    int rc;

    snprintf(name, 256, "%s", without_user(host->name));
    rc = name_resolve(name, &list);
    if (rc != 0 && strcmp(config->hosts, "slurm") != 0 && ssh_name_find(config, host, name))
        rc = name_resolve(name, &list);
    if (rc != 0)
        return tri_fail(TRI_ECONFIG, "host %s: want a name that resolves, or one that '%s -G %s' knows, got: %s: %s",
                        host->name, config->ssh, host->name, name, gai_strerror(rc));
    freeaddrinfo(list);
    return TRI_OK;
}

tri_status tri_launch_address(const char *name, char address[64])
{
    struct addrinfo *list;
    struct sockaddr_storage own;
    socklen_t own_nbytes;
    char text[INET6_ADDRSTRLEN];
    int rc = name_resolve(name, &list);
    bool found = false;

    if (rc != 0)
        return tri_fail(TRI_ECONFIG, "host %s: %s", name, gai_strerror(rc));
    for (const struct addrinfo *at = list; at && !found; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        own_nbytes = sizeof own;
        found = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &own_nbytes) == 0 &&
                getnameinfo((struct sockaddr *)&own, own_nbytes, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0;
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    if (!found)
        return tri_fail(TRI_EIO, "host %s: no way there: %s", name, strerror(errno));
    snprintf(address, 64, strchr(text, ':') ? "[%s]" : "%s", text);
    return TRI_OK;
}

tri_status tri_launch_free_port(int *port)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t own_nbytes = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0 &&
              getsockname(fd, (struct sockaddr *)&own, &own_nbytes) == 0;

    if (!ok)
        tri_fail(TRI_EIO, "no free port for MASTER_PORT: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    *port = ntohs(own.sin_port);
    return ok ? TRI_OK : TRI_EIO;
}

tri_status tri_launch_remote_command(char *const *settings, char *const *argv, const char *folder, int local_world,
                                     bool pick_threads, tri_string *out)
{
    tri_string script = {0};
    tri_status status = tri_string_append(
        &script, "echo '" TRI_FAR_MARK "begun' >&2; IFS= read -r TRIREME_TOKEN || exit 1; export TRIREME_TOKEN; cd ");

    if (status == TRI_OK)
        status = tri_launch_quote(&script, folder);
    if (status == TRI_OK)
        status = tri_string_append(&script, " || exit 126; exec 3<&0; ");
    if (status == TRI_OK && pick_threads)
        status =
            tri_string_appendf(&script,
                               "if [ -z \"$OMP_NUM_THREADS\" ]; then n=$(( $(nproc) / %d )); [ \"$n\" -ge 1 ] || n=1; "
                               "OMP_NUM_THREADS=$n; export OMP_NUM_THREADS; fi; ",
                               local_world);
    if (status == TRI_OK)
        status = tri_string_append(&script, "setsid env");
    for (; *settings && status == TRI_OK; settings++) {
        status = tri_string_append(&script, " ");
        if (status == TRI_OK)
            status = tri_launch_quote(&script, *settings);
    }
    for (; *argv && status == TRI_OK; argv++) {
        status = tri_string_append(&script, " ");
        if (status == TRI_OK)
            status = tri_launch_quote(&script, *argv);
    }
    if (status == TRI_OK)
        status = tri_string_append(&script,
                                   " </dev/null 3<&- & p=$!; "
                                   "{ while read -r s; do kill -s \"$s\" -- \"-$p\"; done; kill -s KILL -- \"-$p\"; } "
                                   "<&3 3<&- >/dev/null 2>&1 & w=$!; exec 3<&-; "
                                   "wait \"$p\"; r=$?; kill -s KILL \"$w\"; kill -s KILL -- \"-$p\" 2>/dev/null; "
                                   "exit \"$r\"");
    if (status == TRI_OK)
        status = tri_string_append(out, "exec sh -c ");
    if (status == TRI_OK)
        status = tri_launch_quote(out, tri_string_text(&script));
    tri_string_fini(&script);
    return status;
}
