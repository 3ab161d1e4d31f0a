// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: what a QMP client sends, over a socket, to a machine of its own in a sandbox. The client has
 * negotiated, unless the input begins with '!'. The machine's guest only halts. The monitor must go on answering: after
 * each input a new client asks for the machine's state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "board.h"
#include "sandbox.h"

#define MAX_TURNS 200000

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_kernel(const char *name)
{
	FILE *f = fopen(name, "w");

	if (!f || fwrite(board_kernel, sizeof(board_kernel), 1, f) != 1 || fclose(f))
		abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const line[] = {
	    "kelvin",	 "-accel",  "soft",	"-m",	  "16",	     "-nodefaults",	   "-display",
	    "none",	 "-S",	    "-kernel",	"kernel", "-device", "virtio-balloon-pci", "-chardev",
	    "null,id=n", "-serial", "chardev:n"};
	struct err err = {0};
	struct chr *chr;

	sandbox_enter();
	write_kernel("kernel");
	drive_init();
	loop = loop_create("main", &err);
	check(loop && !cmdline_parse(&c, ARRAY_SIZE(line), (char **)line, &err), &err);
	check(chr_create("null,id=n", loop, &err), &err);
	check(drive_create("if=none,id=cd0,media=cdrom", loop, &err), &err);
	check(drive_create("if=none,id=d0,file=null-co://,format=raw", loop, &err), &err);
	check(!text_list_add(&c.devices, "ide-cd,drive=cd0,id=cd"), &err);
	check(!text_list_add(&c.devices, "virtio-blk-pci,drive=d0,id=disk"), &err);
	c.vm.devices = c.devices.v;
	c.vm.ndevices = (unsigned)c.devices.n;
	vm = vm_create(&c.vm, loop, &err);
	check(vm, &err);
	chr = chr_create("socket,id=q,path=qmp,server=on,wait=off", loop, &err);
	check(chr && !qmp_create(chr, vm, false, &err), &err);
	atexit(destroy);
	return 0;
}

static int client(void)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "qmp"};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&un, sizeof(un)))
		abort();
	return fd;
}

/* Send, and read what comes until it has `until` in it, or n turns of the loop passed without a word. */
static bool talk(int fd, const void *text, size_t size, const char *until, unsigned patience)
{
	static char in[1 << 16];
	const char *at = text;
	size_t have = 0;

	for (unsigned turn = 0, quiet = 0; turn < MAX_TURNS && quiet < patience; turn++, quiet++) {
		ssize_t n = size ? send(fd, at, MIN(size, (size_t)4096), MSG_NOSIGNAL) : 0;

		if (n > 0) {
			at += n;
			size -= (size_t)n;
			quiet = 0;
		}
		loop_run_once(loop, until ? 1000000 : 0);
		if (have > sizeof(in) / 2)
			have = 0;
		n = recv(fd, in + have, sizeof(in) - 1 - have, 0);
		if (n > 0) {
			have += (size_t)n;
			in[have] = 0;
			quiet = 0;
			if (until && strstr(in, until))
				return true;
		}
	}
	return !until;
}

#define SAY(fd, text, until) talk(fd, text, strlen(text), until, MAX_TURNS)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char hello[] = "{\"execute\":\"qmp_capabilities\"}\n";
	const bool rude = size && data[0] == '!';
	int fd = client();
	bool ok = rude || SAY(fd, hello, "\"return\"");

	talk(fd, data + rude, size - rude, NULL, 8);
	close(fd);
	talk(fd = client(), "", 0, NULL, 4); /* the server takes one client after the other */
	ok = ok && SAY(fd, hello, "\"return\"") && SAY(fd, "{\"execute\":\"query-status\"}\n", "\"status\"");
	close(fd);
	for (int i = 0; i < 4; i++)
		loop_run_once(loop, 0);
	if (!ok) {
		fprintf(stderr, "the monitor does not answer\n");
		abort();
	}
	return 0;
}
