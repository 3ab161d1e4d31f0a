/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The image file of the disks' device tests: made for the group of tests, all zeros again after each. */
#ifndef KELVIN_TESTS_DEVICE_DISK_IMAGE_H
#define KELVIN_TESTS_DEVICE_DISK_IMAGE_H

#include <stdlib.h>
#include <unistd.h>

#include "block/block.h"

#define IMAGE_SIZE (4u << 20)

static char image[] = "kelvin-disk-XXXXXX";

static inline int image_clear(void)
{
	return truncate(image, 0) || truncate(image, IMAGE_SIZE);
}

/* cmocka's group setup and teardown. */
static int setup(void **state)
{
	const int fd = mkstemp(image);

	drive_init();
	return fd >= 0 && ftruncate(fd, IMAGE_SIZE) == 0 ? close(fd) : -1;
}

static int teardown(void **state)
{
	return unlink(image);
}

#endif
