/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.c: termios, five escape sequences that every terminal has, and signals: those that end a program, stop it
 * and let it continue are caught to put the terminal right first. All that a signal does is allowed to one
 * (POSIX, 2.4.3).
 */
#include "base/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/runtime.h"

#define SLICE_MS  100
#define ESCAPE_MS 30 /* a key's bytes come together; the escape key is alone */

static const char enter_text[] = "\033[?1049h\033[?25l"; /* a screen of its own, no cursor */
static const char leave_text[] = "\033[?25h\033[?1049l";

/* Signals, and what was to be done at each before. */
static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV,
                             SIGBUS, SIGILL,  SIGFPE, SIGTSTP, SIGCONT, SIGWINCH};
static struct {
    bool open;
    struct termios before;
    struct sigaction actions[sizeof(caught) / sizeof(caught[0])];
    _Atomic bool in, redraw, asked;
    unsigned char typed[16]; /* of a key that is not whole */
    size_t typed_count;
} terminal;

/* A shell has the terminal, and has made it its own. One that is nobody's controlling terminal belongs to all. */
static bool in_background(void)
{
    const pid_t group = tcgetpgrp(STDIN_FILENO);
    return group >= 0 && group != getpgrp();
}

static void say(const char *text, size_t nbytes)
{
    while (nbytes > 0) {
        const ssize_t written = write(STDOUT_FILENO, text, nbytes);
        if (written < 0 && errno != EINTR)
            return;
        text += written > 0 ? written : 0;
        nbytes -= written > 0 ? (size_t)written : 0;
    }
}

static bool settings_set(const struct termios *settings)
{
    int failed;
    while ((failed = tcsetattr(STDIN_FILENO, TCSANOW, settings)) != 0 && errno == EINTR)
        continue;
    return failed == 0;
}

/* Keys as they come, not shown; ctrl-C and ctrl-Z continue to be signals. */
static bool enter(void)
{
    struct termios raw = terminal.before;
    if (in_background())
        return true;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (!settings_set(&raw))
        return false;
    atomic_store(&terminal.in, true);
    atomic_store(&terminal.redraw, true);
    say(enter_text, sizeof(enter_text) - 1);
    return true;
}

static void leave(void)
{
    if (!atomic_exchange(&terminal.in, false) || in_background())
        return;
    say(leave_text, sizeof(leave_text) - 1);
    (void)settings_set(&terminal.before);
}

static struct sigaction *action_before(int number)
{
    size_t i = 0;
    while (caught[i] != number)
        i++;
    return &terminal.actions[i];
}

static void arrived(int number);

static void catch_one(int number, struct sigaction *before)
{
    /* Without SA_RESTART, as those that it passes on. */
    struct sigaction action = {.sa_handler = arrived};
    sigemptyset(&action.sa_mask);
    TRI_ASSERT(sigaction(number, &action, before) == 0);
}

/* As without us: the process stops here, and continues here. */
static void stop(void)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t set;
    leave();
    sigemptyset(&usual.sa_mask);
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    (void)sigaction(SIGTSTP, &usual, NULL);
    (void)raise(SIGTSTP);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    catch_one(SIGTSTP, NULL);
}

static void arrived(int number)
{
    const int kept = errno;
    const struct sigaction *before = action_before(number);
    const bool asks = number == SIGINT || number == SIGTERM;
    if (number == SIGTSTP) {
        stop();
    } else if (number == SIGCONT) {
        (void)enter();
    } else if (number == SIGWINCH) {
        atomic_store(&terminal.redraw, true);
    } else if (asks && before->sa_handler != SIG_DFL && !atomic_exchange(&terminal.asked, true)) {
        if (before->sa_handler != SIG_IGN)
            before->sa_handler(number); /* the program ends by itself */
    } else if (before->sa_handler != SIG_IGN) {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        leave();
        sigemptyset(&usual.sa_mask);
        (void)sigaction(number, asks ? &usual : before, NULL);
        if (number != SIGBUS) /* which comes again by itself, and tells where */
            (void)raise(number);
    }
    errno = kept;
}

bool tri_terminal_is(void)
{
    return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
}

tri_status tri_terminal_open(void)
{
    if (tcgetattr(STDIN_FILENO, &terminal.before) != 0)
        return tri_fail(TRI_EIO, "the terminal's settings cannot be read: %s", strerror(errno));
    terminal.typed_count = 0;
    atomic_store(&terminal.asked, false);
    for (size_t i = 0; i < TRI_COUNT_OF(caught); i++)
        catch_one(caught[i], &terminal.actions[i]);
    terminal.open = true;
    if (enter())
        return TRI_OK;
    const int reason = errno;
    tri_terminal_close();
    return tri_fail(TRI_EIO, "the terminal's settings cannot be changed: %s", strerror(reason));
}

void tri_terminal_close(void)
{
    if (!terminal.open)
        return;
    leave();
    for (size_t i = 0; i < TRI_COUNT_OF(caught); i++)
        TRI_ASSERT(sigaction(caught[i], &terminal.actions[i], NULL) == 0);
    terminal.open = false;
}

bool tri_terminal_is_shown(void)
{
    return !terminal.open || (atomic_load(&terminal.in) && !in_background());
}

void tri_terminal_measure(int *columns, int *rows)
{
    struct winsize window;
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    *columns = known ? window.ws_col : 80;
    *rows = known ? window.ws_row : 0;
}

/* --- keys --- */

/* What follows ESC, and the key that it is (xterm's and VT220's names of keys). */
static const struct {
    const char *text;
    tri_key key;
} sequences[] = {
    {"[A", TRI_KEY_UP},    {"[B", TRI_KEY_DOWN}, {"[C", TRI_KEY_RIGHT},    {"[D", TRI_KEY_LEFT},
    {"OA", TRI_KEY_UP},    {"OB", TRI_KEY_DOWN}, {"OC", TRI_KEY_RIGHT},    {"OD", TRI_KEY_LEFT},
    {"[H", TRI_KEY_HOME},  {"[F", TRI_KEY_END},  {"OH", TRI_KEY_HOME},     {"OF", TRI_KEY_END},
    {"[1~", TRI_KEY_HOME}, {"[4~", TRI_KEY_END}, {"[5~", TRI_KEY_PAGE_UP}, {"[6~", TRI_KEY_PAGE_DOWN},
};

static int first_typed(size_t nbytes, int key)
{
    terminal.typed_count -= nbytes;
    memmove(terminal.typed, terminal.typed + nbytes, terminal.typed_count);
    return key;
}

/* The first key of what was typed; TRI_KEY_NONE: more may have to come. `whole`: nothing more comes. */
static int key_take(bool whole)
{
    const unsigned char *typed = terminal.typed;
    const size_t count = terminal.typed_count;
    if (count == 0)
        return TRI_KEY_NONE;
    if (typed[0] != TRI_KEY_ESCAPE)
        return first_typed(1, typed[0]);
    for (size_t i = 0; i < TRI_COUNT_OF(sequences); i++) {
        const size_t length = strlen(sequences[i].text);
        if (count > length && memcmp(typed + 1, sequences[i].text, length) == 0)
            return first_typed(length + 1, (int)sequences[i].key);
    }
    if (count >= 3 && (typed[1] == '[' || typed[1] == 'O')) { /* a key that nobody asks for: up to its last byte */
        size_t end = 2;
        while (end < count && (typed[end] < '@' || typed[end] > '~'))
            end++;
        if (end < count || count == sizeof(terminal.typed))
            return first_typed(end < count ? end + 1 : count, TRI_KEY_NONE);
    }
    return whole ? first_typed(1, TRI_KEY_ESCAPE) : TRI_KEY_NONE;
}

/* Waits; false: nothing came. */
static bool typed_read(int limit_ms, bool *closed)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (terminal.typed_count == sizeof(terminal.typed) || poll(&in, 1, limit_ms) <= 0)
        return false;
    if (in_background()) { /* reading would stop it; its keys are the shell's */
        tri_sleep_ns(SLICE_MS * TRI_NS_PER_MS);
        return false;
    }
    const ssize_t got =
        read(STDIN_FILENO, terminal.typed + terminal.typed_count, sizeof(terminal.typed) - terminal.typed_count);
    terminal.typed_count += got > 0 ? (size_t)got : 0;
    *closed = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
    return got > 0;
}

int tri_terminal_key(int64_t deadline_ns)
{
    for (bool closed = false;;) {
        int key = key_take(false);
        if (key == TRI_KEY_NONE && terminal.typed_count > 0 && !typed_read(ESCAPE_MS, &closed))
            key = key_take(true);
        if (key != TRI_KEY_NONE)
            return key;
        if (atomic_exchange(&terminal.redraw, false))
            return TRI_KEY_SCREEN;
        const int64_t left_ms = (deadline_ns - tri_now_ns()) / TRI_NS_PER_MS;
        if (left_ms <= 0 || tri_stop_signal())
            return TRI_KEY_NONE;
        (void)typed_read(left_ms < SLICE_MS ? (int)left_ms + 1 : SLICE_MS, &closed);
        if (closed)
            return TRI_KEY_CLOSED;
    }
}
