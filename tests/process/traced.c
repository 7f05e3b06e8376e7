/* SPDX-License-Identifier: Apache-2.0
 *
 * traced.c: ptrace of one process with one thread, on x86-64; elsewhere traced_works() says no.
 */
#include "process/traced.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <sys/user.h>

/* Calls that touch files. */
static const struct traced_call {
    long number;
    const char *name;
    bool changes;
} touching[] = {{SYS_open, "open", true},           {SYS_openat, "openat", true}, {SYS_write, "write", true},
                {SYS_pwrite64, "pwrite", true},     {SYS_fsync, "fsync", true},   {SYS_rename, "rename", true},
                {SYS_renameat2, "renameat2", true}, {SYS_mkdir, "mkdir", true},   {SYS_unlink, "unlink", true},
                {SYS_unlinkat, "unlinkat", true},   {SYS_rmdir, "rmdir", true},   {SYS_close, "close", false},
                {SYS_read, "read", false},          {SYS_stat, "stat", false},    {SYS_lstat, "lstat", false},
                {SYS_newfstatat, "fstatat", false}, {SYS_fstat, "fstat", false},  {SYS_getdents64, "getdents", false},
                {SYS_chdir, "chdir", false},        {SYS_fchdir, "fchdir", false}};

static const struct traced_call *call_find(long number)
{
    for (size_t i = 0; i < sizeof(touching) / sizeof(touching[0]); i++)
        if (touching[i].number == number)
            return &touching[i];
    return NULL;
}

void traced_begin(void)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(99);
    raise(SIGSTOP);
}

static bool counts(const traced_plan *plan, const struct user_regs_struct *regs)
{
    long number = (long)regs->orig_rax;
    const struct traced_call *call = call_find(number);
    switch (plan->fault) {
    case TRACED_KILL_ANY:
        return true;
    case TRACED_KILL:
        return call && call->changes;
    case TRACED_ERROR:
        return call != NULL;
    default:
        return (number == SYS_write || number == SYS_pwrite64) && regs->rdx >= 2;
    }
}

/* At the entry of the call that is meant. */
static void strike(pid_t child, const traced_plan *plan, struct user_regs_struct *regs)
{
    if (plan->fault == TRACED_KILL || plan->fault == TRACED_KILL_ANY) {
        kill(child, SIGKILL);
        return;
    }
    if (plan->fault == TRACED_SHORT)
        regs->rdx /= 2;
    else
        regs->orig_rax = (unsigned long long)-1; /* no such call */
    ptrace(PTRACE_SETREGS, child, NULL, regs);
}

traced_end traced_run(pid_t child, const traced_plan *plan)
{
    traced_end end = {0};
    int seen = 0;
    bool inside = false, failing = false;
    waitpid(child, &end.status, 0); /* its SIGSTOP */
    ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    long deliver = 0;
    for (;;) {
        struct user_regs_struct regs;
        bool over = plan->at == 0 || (end.hit && !failing); /* nothing more to look at: it runs at its own speed */
        ptrace(over ? PTRACE_CONT : PTRACE_SYSCALL, child, NULL, deliver);
        deliver = 0;
        if (waitpid(child, &end.status, 0) < 0 || !WIFSTOPPED(end.status))
            return end;
        if (WSTOPSIG(end.status) != (SIGTRAP | 0x80)) {
            deliver = WSTOPSIG(end.status);
            continue;
        }
        ptrace(PTRACE_GETREGS, child, NULL, &regs);
        inside = !inside;
        if (inside && !end.hit && counts(plan, &regs) && ++seen == plan->at) {
            const struct traced_call *call = call_find((long)regs.orig_rax);
            snprintf(end.name, sizeof(end.name), "%s", call ? call->name : "another");
            end.hit = true;
            failing = plan->fault == TRACED_ERROR;
            strike(child, plan, &regs);
        } else if (!inside && failing) {
            failing = false;
            regs.rax = (unsigned long long)-(long long)plan->error;
            ptrace(PTRACE_SETREGS, child, NULL, &regs);
        }
    }
}

bool traced_works(void)
{
    pid_t child = fork();
    if (child == 0) {
        traced_begin();
        _exit(close(-1) == -1 && errno == EROFS ? 7 : 8);
    }
    traced_end end = traced_run(child, &(traced_plan){TRACED_ERROR, EROFS, 1});
    return end.hit && WIFEXITED(end.status) && WEXITSTATUS(end.status) == 7;
}

#else

bool traced_works(void)
{
    return false;
}
void traced_begin(void)
{
    abort();
}
traced_end traced_run(pid_t child, const traced_plan *plan)
{
    (void)child;
    (void)plan;
    abort();
}

#endif
