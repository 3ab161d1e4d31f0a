// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Background, pid file, signals.
 *
 * Signal handlers only write the signal's number into a pipe (and count), or give
 * the terminal back and die. The pipe, the counters and the pid file's name are
 * static because handlers and exit paths use them.
 */
#include "control/process.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/log.h"
#include "base/util.h"
#include "chr/chr.h"

#define QUIT_PATIENCE 3 /* signals until the process ends without further ado */

/* ---- background ------------------------------------------------------------- */

static int daemon_pipe = -1; /* the child's end towards the waiting parent */

/* The parent: the child's one byte is its verdict; none means it died. */
static void daemon_parent_wait(pid_t child, int fd)
{
	uint8_t status = 1;
	ssize_t n;

	do
		n = read(fd, &status, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1) {
		int ws = 0;
		waitpid(child, &ws, 0);
		status = WIFEXITED(ws) && WEXITSTATUS(ws) ? (uint8_t)WEXITSTATUS(ws) : 1;
	}
	_exit(status);
}

int process_daemonize_begin(struct err *err)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set_errno(err, -errno, "-daemonize");
	fflush(NULL);
	pid_t child = fork();
	if (child < 0) {
		close(fds[0]);
		close(fds[1]);
		return err_set_errno(err, -errno, "-daemonize: cannot fork");
	}
	if (child) {
		close(fds[1]);
		daemon_parent_wait(child, fds[0]);
	}
	close(fds[0]);
	daemon_pipe = fds[1];
	setsid();
	return 0;
}

int process_daemonize_ready(struct err *err)
{
	uint8_t ok = 0;

	if (daemon_pipe < 0)
		return 0;
	if (chdir("/") < 0)
		return err_set_errno(err, -errno, "-daemonize: cannot change to /");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return err_set_errno(err, -errno, "-daemonize: cannot open /dev/null");
	fflush(NULL);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	/* The parent may have been killed: nothing to tell then. */
	if (write(daemon_pipe, &ok, 1) < 0)
		log_diag(LOG_UNIMP, "-daemonize: %s", strerror(errno));
	close(daemon_pipe);
	daemon_pipe = -1;
	return 0;
}

/* ---- pid file ------------------------------------------------------------------ */

static char *pidfile_path;
static int pidfile_fd = -1;

/* Lock it and make sure it is still the file of that name: its owner may have removed it just now. */
static int pidfile_lock(const char *path, int fd, struct err *err)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct stat a, b;

	if (fcntl(fd, F_SETLK, &lock) < 0) {
		struct flock who = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		fcntl(fd, F_GETLK, &who);
		return err_set(err, -EAGAIN, "cannot lock the pid file '%s': process %d uses it", path,
			       who.l_type == F_UNLCK ? 0 : (int)who.l_pid);
	}
	if (fstat(fd, &a) < 0 || stat(path, &b) < 0 || a.st_ino != b.st_ino || a.st_dev != b.st_dev)
		return -ESTALE;
	return 0;
}

int process_pidfile_create(const char *path, struct err *err)
{
	char text[32];
	int fd, ret, n;

	do {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			return err_set_errno(err, -errno, "cannot create the pid file '%s'", path);
		ret = pidfile_lock(path, fd, err);
		if (ret)
			close(fd);
	} while (ret == -ESTALE);
	if (ret)
		return ret;
	n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || write(fd, text, (size_t)n) != n) {
		ret = err_set_errno(err, -errno, "cannot write the pid file '%s'", path);
		unlink(path);
		close(fd);
		return ret;
	}
	pidfile_path = strdup(path);
	pidfile_fd = fd; /* open, for the lock */
	return 0;
}

void process_pidfile_remove(void)
{
	if (pidfile_fd < 0)
		return;
	if (pidfile_path)
		unlink(pidfile_path); /* before the lock goes */
	free(pidfile_path);
	pidfile_path = NULL;
	close(pidfile_fd);
	pidfile_fd = -1;
}

/* ---- signals --------------------------------------------------------------------- */

static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t quit_signals;
static struct {
	void (*quit)(void *arg, int sig);
	void (*stats)(void *arg);
	void *arg;
} signal_users;

static void on_request(int sig)
{
	int saved = errno;
	uint8_t byte = (uint8_t)sig;

	if (sig != SIGUSR1 && ++quit_signals >= QUIT_PATIENCE) {
		chr_restore_terminals();
		if (pidfile_path)
			unlink(pidfile_path);
		_exit(128 + sig);
	}
	/* A full pipe has requests enough. */
	ssize_t n = write(signal_pipe[1], &byte, 1);
	(void)n;
	errno = saved;
}

/* Ctrl-z, where it is not the guest's: stop with the terminal as the shell expects it. */
static void on_stop(int sig)
{
	chr_suspend_terminals();
	raise(SIGSTOP);
}

static void on_continue(int sig)
{
	chr_resume_terminals();
}

/*
 * Give the terminal back and die of the signal. The default action is put back by
 * hand: an engine that took the signal over calls this as its predecessor.
 */
static void on_fatal(int sig)
{
	static const char text[] = "kelvin: fatal signal, the terminal was restored\n";

	chr_restore_terminals();
	ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)n;
	signal(sig, SIG_DFL);
	raise(sig);
}

int process_signals_install(struct err *err)
{
	static const int requests[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
	static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGQUIT, SIGSYS, SIGXCPU};
	struct sigaction sa = {.sa_handler = on_request, .sa_flags = SA_ONSTACK};

	if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_set_errno(err, -errno, "signals");
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		struct sigaction old;
		/* nohup and shells' background jobs ask for these to be ignored. */
		if (sigaction(requests[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN && requests[i] != SIGUSR1)
			continue;
		sigaction(requests[i], &sa, NULL);
	}
	sa.sa_handler = on_continue;
	sa.sa_flags = SA_ONSTACK | SA_RESTART;
	sigaction(SIGCONT, &sa, NULL);
	sa.sa_handler = on_stop;
	sigaction(SIGTSTP, &sa, NULL);
	sa.sa_handler = on_fatal;
	sa.sa_flags = SA_ONSTACK | SA_NODEFER;
	for (size_t i = 0; i < ARRAY_SIZE(fatal); i++)
		sigaction(fatal[i], &sa, NULL);
	return 0;
}

static void signals_ready(void *arg, unsigned events)
{
	uint8_t sig;

	while (read(signal_pipe[0], &sig, 1) == 1) {
		if (sig == SIGUSR1)
			signal_users.stats(signal_users.arg);
		else
			signal_users.quit(signal_users.arg, sig);
	}
}

int process_signals_watch(struct loop *l, void (*quit)(void *arg, int sig), void (*stats)(void *arg), void *arg)
{
	signal_users.quit = quit;
	signal_users.stats = stats;
	signal_users.arg = arg;
	return loop_watch(l, signal_pipe[0], LOOP_READ, signals_ready, NULL);
}

void process_signals_unwatch(struct loop *l)
{
	loop_unwatch(l, signal_pipe[0]);
}

bool process_signals_quit_asked(void)
{
	return quit_signals > 0;
}

static void signals_mask(int how)
{
	static const int requests[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCONT, SIGTSTP};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
		sigaddset(&set, requests[i]);
	pthread_sigmask(how, &set, NULL);
}

void process_signals_block(void)
{
	signals_mask(SIG_BLOCK);
}

void process_signals_unblock(void)
{
	signals_mask(SIG_UNBLOCK);
}
