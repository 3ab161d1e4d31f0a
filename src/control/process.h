/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What concerns the process and not the machine: going to the background, the
 * pid file, signals. Main thread only.
 */
#ifndef KELVIN_CONTROL_PROCESS_H
#define KELVIN_CONTROL_PROCESS_H

#include "base/err.h"
#include "io/loop.h"

/*
 * -daemonize, first half: fork before any thread or descriptor exists. The parent
 * waits and leaves with the child's result; only the child returns (0 or -errno).
 */
int process_daemonize_begin(struct err *err);
/* Second half: the machine is ready; leave the terminal and let the parent go. */
int process_daemonize_ready(struct err *err);

/* Create, lock and write; -EAGAIN when another process holds it. Removed by process_pidfile_remove. */
int process_pidfile_create(const char *path, struct err *err);
void process_pidfile_remove(void);

/*
 * Handlers: fatal signals give the terminal back; SIGTERM, SIGINT and SIGHUP call
 * quit(arg) in the loop's thread, SIGUSR1 stats(arg); a third request to quit that
 * is not served ends the process. Before process_signals_watch nobody serves
 * them: system calls that wait are interrupted (EINTR).
 */
int process_signals_install(struct err *err);
int process_signals_watch(struct loop *l, void (*quit)(void *arg, int sig), void (*stats)(void *arg), void *arg);
void process_signals_unwatch(struct loop *l);
/* A quit signal came before anyone watched. */
bool process_signals_quit_asked(void);
/* Threads started between these two never run the handlers. */
void process_signals_block(void);
void process_signals_unblock(void);

#endif
