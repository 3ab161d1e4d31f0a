/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The one machine of a target that has a whole board: made by a command line, its guest only halts. */
#ifndef KELVIN_TESTS_FUZZ_BOARD_H
#define KELVIN_TESTS_FUZZ_BOARD_H

#include <stdio.h>
#include <stdlib.h>

#include "block/block.h"
#include "chr/chr.h"
#include "control/cmdline.h"
#include "control/monitor.h"
#include "machine/vm.h"

static struct loop *loop;
static struct cmdline c;
static struct vm *vm;

/* A multiboot kernel that is loaded as it lies, at 1 MiB: its header, then CLI, HLT and back. */
static const uint32_t board_kernel[] = {
    0x1badb002, 0x00010000, 0u - 0x1badb002 - 0x00010000, 0x100000, 0x100000, 0x100024, 0x100024, 0x100020, 0xfdebf4fa};

static void check(bool ok, const struct err *err)
{
	if (ok)
		return;
	fprintf(stderr, "the fuzzer's machine: %s\n", err->msg);
	exit(2);
}

/* For atexit, so that leaks show. */
static void destroy(void)
{
	monitor_destroy_all();
	vm_destroy(vm);
	chr_destroy_all();
	drive_close_all();
	loop_destroy(loop);
	cmdline_free(&c);
}

#endif
