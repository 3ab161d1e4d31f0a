// SPDX-License-Identifier: GPL-2.0-or-later
/* Child processes. Between fork and exec only async-signal-safe calls: the child of a failed exec leaves with _exit. */
#include "lab/spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/util.h"

char *spawn_last_line(int fd)
{
	char text[2001] = "";
	off_t size = lseek(fd, 0, SEEK_END);
	ssize_t n = pread(fd, text, 2000, MAX(0, size - 2000));

	while (n > 0 && (unsigned char)text[n - 1] <= ' ')
		text[--n] = 0;
	for (ssize_t i = 0; i < n; i++)
		if ((unsigned char)text[i] >= 127 || (text[i] > 0 && text[i] < ' ' && text[i] != '\n'))
			text[i] = ' ';
	char *line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	line[MIN(strlen(line), 300u)] = 0;
	return strdup(line);
}

static void child(pid_t parent, char *const argv[], int out, int keep, int cpus)
{
	int null = open("/dev/null", O_RDONLY);
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* It died before we asked to hear of it. */
	if (getppid() != parent)
		_exit(126);
	setpgid(0, 0);
	signal(SIGINT, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	if (keep >= 0)
		fcntl(keep, F_SETFD, 0);
	if (cpus > 0 && sched_getaffinity(0, sizeof(set), &set) == 0) {
		for (int i = 0, n = 0; i < CPU_SETSIZE; i++)
			if (CPU_ISSET(i, &set) && n++ >= cpus)
				CPU_CLR(i, &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	execvp(argv[0], argv);
	static const char message[] = "not installed, or cannot be run\n";
	if (write(2, message, sizeof(message) - 1) > 0)
		_exit(127);
	_exit(126);
}

pid_t spawn_start(char *const argv[], int out, int keep, int cpus, struct err *err)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0)
		child(parent, argv, out, keep, cpus);
	if (pid < 0)
		return err_set_errno(err, -errno, "cannot start '%s'", argv[0]);
	setpgid(pid, pid);
	return pid;
}

int spawn_ended(pid_t pid, int *status)
{
	return waitpid(pid, status, WNOHANG) == pid;
}

void spawn_kill(pid_t pid)
{
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void spawn_output(char *const argv[], char *out, size_t room, struct err *err)
{
	int pipes[2];
	size_t n = 0;

	out[0] = 0;
	if (pipe2(pipes, O_CLOEXEC)) {
		err_set_errno(err, -errno, "cannot start '%s'", argv[0]);
		return;
	}
	pid_t pid = spawn_start(argv, pipes[1], -1, 0, err);
	close(pipes[1]);
	for (ssize_t got; pid > 0 && n < room - 1 && (got = read(pipes[0], out + n, room - 1 - n)) > 0;)
		n += (size_t)got;
	out[n] = 0;
	close(pipes[0]);
	if (pid > 0)
		spawn_kill(pid);
}

int spawn_wait(char *const argv[], struct err *err)
{
	FILE *log = tmpfile();
	pid_t pid = log ? spawn_start(argv, fileno(log), -1, 0, err) : -1;
	int status = -1;

	if (pid < 0) {
		if (!log)
			return err_set_errno(err, -errno, "no room for a temporary file");
		fclose(log);
		return (int)pid;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	int ret = WIFEXITED(status) && WEXITSTATUS(status) == 0	    ? 0
		  : WIFEXITED(status) && WEXITSTATUS(status) == 127 ? -ENOENT
								    : -EIO;
	if (ret) {
		char *line = spawn_last_line(fileno(log));
		const char *slash = strrchr(argv[0], '/');
		const char *name = slash ? slash + 1 : argv[0];
		/* Most programs say their name themselves. */
		if (line && !strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			err_set(err, ret, "%s", line);
		else
			err_set(err, ret, "%s: %s", name, line && *line ? line : "failed without a word");
		free(line);
	}
	fclose(log);
	return ret;
}
