/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.c: `trireme attend`: what a launcher runs on another host (--hosts), so that a worker outlives its connection.
 */
#include "cluster/attend.h"

#include <stdio.h>

#include "cli/command.h"

static const char *rank_given, *starts_given, *seen_given, *local_given, *new_given;
static const tri_flag flags[] = {
    {"--rank", "N", "number of the worker", &rank_given},
    {"--starts", "N", "so often it was started before", &starts_given},
    {"--seen", "N,N", "bytes of its output and of its log that were passed on", &seen_given},
    {"--local", "N", "workers of this host, by which its cores are divided", &local_given},
    {"--new", NULL, "start it, if nobody has", &new_given},
};

static tri_status setup_read(tri_attend_setup *setup)
{
    int64_t rank, starts = 0, local = 0;
    if (!rank_given)
        return tri_fail(TRI_ECONFIG, "attend: want --rank N; 'trireme train --hosts' calls this command, not a person");
    TRI_TRY(tri_flag_int("--rank", rank_given, 0, 65535, &rank));
    if (starts_given)
        TRI_TRY(tri_flag_int("--starts", starts_given, 0, 1000000000, &starts));
    if (local_given)
        TRI_TRY(tri_flag_int("--local", local_given, 1, 65536, &local));
    if (seen_given &&
        (sscanf(seen_given, "%lld,%lld", (long long *)&setup->seen[0], (long long *)&setup->seen[1]) != 2 ||
         setup->seen[0] < 0 || setup->seen[1] < 0))
        return tri_fail(TRI_ECONFIG, "--seen: want two numbers of bytes, such as 0,0, got '%.60s'", seen_given);
    setup->rank = (int)rank;
    setup->starts = (int)starts;
    setup->local_world = (int)local;
    setup->again = new_given != NULL;
    return TRI_OK;
}

static tri_status run(int count, char **argv)
{
    tri_attend_setup setup = {0};
    TRI_TRY(setup_read(&setup));
    if (count < 2)
        return tri_fail(TRI_ECONFIG, "attend: want a folder for the worker's output, and its program, got %d words",
                        count);
    argv[count] = NULL;
    setup.folder = argv[0];
    setup.argv = argv + 1;
    return tri_attend_run(&setup);
}

int cmd_attend(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_attend), flags, TRI_COUNT_OF(flags), argc, argv, run);
}
