// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The program: picks the verb. Invoked through a link with a name of QEMU's, or
 * with an option as first argument, it behaves as `kelvin run`.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/type.h"
#include "base/util.h"
#include "control/cmdline.h"
#include "control/img.h"
#include "control/start.h"
#include "lab/bench.h"

static int verb_run(int argc, char **argv)
{
	struct cmdline c;
	struct err err = {0};
	int ret = cmdline_parse(&c, argc, argv, &err);
	int status = ret > 0 ? 0 : 1;

	if (ret < 0)
		log_error("%s", err.msg);
	else if (ret == 0)
		status = start_run(&c);
	cmdline_free(&c);
	return status;
}

static int verb_help(int argc, char **argv)
{
	printf("Kelvin " KELVIN_VERSION ", a virtual machine monitor for Linux\n\n"
	       "  kelvin run OPTIONS   start a machine\n"
	       "  kelvin img VERB ...  make, show, copy and compare disk images\n"
	       "  kelvin bench ...     measure: experiments, baselines, verdicts\n"
	       "  kelvin top           show running machines\n"
	       "  kelvin help          print this text\n"
	       "  kelvin --version     print the version\n\n");
	cmdline_print_help();
	return 0;
}

/* Each gets its own name as argv[0]. */
static const struct {
	const char *name;
	int (*fn)(int argc, char **argv);
} verbs[] = {
    {"run", verb_run}, {"help", verb_help}, {"img", img_main}, {"bench", bench_main}, {"top", top_main},
};

/* Started with 0, 1 or 2 closed: nothing we open may take their place. */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
}

int main(int argc, char **argv)
{
	fill_standard_fds();
	/* A limit of file sizes is an error of the write (EFBIG), not the end of the machine. */
	signal(SIGXFSZ, SIG_IGN);

	const char *names[ARRAY_SIZE(verbs)];
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;

	if (argc && !strcmp(slash ? slash + 1 : argv[0], "qemu-img"))
		return img_main(argc, argv);
	if (argc < 1 || (argc > 1 && argv[1][0] == '-') || cmdline_is_qemu_name(argv[0]))
		return verb_run(argc, argv);
	if (argc == 1) {
		verb_help(argc, argv);
		return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		names[i] = verbs[i].name;
		if (!strcmp(argv[1], names[i]))
			return verbs[i].fn(argc - 1, argv + 1);
	}
	const char *near = text_nearest(argv[1], names, ARRAY_SIZE(names));
	log_error("there is no command '%s'%s%s%s (kelvin help lists them)", argv[1], near ? "; did you mean '" : "",
		  near ? near : "", near ? "'?" : "");
	return 1;
}
