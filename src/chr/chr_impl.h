/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What chardev backends share: each is a table (struct chr_ops) and embeds
 * struct chr first. chr.c reads and writes the descriptors; a backend opens
 * them and says what the end of one means.
 */
#ifndef KELVIN_CHR_CHR_IMPL_H
#define KELVIN_CHR_CHR_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include "chr/chr.h"

#define CHR_MAX_FE   4
#define CHR_READ_MAX 4096
#define CHR_FIFO     4096 /* typed ahead per frontend of a mux */

struct chr_ops {
	struct type type; /* first: type->size is the instance's */
	/* Open the descriptors (chr_set_fds) and fill c->description. 0 or -errno and err. */
	int (*open)(struct chr *c, struct err *err);
	/* The descriptors reached their end (hang-up, end of file on the input). May be NULL. Loop's thread. */
	void (*ended)(struct chr *c);
	/* Remove protocol bytes (telnet) from input; returns what is left. May be NULL. */
	size_t (*filter)(struct chr *c, uint8_t *buf, size_t len);
	/* Asked when output finds nobody connected: did somebody come since? May be NULL. Any thread, c->lock held. */
	bool (*poll_peer)(struct chr *c);
	void (*close)(struct chr *c); /* the backend's own resources; the descriptors are closed by chr.c */
};

/* Bytes that wait for a frontend of a mux. */
struct chr_fifo {
	uint8_t data[CHR_FIFO];
	size_t head, len;
};

struct chr_slot {
	struct chr_fe fe;
	char who[48];
	bool used;
};

struct chr {
	const struct chr_ops *ops;
	char *id;
	struct loop *loop;
	struct chr *next;
	char description[300];

	/* Properties of every backend (type "chardev"). */
	bool mux, logappend;
	char *logfile;

	/* Frontends: loop's thread. */
	struct chr_slot slot[CHR_MAX_FE];
	unsigned nslots;
	int focus;		/* mux: index of the slot that has the keyboard, or -1 */
	struct chr_fifo *fifo;	/* mux: one per slot */
	bool escape;		/* mux: Ctrl-a was typed */
	_Atomic bool paused;	/* the frontend had no room; chr_fe_ready ends it */
	_Atomic unsigned posts; /* calls of ours the loop has not run yet */

	/* Descriptors: changed by the loop's thread with the lock held; writers hold it. */
	pthread_mutex_t lock;
	int rfd, wfd; /* may be the same; -1 when there is none */
	int logfd;
	bool connected, eof, blocked, gone;
	bool rwatched, wwatched;
	struct {
		void (*fn)(void *opaque);
		void *opaque;
	} writable[CHR_MAX_FE];
};

extern const struct type chr_base_type; /* "chardev": the common properties */
extern const struct chr_ops chr_stdio_ops, chr_pty_ops, chr_file_ops, chr_pipe_ops, chr_null_ops, chr_socket_ops;

/* Create from options that were parsed already; head names the backend. Consumes nothing of o. */
struct chr *chr_create_opts(struct opts *o, const char *id, struct loop *l, struct err *err);

/* Descriptors for a connection: chr.c owns and closes them. Watches start with the first frontend. */
int chr_set_fds(struct chr *c, int rfd, int wfd);
void chr_clear_fds(struct chr *c);
/* Change `connected` and tell the frontends. Loop's thread. */
void chr_set_connected(struct chr *c, bool connected);
/* Look again what to watch. Loop's thread; chr_post_update from any other. */
void chr_update(struct chr *c);
void chr_post_update(struct chr *c);
/* Bytes that can be given to the frontends now, and giving them. */
size_t chr_input_room(struct chr *c);
void chr_input(struct chr *c, const uint8_t *buf, size_t len);
void chr_event_all(struct chr *c, enum chr_event event);

/* mux.c */
size_t mux_room(struct chr *c);
void mux_input(struct chr *c, const uint8_t *buf, size_t len);
void mux_drain(struct chr *c); /* give waiting bytes to frontends that have room */
void mux_set_focus(struct chr *c, int slot);
void chr_quit(void);
bool chr_interrupted(void);

/* A socket file to remove at exit: remembered with its inode. */
void chr_remember_socket_file(const char *path);
void chr_remove_socket_files(void);

#endif
