/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by drive.c and blockdev.c. Main thread only. */
#ifndef KELVIN_BLOCK_DRIVE_H
#define KELVIN_BLOCK_DRIVE_H

#include "block/block.h"

/* A drive with nothing but a node, which it owns from now on. */
int drive_add_node(const char *id, struct block_node *n, struct err *err);
/* End a drive no device uses and keep its node. NULL: none, empty, or in use. */
struct block_node *drive_take_node(const char *id);
/* The drive made of a -blockdev's protocol node when a device asks for it. NULL: none of that name, or an error said.
 */
struct drive *blockdev_drive(const char *node_name);

#endif
