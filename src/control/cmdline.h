/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command line as data: one const table of options fills a struct cmdline.
 * Parsing opens nothing and starts nothing (only "help" arguments print), so
 * that tests can parse any line. control/start.c acts on the result.
 */
#ifndef KELVIN_CONTROL_CMDLINE_H
#define KELVIN_CONTROL_CMDLINE_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "machine/vm.h"

/* Texts of an option that may be given several times, in order. */
struct text_list {
	char **v;
	size_t n;
};
int text_list_add(struct text_list *l, const char *text);
void text_list_free(struct text_list *l);

enum cmd_console { CONSOLE_DEFAULT, CONSOLE_NOGRAPHIC, CONSOLE_NONE /* -display none */ };

/* A -monitor, -qmp or -mon, in the order given. */
struct cmd_monitor {
	bool qmp, pretty;
	bool by_id; /* text is a chardev's id (-mon), else a shorthand */
	char *text;
};

struct cmdline {
	struct vm_config vm;
	struct text_list drives, blockdevs, chardevs, serials, objects, globals;
	/* -device, -smbios, -fw_cfg, -initrd: handed to vm as they are. */
	struct text_list devices, smbios, fw_cfg, initrds, accels;
	struct cmd_monitor *monitors;
	size_t nmonitors;
	bool no_monitor; /* -monitor none */
	enum cmd_console console;
	bool daemonize, lock_memory, snapshot;
	char *loadvm;
	char *qtest, *qtest_log; /* -qtest: a chardev shorthand */
	char *pidfile, *stats, *log_file, *process_name, *memory_backend;
	bool as_qemu; /* invoked under one of QEMU's names */
};

/*
 * Parse argv[1..]. 0: run; 1: a help or version text was printed, leave with
 * status 0; negative: err says what is wrong. Free with cmdline_free in each case.
 */
int cmdline_parse(struct cmdline *c, int argc, char **argv, struct err *err);
/* Is the program invoked under a name of QEMU's (a link)? */
bool cmdline_is_qemu_name(const char *argv0);
void cmdline_free(struct cmdline *c);
/* All options with their help, to stdout. */
void cmdline_print_help(void);

/* cmdline_machine.c: -M, -accel, -m, -smp, -uuid, -rtc, -boot and the like; same results as cmdline_parse. */
int cmd_set_machine(struct cmdline *c, const char *text, struct err *err);
int cmd_set_accel(struct cmdline *c, const char *text, struct err *err);
int cmd_set_memory(struct cmdline *c, const char *text, struct err *err);
int cmd_set_smp(struct cmdline *c, const char *text, struct err *err);
int cmd_set_cpu(struct cmdline *c, const char *text, struct err *err);
int cmd_set_uuid(struct cmdline *c, const char *text, struct err *err);
int cmd_set_name(struct cmdline *c, const char *text, struct err *err);
int cmd_set_rtc(struct cmdline *c, const char *text, struct err *err);
int cmd_set_boot(struct cmdline *c, const char *text, struct err *err);
int cmd_set_action(struct cmdline *c, const char *text, struct err *err);
int cmd_set_initrd(struct cmdline *c, const char *text, struct err *err);
int cmd_set_device(struct cmdline *c, const char *text, struct err *err);
int cmd_set_chardev(struct cmdline *c, const char *text, struct err *err);
int cmd_set_object(struct cmdline *c, const char *text, struct err *err);
/* What parsing left open gets its default; combinations are checked. */
int cmdline_finish(struct cmdline *c, struct err *err);

/* The types whose properties are an option's keys, until NULL: what parses the option is what QMP shows. */
struct cmd_keys {
	const char *option;
	const struct type *(*at)(size_t i);
};
const struct cmd_keys *cmdline_keys_at(size_t i); /* until NULL */

/* cmdline_machine.c: such keys. */
const struct type *cmd_machine_keys(size_t i);
const struct type *cmd_accel_keys(size_t i);
const struct type *cmd_memory_keys(size_t i);
const struct type *cmd_smp_keys(size_t i);
const struct type *cmd_name_keys(size_t i);
const struct type *cmd_rtc_keys(size_t i);
const struct type *cmd_boot_keys(size_t i);
const struct type *cmd_action_keys(size_t i);

/* refused.c: 1 and err when this is an option of QEMU's that Kelvin does not have. */
bool cmdline_refused(const char *name, struct err *err);

#endif
