// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A pseudo-terminal: the guest's line is the master, the user opens the slave.
 *
 * While no one has the slave open the master reports a hang-up for ever, so it is
 * not watched then; a slow timer, and each write, look whether somebody came.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/util.h"
#include "chr/chr_impl.h"

#define PTY_POLL_NS (NSEC_PER_SEC / 4)

struct chr_pty {
	struct chr chr;
	struct timer timer;
};

static bool pty_has_peer(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) >= 0 && !(p.revents & POLLHUP);
}

static bool pty_poll_peer(struct chr *c)
{
	return c->wfd >= 0 && pty_has_peer(c->wfd);
}

static void pty_look(void *arg)
{
	struct chr_pty *p = arg;

	if (p->chr.connected)
		return;
	if (p->chr.rfd >= 0 && pty_has_peer(p->chr.rfd))
		chr_set_connected(&p->chr, true);
	else
		timer_arm(&p->timer, clock_raw_ns() + PTY_POLL_NS);
}

static void pty_ended(struct chr *c)
{
	struct chr_pty *p = (struct chr_pty *)c;

	chr_set_connected(c, false);
	timer_arm(&p->timer, clock_raw_ns() + PTY_POLL_NS);
}

static int pty_open(struct chr *c, struct err *err)
{
	struct chr_pty *p = (struct chr_pty *)c;
	int master, slave;
	char name[128];
	struct termios t;

	timer_init(&p->timer, c->loop, pty_look, p);
	if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
		return err_set_errno(err, -errno, "cannot open a pseudo-terminal");
	/* Raw from the start: no echo of the guest's output into its input. */
	if (ttyname_r(slave, name, sizeof(name)) || tcgetattr(slave, &t) < 0) {
		int ret = err_set_errno(err, -errno, "cannot set up a pseudo-terminal");
		close(slave);
		close(master);
		return ret;
	}
	cfmakeraw(&t);
	tcsetattr(slave, TCSANOW, &t);
	close(slave);
	fcntl(master, F_SETFD, FD_CLOEXEC);
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	int ret = chr_set_fds(c, master, master);
	if (ret) {
		close(master);
		return err_set_errno(err, ret, "cannot watch a pseudo-terminal");
	}
	snprintf(c->description, sizeof(c->description), "pty:%s", name);
	/* The words tools look for, on standard output. */
	printf("char device redirected to %s (label %s)\n", name, c->id);
	fflush(stdout);
	timer_arm(&p->timer, clock_raw_ns() + PTY_POLL_NS);
	return 0;
}

static void pty_close(struct chr *c)
{
	struct chr_pty *p = (struct chr_pty *)c;

	if (p->timer.loop)
		timer_cancel_sync(&p->timer);
}

const struct chr_ops chr_pty_ops = {
    .type = {.name = "pty", .about = "a new pseudo-terminal", .parent = "chardev", .size = sizeof(struct chr_pty)},
    .open = pty_open,
    .ended = pty_ended,
    .poll_peer = pty_poll_peer,
    .close = pty_close,
};
