/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One trial: one cell run once, from an untouched copy of its disk to a line for the journal. Main thread; the child
 * dies with this process.
 */
#ifndef KELVIN_LAB_TRIAL_H
#define KELVIN_LAB_TRIAL_H

#include <jansson.h>
#include <signal.h>
#include "lab/experiment.h"

/* A note of a trial; the verdict repeats it when many have it. */
#define NOTE_NOT_QUIET "other processes used more than 30 % of a CPU meanwhile: the machine was not quiet"

/* What all trials of a run share. */
struct bench_files {
	char *work;	       /* folder for this run's images; removed at the end */
	char *cache;	       /* base images and kernels */
	char *sockets;	       /* short folder for sockets */
	char *initrd, *kernel; /* complete */
	char *root, *source;   /* root image and source tree, or NULL */
	char *tools;	       /* folder with the agent and scripts, for the host */
};

/* Make or find everything the experiment's cells need; progress on stderr. 0 or -errno. */
int files_prepare(struct bench_files *f, const struct experiment *e, const char *dir, struct err *err);
void files_free(struct bench_files *f); /* removes work and sockets */

/* Set by signal handlers; trials end early and report nothing. */
extern volatile sig_atomic_t bench_stop;

/*
 * Run it. Always returns an object: {"status": "ok", "metrics": ..., "phases": ...} or {"status": "failed" or
 * "refused", "cause": one line}; NULL only when bench_stop was set.
 */
json_t *trial_run(const struct experiment *e, const struct cell *c, struct bench_files *f);

/* disk.c: the disk of one trial. Returns a malloc'ed path in *path (NULL: no disk), or -errno. */
struct trial_disk {
	char *path, *loop; /* loop: a device to detach */
	const char *format;
};
int disk_make(struct trial_disk *d, const struct experiment *e, const struct cell *c, struct bench_files *f,
	      struct err *err);
void disk_remove(struct trial_disk *d);
/* The format of an existing image, malloc'ed; a new qcow2 overlay over one. NULL or -errno, and err. */
char *image_format(const char *path, struct err *err);
int image_overlay(const char *image, const char *overlay, struct err *err);

/* tune.c: settings of the host's disk (host.scheduler, ...) for one trial, and back. 0 or -errno. */
int tune_apply(const struct cell *c, const struct bench_files *f, struct err *err);
void tune_restore(const struct bench_files *f);

/* system.c: what the guest runs. */
struct trial_system {
	bool firmware; /* the image boots by itself, the seed brings the agent */
	char *root;    /* image with the programs, or NULL: none are needed */
	char *format, *overlay;
};
int system_make(struct trial_system *s, const struct experiment *e, const struct cell *c, const struct bench_files *f,
		struct err *err);
void system_remove(struct trial_system *s);

/* command.c: the monitor's command line for a cell. */
struct vmm_ops;
struct command {
	const struct vmm_ops *vmm;
	char **argv; /* NULL-terminated */
	size_t n;
	bool kvm;
};
int command_make(struct command *m, const struct cell *c, const struct bench_files *f, const struct trial_system *s,
		 const struct trial_disk *d, struct err *err);
void command_free(struct command *m);

/* A setting's text, or the fallback. "default" counts as missing. */
const char *cell_setting(const struct cell *c, const char *key, const char *fallback);

#endif
