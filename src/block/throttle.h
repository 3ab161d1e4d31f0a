/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Limits of requests and bytes per second on nodes, QEMU's throttling: a leaky
 * bucket for each limit, shared by the nodes of a group (which may be in different
 * loops). Flushes and discards are not counted.
 */
#ifndef KELVIN_BLOCK_THROTTLE_H
#define KELVIN_BLOCK_THROTTLE_H

#include "block/block.h"

/* Bytes, then requests per second. */
enum throttle_kind {
	THROTTLE_BPS,
	THROTTLE_BPS_RD,
	THROTTLE_BPS_WR,
	THROTTLE_IOPS,
	THROTTLE_IOPS_RD,
	THROTTLE_IOPS_WR
};
#define THROTTLE_KINDS 6

/* Zeros: no limit. max: the rate of a burst that lasts `length` seconds (0: 1). */
struct throttle_limits {
	uint64_t avg[THROTTLE_KINDS], max[THROTTLE_KINDS], length[THROTTLE_KINDS];
	uint64_t iops_size; /* bytes that count as one request; 0: any */
};
bool throttle_wanted(const struct throttle_limits *l);
int throttle_check(const struct throttle_limits *l, struct err *err);
/* Make the group or change its limits. Main thread. */
int throttle_group_set(const char *name, const struct throttle_limits *l, struct err *err);

/* Main thread, before requests; a node is in one group at most. */
/* The limits a node is under (zeros: none) and the name of its group, or NULL. Main thread. */
const char *block_throttle_limits(const struct block_node *n, struct throttle_limits *out);
int block_throttle_join(struct block_node *n, const char *group, struct err *err);
void block_throttle_leave(struct block_node *n); /* nothing in flight */
void block_throttle_set_loop(struct block_node *n, struct loop *l);

/* The loop's thread. True: the request waits and is passed on later. */
bool block_throttle_hold(struct block_node *n, struct block_req *req);
/* Pass everything on at once (drain). */
void block_throttle_release(struct block_node *n);

#endif
