/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * -object: named things that devices and the machine refer to. A device links to
 * one with PROP_LINK of link_kind "object" (any) or "rng" (rng-*), and gets the
 * struct object. Main thread only; objects live until the machine is gone.
 */
#ifndef KELVIN_BASE_OBJECT_H
#define KELVIN_BASE_OBJECT_H

#include "base/type.h"

/* Common head of every object. */
struct object {
	const struct type *type;
	char *id;
	struct object *next;
};

/* rng-random and rng-builtin: where random bytes come from. */
struct object_rng {
	struct object object;
	char *filename; /* rng-random: default /dev/urandom; rng-builtin: NULL, use getrandom(2) */
};

/* memory-backend-ram, -file, -memfd */
struct object_memory {
	struct object object;
	uint64_t size;	/* bytes */
	char *mem_path; /* -file */
	bool share, prealloc, merge, dump;
};

/* throttle-group: limits that several disks share, as block/throttle.h counts them. Zeros: no limit. */
#define OBJECT_LIMITS 6 /* bps total, read, write; iops total, read, write */
struct object_throttle {
	struct object object;
	uint64_t avg[OBJECT_LIMITS], max[OBJECT_LIMITS], length[OBJECT_LIMITS], iops_size;
};

/* "rng-random,id=r0,filename=/dev/urandom" or JSON. 0 or -errno and err. */
int object_create(const char *text, struct err *err);
struct object *object_find(const char *id);
struct object *object_at(size_t i); /* until NULL */
void object_destroy_all(void);
/* The types of -object until NULL, for help and QMP. */
const struct type *object_type_at(size_t i);

#endif
