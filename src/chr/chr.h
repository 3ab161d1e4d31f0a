/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Character backends: the host side of serial ports, consoles and monitors
 * (-chardev stdio, pty, file, socket, null; -serial and -monitor shorthands).
 * One frontend at a time, or several on a stdio with mux=on (Ctrl-a c switches,
 * Ctrl-a x leaves, Ctrl-a h helps). Everything runs on the main loop's thread
 * except chr_write, which any thread may call.
 */
#ifndef KELVIN_CHR_CHR_H
#define KELVIN_CHR_CHR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/type.h"
#include "io/loop.h"

struct chr;

/* FOCUS_*: a mux chardev gave the keyboard to this frontend, or took it away. */
enum chr_event { CHR_OPENED, CHR_CLOSED, CHR_BREAK, CHR_FOCUS_IN, CHR_FOCUS_OUT };

/* A frontend's callbacks, in the loop's thread without locks. */
struct chr_fe {
	/* How many bytes may be given now; 0 pauses input until chr_fe_ready. */
	size_t (*can_receive)(void *opaque);
	void (*receive)(void *opaque, const uint8_t *buf, size_t len);
	void (*event)(void *opaque, enum chr_event event); /* may be NULL */
	void *opaque;
};

/*
 * -chardev "stdio,id=c0,mux=on,signal=off" (or JSON). The chardev is owned by
 * the registry and found by id. NULL and err on failure.
 */
struct chr *chr_create(const char *text, struct loop *l, struct err *err);
/* -serial / -monitor shorthand: stdio, mon:stdio, pty, null, none (*out = NULL), file:PATH,
 * unix:PATH[,server=on][,wait=off], tcp:HOST:PORT[,...], telnet:, pipe:, chardev:ID. `id` names it. */
int chr_create_legacy(const char *text, const char *id, struct loop *l, struct chr **out, struct err *err);
struct chr *chr_find(const char *id);
struct chr *chr_at(size_t i); /* all of them, until NULL */
const char *chr_id(const struct chr *c);
/* "pty:/dev/pts/3", "unix:/run/x,server=on", for query-chardev and the redirection line */
const char *chr_describe(const struct chr *c);

/* Attach a frontend; -EBUSY names the one that holds it. A mux chardev takes up to four. */
int chr_attach(struct chr *c, const struct chr_fe *fe, const char *who, struct err *err);
void chr_detach(struct chr *c, void *opaque);
void chr_fe_ready(struct chr *c, void *opaque); /* can_receive grew; any thread */
/*
 * Write all or part; returns bytes taken (possibly 0 when a socket's peer or a
 * pty is slow: the device then tries again after its chr_writable callback, or
 * drops). Never blocks. Output with nobody connected is dropped as taken.
 */
size_t chr_write(struct chr *c, const void *buf, size_t len);
bool chr_is_mux(const struct chr *c);
bool chr_attached(const struct chr *c); /* has a frontend */
bool chr_connected(const struct chr *c);
/* fn runs in the loop's thread each time a full backend takes output again; one per opaque, fn NULL removes it. */
void chr_set_writable(struct chr *c, void (*fn)(void *opaque), void *opaque);
/* Give the keyboard of a mux to the frontend with this opaque (as Ctrl-a c does). */
void chr_set_focus(struct chr *c, void *opaque);
const struct type *chr_type_of(const struct chr *c);
/* The types of -chardev, for help and QMP: until NULL. */
const struct type *chr_type_at(size_t i);
/* True when some chardev uses the process's stdin or stdout (-daemonize refuses it). */
bool chr_uses_stdio(void);
/* Ctrl-a x and the like call it. Set once by main. */
void chr_set_quit(void (*fn)(void));
/* Asked while chr_create waits for a socket's client (wait=on): true gives up with -EINTR. */
void chr_set_interrupted(bool (*fn)(void));
/* Give the terminal back before the process stops (SIGTSTP), and take it again (SIGCONT). Async-signal-safe. */
void chr_suspend_terminals(void);
void chr_resume_terminals(void);
/* Restore terminals, remove sockets; also safe from a fatal signal handler. */
void chr_restore_terminals(void);
void chr_destroy_all(void);

#endif
