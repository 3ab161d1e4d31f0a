/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The smallest guest that a whole machine starts with. Include after cmocka.h. */
#ifndef KELVIN_TESTS_HALT_KERNEL_H
#define KELVIN_TESTS_HALT_KERNEL_H

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* A PVH kernel of a few bytes: cli; hlt; jmp back. Closes fd. */
static void write_halt_kernel(int fd)
{
	static const uint8_t head[] = {
	    0x7f, 'E', 'L', 'F', 2, 1, 1, [16] = 2, 0, 62, 0, 1, [24] = 0, 0, 0x10, [32] = 64, [52] = 64, 0, 56, 0, 2,
	    0, 64, 0,
	    /* PT_LOAD, RWX, offset 0x1000, addresses 1 MiB, 4 bytes */
	    [64] = 1, [68] = 7, [73] = 0x10, [82] = 0x10, [90] = 0x10, [96] = 4, [104] = 4, [113] = 0x10,
	    /* PT_NOTE, offset 0x1100, 20 bytes */
	    [120] = 4, [124] = 4, [129] = 0x11, [152] = 20, [160] = 20, [168] = 4};
	static const uint8_t code[] = {0xfa, 0xf4, 0xeb, 0xfc};
	static const uint8_t note[] = {4, 0, 0, 0, 4, 0, 0, 0, 18, 0, 0, 0, 'X', 'e', 'n', 0, 0, 0, 0x10, 0};
	static uint8_t image[0x1200];

	memcpy(image, head, sizeof(head));
	memcpy(image + 0x1000, code, sizeof(code));
	memcpy(image + 0x1100, note, sizeof(note));
	assert_int_equal(write(fd, image, sizeof(image)), sizeof(image));
	close(fd);
}

#endif
