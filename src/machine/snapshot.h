/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Snapshots of a stopped machine: its whole state to a stream, and back into a
 * machine made by the same options, on either CPU engine. Format: see
 * docs/architecture.md, "Snapshots".
 *
 * A thread moves the bytes; everything else is the main loop's. A stream is
 * hostile input: whatever it holds, loading ends in a machine or in one clear
 * error, after which the machine is only good to be destroyed.
 */
#ifndef KELVIN_MACHINE_SNAPSHOT_H
#define KELVIN_MACHINE_SNAPSHOT_H

#include "machine/vm.h"

struct snapshot; /* one transfer */

struct snapshot_progress {
	uint64_t total;	      /* bytes of guest RAM */
	uint64_t done;	      /* of them: looked at, or loaded */
	uint64_t transferred; /* bytes of the stream */
	uint64_t zero_pages, pages;
};

/*
 * The machine is stopped (vm_stop, or never ran); `running`: it was, for this, and goes on when it is loaded. fd is
 * written from a thread, and stays the caller's. `done` runs in the main loop: 0, or -errno with err; snapshot_free may
 * be called there. NULL and err: nothing was begun.
 */
struct snapshot *snapshot_save(struct vm *vm, int fd, bool running,
			       void (*done)(void *opaque, int rc, const struct err *err), void *opaque,
			       struct err *err);
/* Into a machine that never ran. `done` comes after the whole stream was read, checked and taken over. */
struct snapshot *snapshot_load(struct vm *vm, int fd, void (*done)(void *opaque, int rc, const struct err *err),
			       void *opaque, struct err *err);
/*
 * The same at once and without a thread: the main loop does nothing else meanwhile. The stream is what these functions
 * make of it, each called with the next bytes: 0, or -errno with err.
 */
struct snapshot_io {
	int (*write)(void *opaque, const void *data, size_t len, struct err *err);
	int (*read)(void *opaque, void *data, size_t len, struct err *err); /* all of len */
	void *opaque;
};
/* What is not RAM is taken, the disks are flushed: nothing is in flight. NULL and err. */
struct snapshot *snapshot_take(struct vm *vm, bool running, struct err *err);
int snapshot_write(struct snapshot *s, const struct snapshot_io *io, struct err *err);
/* Is it a stream of such a machine as this? Reads its beginning. */
int snapshot_check(struct vm *vm, const struct snapshot_io *io, struct err *err);
/* From the beginning into a stopped machine whatever it did before. On failure that machine is half another one. */
int snapshot_restore(struct vm *vm, const struct snapshot_io *io, struct err *err);
/* End soon, with -ECANCELED, if it has not ended. `done` still comes. */
void snapshot_cancel(struct snapshot *s);
/* Waits for the thread. */
void snapshot_free(struct snapshot *s);
/* As snapshot_save was told; of a loaded one in `done`. */
bool snapshot_running(const struct snapshot *s);
struct snapshot_progress snapshot_progress(const struct snapshot *s);

/* What a snapshot of this machine asks of another: lines of text, heap; NULL without memory. For tests too. */
char *snapshot_describe(struct vm *vm);

#endif
