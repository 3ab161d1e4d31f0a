// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The human monitor: a table of commands on a line editor. QEMU's names; a name
 * may be cut short while it stays unambiguous, or is an alias. Output that a slow
 * client does not take waits, up to a limit. Main loop's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/util.h"
#include "control/balloon.h"
#include "control/info.h"
#include "control/media.h"
#include "control/migrate.h"
#include "control/monitor.h"
#include "control/qmp_impl.h"
#include "control/readline.h"
#include "control/savevm.h"
#include "control/textbuf.h"

#define HMP_MAX_QUEUED (256 * 1024)
#define HMP_INPUT_STEP 256

struct hmp {
	struct chr *chr;
	struct vm *vm;
	struct readline rl;
	struct textbuf out;
	bool focused, greeted;
	struct hmp *next;
};

static struct hmp *hmp_list;

/* ---- commands ---------------------------------------------------------------- */

struct hmp_command {
	const char *name, *alias, *args, *help;
	void (*fn)(struct vm *vm, const char *args, struct textbuf *out);
};
static const struct hmp_command *hmp_commands(size_t *n);

static void do_help(struct vm *vm, const char *args, struct textbuf *out)
{
	size_t n;
	const struct hmp_command *c = hmp_commands(&n);

	for (size_t i = 0; i < n; i++)
		if (!*args || !strcmp(args, c[i].name) || (c[i].alias && !strcmp(args, c[i].alias)))
			textbuf_printf(out, "%s%s%s %s -- %s\n", c[i].name, c[i].alias ? "|" : "",
				       c[i].alias ? c[i].alias : "", c[i].args, c[i].help);
	if (!strcmp(args, "info"))
		for (const struct info_subject *s = info_table; s->name; s++)
			textbuf_printf(out, "info %s -- %s\n", s->name, s->help);
}

static void do_info(struct vm *vm, const char *args, struct textbuf *out)
{
	size_t n = strcspn(args, " ");
	const char *names[64];
	char word[40];
	size_t count = 0;

	if (!n) {
		do_help(vm, "info", out);
		return;
	}
	snprintf(word, sizeof(word), "%.*s", (int)MIN(n, sizeof(word) - 1), args);
	for (const struct info_subject *s = info_table; s->name; s++) {
		if (!strcmp(s->name, word)) {
			args += n;
			s->print(vm, args + strspn(args, " "), out);
			return;
		}
		if (count < ARRAY_SIZE(names))
			names[count++] = s->name;
	}
	const char *near = text_nearest(word, names, count);
	textbuf_printf(out, "there is no 'info %s'%s%s%s\n", word,
		       near ? "; did you mean '" : " (help info lists them)", near ? near : "", near ? "'?" : "");
}

static void do_stop(struct vm *vm, const char *args, struct textbuf *out)
{
	vm_stop(vm, VM_PAUSED);
}

static void do_cont(struct vm *vm, const char *args, struct textbuf *out)
{
	enum vm_run_state s = vm_state(vm);

	if (s == VM_SHUTDOWN_STATE || s == VM_PANICKED || s == VM_INTERNAL_ERROR)
		textbuf_printf(out, "Error: Resetting the Virtual Machine is required\n");
	else if (s == VM_FINISH_MIGRATE)
		textbuf_printf(out, "Error: the machine is being saved\n");
	else
		vm_start(vm);
}

static void do_quit(struct vm *vm, const char *args, struct textbuf *out)
{
	vm_emit(vm, "SHUTDOWN", "{\"guest\": false, \"reason\": \"host-qmp-quit\"}");
	vm_quit(vm, 0);
}

static void do_reset(struct vm *vm, const char *args, struct textbuf *out)
{
	vm_system_reset(vm);
}

static void do_powerdown(struct vm *vm, const char *args, struct textbuf *out)
{
	vm_powerdown(vm);
}

static void do_log(struct vm *vm, const char *args, struct textbuf *out)
{
	struct err e = {0};

	if (!strcmp(args, "none"))
		log_mask = 0;
	else if (!*args || !strcmp(args, "help"))
		textbuf_printf(out, "log CLASS[,CLASS...] or log none; the classes are those of -d help\n");
	else if (log_set_classes(args, &e) < 0)
		textbuf_printf(out, "Error: %s\n", e.msg);
}

static const struct hmp_command hmp_table[] = {
    {"help", "?", "[COMMAND]", "what there is", do_help},
    {"info", NULL, "[SUBJECT]", "show something about the machine (help info lists the subjects)", do_info},
    {"stop", "s", "", "stop the virtual CPUs", do_stop},
    {"cont", "c", "", "let them run", do_cont},
    {"system_reset", NULL, "", "reset the machine", do_reset},
    {"system_powerdown", NULL, "", "press the power button", do_powerdown},
    {"eject", NULL, "[-f] DEVICE", "take the medium out of a drive; -f: whatever the guest says", hmp_eject},
    {"change", NULL, "DEVICE FILE [FORMAT [MODE]]", "put another medium into a drive", hmp_change},
    {"balloon", NULL, "SIZE", "the memory the guest shall have, in MiB", hmp_balloon},
    {"migrate", NULL, "[-d] URI", "save the machine to file:PATH, exec:COMMAND, unix:PATH or fd:N; -d: do not wait",
     hmp_migrate},
    {"migrate_cancel", NULL, "", "give up saving: the machine goes on", hmp_migrate_cancel},
    {"migrate_incoming", NULL, "URI", "load the machine (-incoming defer)", hmp_migrate_incoming},
    {"savevm", NULL, "[NAME]", "save the machine into its qcow2 disks, as a snapshot of that name", hmp_savevm},
    {"loadvm", NULL, "NAME", "go back to a snapshot (info snapshots lists them)", hmp_loadvm},
    {"delvm", NULL, "NAME", "delete a snapshot", hmp_delvm},
    {"quit", "q", "", "end Kelvin at once", do_quit},
    {"log", NULL, "CLASS[,...]", "switch diagnostics on, as -d", do_log},
};

static const struct hmp_command *hmp_commands(size_t *n)
{
	*n = ARRAY_SIZE(hmp_table);
	return hmp_table;
}

static const struct hmp_command *hmp_find(const char *word, size_t n)
{
	const struct hmp_command *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(hmp_table); i++) {
		const struct hmp_command *c = &hmp_table[i];
		if ((strlen(c->name) == n && !strncmp(c->name, word, n)) ||
		    (c->alias && strlen(c->alias) == n && !strncmp(c->alias, word, n)))
			return c;
	}
	for (size_t i = 0; i < ARRAY_SIZE(hmp_table); i++)
		if (n >= 2 && !strncmp(hmp_table[i].name, word, n)) {
			if (found)
				return NULL; /* ambiguous */
			found = &hmp_table[i];
		}
	return found;
}

void hmp_run_line(struct vm *vm, const char *line, struct textbuf *out)
{
	char copy[READLINE_MAX];

	snprintf(copy, sizeof(copy), "%s", line + strspn(line, " \t"));
	size_t n = strlen(copy);
	while (n && (copy[n - 1] == ' ' || copy[n - 1] == '\t' || copy[n - 1] == '\n'))
		copy[--n] = 0;
	if (!n)
		return;
	size_t word = strcspn(copy, " ");
	const struct hmp_command *c = hmp_find(copy, word);
	if (c)
		c->fn(vm, copy + word + strspn(copy + word, " "), out);
	else
		textbuf_printf(out, "unknown command: '%.*s'\n", (int)MIN(word, (size_t)60), copy);
}

/* The rest of the one command or subject that `line` begins. */
static const char *hmp_complete(void *opaque, const char *line)
{
	const char *found = NULL;
	size_t n;

	if (!strncmp(line, "info ", 5)) {
		line += 5;
		n = strlen(line);
		for (const struct info_subject *s = info_table; s->name; s++)
			if (!strncmp(s->name, line, n)) {
				if (found)
					return NULL;
				found = s->name + n;
			}
		return found;
	}
	n = strlen(line);
	for (size_t i = 0; i < ARRAY_SIZE(hmp_table); i++)
		if (!strncmp(hmp_table[i].name, line, n)) {
			if (found)
				return NULL;
			found = hmp_table[i].name + n;
		}
	return found;
}

/* ---- the chardev's side ---------------------------------------------------------- */

static void hmp_flush(struct hmp *h)
{
	while (h->out.len) {
		size_t n = chr_write(h->chr, h->out.text, h->out.len);
		if (!n)
			return;
		textbuf_drop(&h->out, n);
	}
}

static void hmp_write(void *opaque, const char *text, size_t len)
{
	struct hmp *h = opaque;

	if (h->out.len + len <= HMP_MAX_QUEUED)
		textbuf_add(&h->out, text, len);
	hmp_flush(h);
}

/* A raw terminal needs CR before LF. */
static void hmp_write_lines(struct hmp *h, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		hmp_write(h, text, n);
		text += n;
		if (*text) {
			hmp_write(h, "\r\n", 2);
			text++;
		}
	}
}

static void hmp_line(void *opaque, const char *line)
{
	struct hmp *h = opaque;
	struct textbuf out = {0};

	hmp_run_line(h->vm, line, &out);
	if (out.text)
		hmp_write_lines(h, out.text);
	textbuf_free(&out);
	if (h->focused)
		readline_show(&h->rl);
}

static size_t hmp_can_receive(void *opaque)
{
	struct hmp *h = opaque;

	return h->out.len < HMP_MAX_QUEUED / 2 ? HMP_INPUT_STEP : 0;
}

static void hmp_receive(void *opaque, const uint8_t *buf, size_t len)
{
	struct hmp *h = opaque;

	for (size_t i = 0; i < len; i++)
		readline_byte(&h->rl, (char)buf[i]);
}

static void hmp_writable(void *opaque)
{
	struct hmp *h = opaque;

	hmp_flush(h);
	chr_fe_ready(h->chr, h);
}

/* The banner comes once for each client; on a mux when the keyboard is first given to the monitor. */
static void hmp_greet(struct hmp *h)
{
	if (!h->greeted)
		hmp_write_lines(h,
				"QEMU 7.2.0 monitor - type 'help' for more information (Kelvin " KELVIN_VERSION ")\n");
	h->greeted = true;
	readline_show(&h->rl);
}

static void hmp_chr_event(void *opaque, enum chr_event event)
{
	struct hmp *h = opaque;

	switch (event) {
	case CHR_OPENED:
		h->greeted = false;
		textbuf_free(&h->out);
		h->rl.len = h->rl.pos = 0;
		h->rl.escape = 0;
		if (h->focused)
			hmp_greet(h);
		break;
	case CHR_CLOSED: textbuf_free(&h->out); break;
	case CHR_FOCUS_IN:
		h->focused = true;
		if (chr_connected(h->chr)) {
			hmp_write(h, "\r\n", 2);
			hmp_greet(h);
		}
		break;
	case CHR_FOCUS_OUT:
		h->focused = false;
		hmp_write(h, "\r\n", 2);
		break;
	case CHR_BREAK: break;
	}
}

int hmp_create(struct chr *c, struct vm *vm, const char *prompt, struct err *err)
{
	struct hmp *h = calloc(1, sizeof(*h));

	if (!h)
		return err_set_errno(err, -ENOMEM, "monitor");
	h->chr = c;
	h->vm = vm;
	h->rl = (struct readline){
	    .prompt = prompt, .write = hmp_write, .line = hmp_line, .complete = hmp_complete, .opaque = h};
	h->focused = !chr_is_mux(c); /* a mux says when */
	chr_set_writable(c, hmp_writable, h);
	struct chr_fe fe = {hmp_can_receive, hmp_receive, hmp_chr_event, h};
	int ret = chr_attach(c, &fe, "a human monitor", err);
	if (ret) {
		chr_set_writable(c, NULL, h);
		free(h);
		return ret;
	}
	h->next = hmp_list;
	hmp_list = h;
	return 0;
}

void hmp_destroy_all(void)
{
	while (hmp_list) {
		struct hmp *h = hmp_list;
		hmp_list = h->next;
		hmp_flush(h);
		h->focused = false;
		chr_detach(h->chr, h);
		readline_free(&h->rl);
		textbuf_free(&h->out);
		free(h);
	}
}

void monitor_destroy_all(void)
{
	qmp_destroy_all();
	hmp_destroy_all();
}
