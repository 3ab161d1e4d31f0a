// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: command lines. The input's arguments are separated by '|'. A line that parses has its drives,
 * chardevs and devices created too, in a sandbox, and all of it is destroyed again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../device/virtio_guest.h"
#include "base/util.h"
#include "block/block.h"
#include "chr/chr.h"
#include "control/cmdline.h"
#include "sandbox.h"

#define MAX_ARGS 40

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool always(void)
{
	return true;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	sandbox_enter();
	if (!freopen("stdout", "w", stdout)) /* where help goes */
		return 1;
	chr_set_interrupted(always); /* nobody comes to a server that waits for its client */
	drive_init();
	return 0;
}

static void irq(void *opaque, int n, int level)
{
	/* nobody listens */
}

static void event(void *opaque, const char *name, const char *json)
{
	/* nobody listens */
}

static void create(struct cmdline *c)
{
	static struct machine m;

	machine_create(&m);
	m.bus.event = event;
	for (int i = 0; i < 24; i++)
		m.bus.gsi[i] = (struct irq){irq, NULL, i};
	for (size_t i = 0; i < c->chardevs.n; i++)
		chr_create(c->chardevs.v[i], m.bus.loop, &(struct err){0});
	for (size_t i = 0; i < c->blockdevs.n; i++)
		blockdev_create(c->blockdevs.v[i], m.bus.loop, &(struct err){0});
	for (size_t i = 0; i < c->drives.n; i++)
		drive_create(c->drives.v[i], m.bus.loop, &(struct err){0});
	for (size_t i = 0; i < c->devices.n; i++)
		dev_create_from_text(&m.bus, c->devices.v[i], &(struct err){0});
	machine_settle(&m);
	dev_destroy_all(&m.bus);
	chr_destroy_all();
	machine_destroy(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *argv[MAX_ARGS + 2] = {(char *)"kelvin"}, *next = text;
	struct cmdline c;
	struct err err = {0};
	int argc = 1, ret;

	memcpy(text, data, size);
	text[size] = 0;
	while (next && argc <= MAX_ARGS) {
		argv[argc++] = next;
		next = strchr(next, '|');
		if (next)
			*next++ = 0;
	}
	ret = cmdline_parse(&c, argc, argv, &err);
	if (ret < 0 && (!err.msg[0] || strchr(err.msg, '\n'))) {
		fprintf(stderr, "the error is no line: '%s'\n", err.msg);
		abort();
	}
	if (!ret)
		create(&c);
	cmdline_free(&c);
	if (ftell(stdout) > 1 << 20)
		rewind(stdout);
	free(text);
	return 0;
}
