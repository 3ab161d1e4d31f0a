// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The process's own terminal, and giving it back.
 *
 * Standard input and output are shared with the shell that started us: flags set
 * on them would stay behind. So they are opened again (through /proc/self/fd) and
 * O_NONBLOCK is set on that copy only; where that is not possible (a socket, no
 * permission) the flags are saved and restored. Terminal modes are saved and
 * restored at exit, on fatal signals, and put back after SIGCONT.
 *
 * The saved state is static because signal handlers use it; it is written once,
 * before `active` is set.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include "base/util.h"
#include "chr/chr_impl.h"

struct chr_stdio {
	struct chr chr;
	bool signal;
};

static struct {
	volatile sig_atomic_t active; /* a chardev owns stdio */
	volatile sig_atomic_t raw;    /* the terminal is in our mode */
	bool is_tty, flags_changed[2];
	int flags[2];
	struct termios saved, ours;
} stdio_state;

/*
 * Change the terminal's modes if we are in its foreground. From the background
 * the change would stop us (SIGTTOU) or disturb the shell's own modes.
 */
static bool stdio_set_modes(const struct termios *t)
{
	pid_t foreground = tcgetpgrp(STDIN_FILENO);
	/* A terminal that does not control us (-1) knows no background. */
	if (foreground >= 0 && foreground != getpgrp())
		return false;
	sigset_t set, old;
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, &old);
	int ret = tcsetattr(STDIN_FILENO, TCSANOW, t);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return ret == 0;
}

static void stdio_restore(void)
{
	if (!stdio_state.active)
		return;
	if (stdio_state.raw) {
		stdio_set_modes(&stdio_state.saved);
		stdio_state.raw = 0;
	}
	for (int fd = 0; fd < 2; fd++)
		if (stdio_state.flags_changed[fd])
			fcntl(fd, F_SETFL, stdio_state.flags[fd]);
}

void chr_restore_terminals(void)
{
	int saved = errno;

	stdio_restore();
	chr_remove_socket_files();
	errno = saved;
}

void chr_suspend_terminals(void)
{
	int saved = errno;

	stdio_restore();
	errno = saved;
}

void chr_resume_terminals(void)
{
	int saved = errno;

	if (stdio_state.active && stdio_state.is_tty) {
		stdio_state.raw = 1; /* before it is: a fatal signal may come between */
		if (!stdio_set_modes(&stdio_state.ours))
			stdio_state.raw = 0;
	}
	errno = saved;
}

bool chr_uses_stdio(void)
{
	return stdio_state.active;
}

/* A descriptor of our own for fd that never blocks; see the file's head. */
static int stdio_reopen(int fd, int mode)
{
	char path[32];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	/* A regular file keeps its offset only in the shared description, and never blocks. */
	if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode))
		return fcntl(fd, F_DUPFD_CLOEXEC, 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int copy = open(path, mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (copy >= 0)
		return copy;
	int flags = fcntl(fd, F_GETFL);
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy >= 0 && flags >= 0 && !(flags & O_NONBLOCK)) {
		stdio_state.flags[fd] = flags;
		stdio_state.flags_changed[fd] = true;
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	}
	return copy < 0 ? -errno : copy;
}

static void stdio_make_raw(const struct chr_stdio *s)
{
	stdio_state.is_tty = tcgetattr(STDIN_FILENO, &stdio_state.saved) == 0;
	if (!stdio_state.is_tty)
		return;
	struct termios t = stdio_state.saved;
	t.c_iflag &= ~(tcflag_t)(IGNBRK | BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IXON);
	t.c_oflag |= OPOST; /* our own messages end in a plain line feed */
	t.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | IEXTEN);
	if (!s->signal)
		t.c_lflag &= ~(tcflag_t)ISIG;
	t.c_cflag = (t.c_cflag & ~(tcflag_t)(CSIZE | PARENB)) | CS8;
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	stdio_state.ours = t;
}

static int stdio_open(struct chr *c, struct err *err)
{
	struct chr_stdio *s = (struct chr_stdio *)c;

	if (stdio_state.active)
		return err_set(err, -EBUSY,
			       "stdio is used by another character device already: use mux=on to share "
			       "it, or give this one pty, unix: or null");
	memset(&stdio_state, 0, sizeof(stdio_state));
	int rfd = stdio_reopen(STDIN_FILENO, O_RDONLY);
	if (rfd == -EBADF) /* started with stdin closed: no input, as from /dev/null */
		rfd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int wfd = stdio_reopen(STDOUT_FILENO, O_WRONLY);
	if (wfd == -EBADF)
		wfd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int ret = rfd < 0 ? rfd : wfd < 0 ? wfd : chr_set_fds(c, rfd, wfd);
	if (ret) {
		if (rfd >= 0)
			close(rfd);
		if (wfd >= 0)
			close(wfd);
		stdio_state.active = 1;
		stdio_restore();
		stdio_state.active = 0;
		return err_set_errno(err, ret, "cannot use standard input and output");
	}
	stdio_make_raw(s);
	stdio_state.active = 1;
	chr_resume_terminals();
	snprintf(c->description, sizeof(c->description), "stdio");
	c->connected = true;
	return 0;
}

static void stdio_close(struct chr *c)
{
	if (!stdio_state.active || !c->description[0])
		return;
	stdio_restore();
	stdio_state.active = 0;
}

static const struct prop stdio_props[] = {
    {.name = "signal",
     .kind = PROP_BOOL,
     .offset = offsetof(struct chr_stdio, signal),
     .def = "on",
     .help = "Ctrl-c ends Kelvin; off: it goes to the guest"},
    {.name = NULL},
};
const struct chr_ops chr_stdio_ops = {
    .type = {.name = "stdio",
	     .about = "this terminal",
	     .parent = "chardev",
	     .size = sizeof(struct chr_stdio),
	     .props = stdio_props},
    .open = stdio_open,
    .close = stdio_close,
};
