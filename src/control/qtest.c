/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The test protocol of -qtest, as QEMU's clients of that name speak it; the commands
 * are in qtest.h. Replies and reports of lines go through one buffer, so that a report
 * stands before the reply of the command that caused it.
 *
 * Locks: `lock` (a leaf) guards the buffer and the watched lines, because a line may
 * change in any thread. All else is the main loop's.
 */
#include "control/qtest.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "bus/ports.h"
#include "control/textbuf.h"

#define INPUT_STEP     (64 * 1024)
#define MAX_LINE       (2 * QTEST_MAX_BYTES + 256) /* the hexadecimal of a write, and what stands before it */
#define MAX_QUEUED     (256 * 1024)		   /* of output that waits: no more commands beyond */
#define MAX_REPORTS    (4 * 1024 * 1024)	   /* and no more reports of lines beyond */
#define MAX_WORDS      6
#define TIMERS_AT_ONCE 1000 /* then the loop has its turn */
#define PIC_LINES      16

struct qtest {
	struct chr *chr;
	struct vm *vm;
	struct loop *loop;
	FILE *log;
	uint64_t opened; /* clock_raw_ns: what the log's times start from */
	struct textbuf in;
	size_t scanned; /* bytes of `in` known to hold no end of line */
	bool junk;	/* a line was too long: drop it to its end */
	bool stepping;	/* a clock command is under way, to guest time step_to */
	uint64_t step_to;

	pthread_mutex_t lock;
	struct textbuf out;
	size_t sent; /* bytes of `out` that are gone */
	bool lost;   /* reports were dropped, and that was said */
	const struct line_set *watched;
	uint32_t levels;
};

static struct qtest *the_qtest;

/* ---- output ------------------------------------------------------------------ */

static void qtest_flush(struct qtest *q)
{
	pthread_mutex_lock(&q->lock);
	while (q->sent < q->out.len) {
		size_t n = chr_write(q->chr, q->out.text + q->sent, q->out.len - q->sent);
		if (!n)
			break;
		q->sent += n;
	}
	if (q->sent == q->out.len) {
		textbuf_free(&q->out);
		q->sent = 0;
	}
	pthread_mutex_unlock(&q->lock);
}

/* Posted: by the time it runs the protocol may have ended. */
static void qtest_flush_posted(void *unused)
{
	if (the_qtest)
		qtest_flush(the_qtest);
}

static size_t qtest_queued(struct qtest *q)
{
	pthread_mutex_lock(&q->lock);
	size_t n = q->out.len - q->sent;
	pthread_mutex_unlock(&q->lock);
	return n;
}

static void qtest_log(struct qtest *q, char way, const char *text, size_t len)
{
	uint64_t us = (clock_raw_ns() - q->opened) / 1000;

	if (q->log)
		fprintf(q->log, "[%c +%" PRIu64 ".%06" PRIu64 "] %.*s\n", way, us / 1000000, us % 1000000, (int)len,
			text);
}

static void qtest_reply(struct qtest *q, const char *text)
{
	qtest_log(q, 'S', text, strlen(text));
	pthread_mutex_lock(&q->lock);
	textbuf_add(&q->out, text, strlen(text));
	textbuf_add(&q->out, "\n", 1);
	pthread_mutex_unlock(&q->lock);
}

static void __attribute__((format(printf, 2, 3))) qtest_replyf(struct qtest *q, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A client's words may be in it: still one line. */
	for (char *s = text; *s; s++)
		if ((unsigned char)*s < ' ')
			*s = '?';
	qtest_reply(q, text);
}

/* ---- interrupt lines ------------------------------------------------------------ */

static const struct line_set {
	const char *name;
	enum bus_line line;
	int n;
	bool in; /* of irq_intercept_in and set_irq_in, else of irq_intercept_out */
} line_sets[] = {
    {"ioapic", BUS_LINE_GSI, 24, true},
    {"i8259", BUS_LINE_GSI, PIC_LINES, true},
    {"i8259", BUS_LINE_INTR, 1, false},
};

/* The last part of a path names the chip; "isa-i8259" is the type's name in QEMU. */
static const struct line_set *line_set_find(const char *path, bool in)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (!strncmp(name, "isa-", 4))
		name += 4;
	for (size_t i = 0; i < ARRAY_SIZE(line_sets); i++)
		if (line_sets[i].in == in && !strcmp(line_sets[i].name, name))
			return &line_sets[i];
	return NULL;
}

static void qtest_line(void *opaque, enum bus_line line, int n, int level)
{
	struct qtest *q = opaque;
	bool post = false;

	pthread_mutex_lock(&q->lock);
	if (q->watched && q->watched->line == line && n >= 0 && n < q->watched->n &&
	    (q->levels >> n & 1) != (level != 0)) {
		q->levels ^= 1u << n;
		post = true;
		if (q->out.len - q->sent <= MAX_REPORTS)
			textbuf_printf(&q->out, "IRQ %s %d\n", level ? "raise" : "lower", n);
		else if (!q->lost)
			log_warn("-qtest: the client does not read: reports of interrupt lines are lost");
		q->lost = q->out.len - q->sent > MAX_REPORTS;
	}
	pthread_mutex_unlock(&q->lock);
	if (post)
		loop_post(q->loop, qtest_flush_posted, NULL);
}

static void qtest_watch(struct qtest *q, const struct line_set *set)
{
	pthread_mutex_lock(&q->lock);
	q->watched = set;
	q->levels = 0;
	pthread_mutex_unlock(&q->lock);
}

/* ---- commands --------------------------------------------------------------------- */

struct qtest_command {
	const char *name;
	unsigned least, most; /* words behind the name */
	void (*fn)(struct qtest *q, char **word, unsigned arg);
	unsigned arg; /* size of an access, or what fn likes */
};

static bool parse_number(const char *text, uint64_t *out)
{
	char *end;

	if (!*text || strchr("+- \t", *text))
		return false;
	errno = 0;
	*out = strtoull(text, &end, 0);
	return !*end && !errno;
}

/* Parse a word as a number up to max, or reply FAIL. */
static bool want_number(struct qtest *q, const char *what, const char *text, uint64_t max, uint64_t *out)
{
	if (parse_number(text, out) && *out <= max)
		return true;
	qtest_replyf(q, "FAIL %s '%.40s': a number up to 0x%" PRIx64 " is needed", what, text, max);
	return false;
}

static bool want_range(struct qtest *q, char **word, uint64_t *addr, uint64_t *size)
{
	return want_number(q, "address", word[1], UINT64_MAX, addr) &&
	       want_number(q, "size", word[2], QTEST_MAX_BYTES, size);
}

static void cmd_in(struct qtest *q, char **word, unsigned size)
{
	uint64_t port;

	if (want_number(q, "port", word[1], UINT16_MAX, &port))
		qtest_replyf(q, "OK 0x%04" PRIx64, ports_read(vm_bus(q->vm)->ports, (uint16_t)port, size));
}

static void cmd_out(struct qtest *q, char **word, unsigned size)
{
	uint64_t port, value;

	if (!want_number(q, "port", word[1], UINT16_MAX, &port) ||
	    !want_number(q, "value", word[2], UINT64_MAX, &value))
		return;
	ports_write(vm_bus(q->vm)->ports, (uint16_t)port, value & (UINT64_MAX >> (64 - 8 * size)), size);
	qtest_reply(q, "OK");
}

static void cmd_mem_read(struct qtest *q, char **word, unsigned size)
{
	uint64_t addr;

	if (want_number(q, "address", word[1], UINT64_MAX, &addr))
		qtest_replyf(q, "OK 0x%016" PRIx64, mem_read(vm_bus(q->vm)->mem, addr, size));
}

static void cmd_mem_write(struct qtest *q, char **word, unsigned size)
{
	uint64_t addr, value;

	if (!want_number(q, "address", word[1], UINT64_MAX, &addr) ||
	    !want_number(q, "value", word[2], UINT64_MAX, &value))
		return;
	mem_write(vm_bus(q->vm)->mem, addr, value & (UINT64_MAX >> (64 - 8 * size)), size);
	qtest_reply(q, "OK");
}

static void to_hex(const uint8_t *in, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*out++ = digits[in[i] >> 4];
		*out++ = digits[in[i] & 15];
	}
	*out = 0;
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* "0x" and pairs of digits, at most `len` of them into a zeroed buffer; false when it is anything else. */
static bool from_hex(const char *in, uint8_t *out, size_t len)
{
	if (in[0] != '0' || in[1] != 'x')
		return false;
	for (in += 2; *in; in += 2) {
		int high = hex_digit(in[0]), low = high < 0 ? -1 : hex_digit(in[1]);

		if (low < 0)
			return false;
		if (len) {
			*out++ = (uint8_t)(high << 4 | low);
			len--;
		}
	}
	return true;
}

enum { CODE_HEX, CODE_BASE64 };

static void cmd_read(struct qtest *q, char **word, unsigned code)
{
	uint64_t addr, size;

	if (!want_range(q, word, &addr, &size))
		return;
	if (!size) {
		qtest_reply(q, "FAIL size 0: nothing to read");
		return;
	}
	size_t head = code == CODE_HEX ? 5 : 3; /* "OK 0x", "OK " */
	uint8_t *data = malloc(size);
	char *text = malloc(head + (code == CODE_HEX ? 2 * size : base64_length(size)) + 1);
	if (data && text) {
		qtest_memory_read(vm_bus(q->vm)->mem, addr, data, size);
		memcpy(text, "OK 0x", head);
		if (code == CODE_HEX)
			to_hex(data, size, text + head);
		else
			base64_encode(data, size, text + head);
		qtest_reply(q, text);
	} else {
		qtest_reply(q, "FAIL out of memory");
	}
	free(data);
	free(text);
}

static void cmd_write(struct qtest *q, char **word, unsigned code)
{
	uint64_t addr, size;

	if (!want_range(q, word, &addr, &size))
		return;
	/* The text decides how much base64 decodes to; what is beyond `size` is left out. */
	size_t room = MAX((size_t)size, strlen(word[3]) / 4 * 3) + 1;
	uint8_t *data = calloc(1, room);
	if (!data) {
		qtest_reply(q, "FAIL out of memory");
		return;
	}
	const bool hex = code == CODE_HEX;
	const ssize_t got = !hex ? base64_decode(word[3], data) : from_hex(word[3], data, size) ? (ssize_t)size : -1;
	if (got < 0) {
		qtest_replyf(q, "FAIL the data are not %s", hex ? "0x and pairs of digits" : "base64");
	} else {
		qtest_memory_write(vm_bus(q->vm)->mem, addr, data, MIN((size_t)size, (size_t)got));
		qtest_reply(q, "OK");
	}
	free(data);
}

static void cmd_memset(struct qtest *q, char **word, unsigned arg)
{
	uint64_t addr, size, value;

	if (!want_range(q, word, &addr, &size) || !want_number(q, "value", word[3], UINT64_MAX, &value))
		return;
	uint8_t *data = malloc(size + 1);
	if (!data) {
		qtest_reply(q, "FAIL out of memory");
		return;
	}
	memset(data, (uint8_t)value, size);
	qtest_memory_write(vm_bus(q->vm)->mem, addr, data, size);
	free(data);
	qtest_reply(q, "OK");
}

/* ---- the clock ----------------------------------------------------------------------- */

static void qtest_go_on(struct qtest *q);

/* A step may run any number of timers: between them the loop serves the monitors, and "quit" works. */
static void qtest_step_more(void *unused)
{
	struct qtest *q = the_qtest;

	if (!q || !q->stepping)
		return; /* the client has gone */
	struct vmclock *c = vm_bus(q->vm)->clock;
	if (!vmclock_step(c, q->step_to, TIMERS_AT_ONCE)) {
		loop_post(q->loop, qtest_step_more, NULL);
		return;
	}
	q->stepping = false;
	qtest_replyf(q, "OK %" PRIu64, vmclock_ns(c));
	qtest_go_on(q);
	chr_fe_ready(q->chr, q);
}

static void cmd_clock(struct qtest *q, char **word, unsigned set)
{
	struct vmclock *c = vm_bus(q->vm)->clock;
	uint64_t ns, now = vmclock_ns(c), to;

	if (!c->manual) {
		qtest_reply(q, "FAIL the clock of this CPU engine runs by itself: use -accel qtest");
		return;
	}
	if (!word[1]) {
		to = vmclock_next_deadline(c);
		to = to == UINT64_MAX ? now : to;
	} else if (want_number(q, "time", word[1], INT64_MAX, &ns)) {
		to = set ? ns : now + ns; /* both are below 2^63 */
	} else {
		return;
	}
	q->step_to = MIN(to, (uint64_t)INT64_MAX);
	q->stepping = true;
	if (vmclock_step(c, q->step_to, TIMERS_AT_ONCE)) {
		q->stepping = false;
		qtest_replyf(q, "OK %" PRIu64, vmclock_ns(c));
	} else {
		loop_post(q->loop, qtest_step_more, NULL);
	}
}

/* ---- lines ----------------------------------------------------------------------------- */

static void cmd_intercept(struct qtest *q, char **word, unsigned in)
{
	const struct line_set *set = line_set_find(word[1], in);

	if (!set)
		qtest_replyf(q, "FAIL '%.60s' has no lines to watch: there are %s", word[1],
			     in ? "ioapic and i8259" : "those of i8259");
	else if (q->watched && q->watched != set)
		qtest_reply(q, "FAIL the lines of another chip are watched already");
	else {
		if (!q->watched)
			qtest_watch(q, set);
		qtest_reply(q, "OK");
	}
}

static void cmd_set_irq(struct qtest *q, char **word, unsigned arg)
{
	const struct line_set *set = line_set_find(word[1], true);
	uint64_t n, level;

	if (!set) {
		qtest_replyf(q, "FAIL '%.60s' has no lines to set: there are ioapic and i8259", word[1]);
		return;
	}
	if (!want_number(q, "line", word[3], (uint64_t)set->n - 1, &n) ||
	    !want_number(q, "level", word[4], INT32_MAX, &level))
		return;
	irq_set(&vm_bus(q->vm)->gsi[n], level != 0);
	qtest_reply(q, "OK");
}

static void cmd_endianness(struct qtest *q, char **word, unsigned arg)
{
	qtest_reply(q, "OK little");
}

static const struct qtest_command commands[] = {
    {"inb", 1, 1, cmd_in, 1},
    {"inw", 1, 1, cmd_in, 2},
    {"inl", 1, 1, cmd_in, 4},
    {"outb", 2, 2, cmd_out, 1},
    {"outw", 2, 2, cmd_out, 2},
    {"outl", 2, 2, cmd_out, 4},
    {"readb", 1, 1, cmd_mem_read, 1},
    {"readw", 1, 1, cmd_mem_read, 2},
    {"readl", 1, 1, cmd_mem_read, 4},
    {"readq", 1, 1, cmd_mem_read, 8},
    {"writeb", 2, 2, cmd_mem_write, 1},
    {"writew", 2, 2, cmd_mem_write, 2},
    {"writel", 2, 2, cmd_mem_write, 4},
    {"writeq", 2, 2, cmd_mem_write, 8},
    {"read", 2, 2, cmd_read, CODE_HEX},
    {"write", 3, 3, cmd_write, CODE_HEX},
    {"b64read", 2, 2, cmd_read, CODE_BASE64},
    {"b64write", 3, 3, cmd_write, CODE_BASE64},
    {"memset", 3, 3, cmd_memset, 0},
    {"clock_step", 0, 1, cmd_clock, false},
    {"clock_set", 1, 1, cmd_clock, true},
    {"irq_intercept_in", 1, 1, cmd_intercept, true},
    {"irq_intercept_out", 1, 1, cmd_intercept, false},
    {"set_irq_in", 4, 4, cmd_set_irq, 0},
    {"endianness", 0, 0, cmd_endianness, 0},
};

/* One line without its end; cut into words in place. */
static void qtest_run(struct qtest *q, char *line, size_t len)
{
	char *word[MAX_WORDS + 1] = {NULL}, *save = NULL;
	unsigned n = 0;

	qtest_log(q, 'R', line, len);
	if (memchr(line, 0, len)) {
		qtest_reply(q, "FAIL a NUL byte in the command");
		return;
	}
	for (char *w = strtok_r(line, " \t\r", &save); w; w = strtok_r(NULL, " \t\r", &save)) {
		if (n == MAX_WORDS) {
			qtest_reply(q, "FAIL too many words");
			return;
		}
		word[n++] = w;
	}
	if (!n)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		const struct qtest_command *c = &commands[i];

		if (strcmp(c->name, word[0]))
			continue;
		if (n - 1 < c->least || n - 1 > c->most)
			qtest_replyf(q, "FAIL %s takes %u words, not %u", c->name, c->least, n - 1);
		else
			c->fn(q, word, c->arg);
		return;
	}
	qtest_replyf(q, "FAIL Unknown command '%.60s'", word[0]);
}

/* ---- input -------------------------------------------------------------------------------- */

/* Run the complete lines in `in`, until a clock command has to wait or the client does not read. */
static void qtest_lines(struct qtest *q)
{
	size_t start = 0;

	while (!q->stepping && qtest_queued(q) <= MAX_QUEUED && q->scanned < q->in.len) {
		char *end = memchr(q->in.text + q->scanned, '\n', q->in.len - q->scanned);

		if (!end) {
			q->scanned = q->in.len;
			break;
		}
		*end = 0;
		if (!q->junk)
			qtest_run(q, q->in.text + start, (size_t)(end - q->in.text) - start);
		q->junk = false;
		start = q->scanned = (size_t)(end - q->in.text) + 1;
	}
	textbuf_drop(&q->in, start);
	q->scanned -= start;
	if (q->scanned > MAX_LINE && q->scanned == q->in.len) {
		if (!q->junk)
			qtest_reply(q, "FAIL the command is too long");
		q->junk = true;
		textbuf_free(&q->in);
		q->scanned = 0;
	}
}

/*
 * Lines and output in turn. A client that reads quickly empties the output at once, and then no event comes for the
 * lines that waited behind it: they are run here.
 */
static void qtest_go_on(struct qtest *q)
{
	do {
		qtest_lines(q);
		qtest_flush(q);
	} while (!q->stepping && q->scanned < q->in.len && qtest_queued(q) <= MAX_QUEUED);
}

static size_t qtest_can_receive(void *opaque)
{
	struct qtest *q = opaque;

	return q->stepping || qtest_queued(q) > MAX_QUEUED ? 0 : INPUT_STEP;
}

static void qtest_receive(void *opaque, const uint8_t *buf, size_t len)
{
	struct qtest *q = opaque;

	textbuf_add(&q->in, (const char *)buf, len);
	if (q->in.failed) {
		textbuf_free(&q->in);
		q->scanned = 0;
		q->junk = true;
		qtest_reply(q, "FAIL out of memory");
	}
	qtest_go_on(q);
}

/* The backend takes output again: what waited in `in` goes on. */
static void qtest_writable(void *opaque)
{
	struct qtest *q = opaque;

	qtest_flush(q);
	qtest_go_on(q);
	if (qtest_can_receive(q))
		chr_fe_ready(q->chr, q);
}

/* Each client starts anew. */
static void qtest_event(void *opaque, enum chr_event event)
{
	struct qtest *q = opaque;

	if (event != CHR_OPENED && event != CHR_CLOSED)
		return;
	qtest_watch(q, NULL);
	textbuf_free(&q->in);
	q->scanned = 0;
	q->junk = q->stepping = false;
	pthread_mutex_lock(&q->lock);
	textbuf_free(&q->out);
	q->sent = 0;
	pthread_mutex_unlock(&q->lock);
	q->opened = clock_raw_ns();
	qtest_log(q, 'I', event == CHR_OPENED ? "OPENED" : "CLOSED", 6);
}

/* ---- life ----------------------------------------------------------------------------------- */

int qtest_create(struct chr *c, struct vm *vm, struct loop *loop, const char *log, struct err *err)
{
	struct qtest *q = calloc(1, sizeof(*q));

	if (!q)
		return err_set_errno(err, -ENOMEM, "qtest");
	*q = (struct qtest){.chr = c, .vm = vm, .loop = loop, .opened = clock_raw_ns()};
	pthread_mutex_init(&q->lock, NULL);
	the_qtest = q;
	if (log && strcmp(log, "none")) {
		q->log = fopen(log, "we");
		if (!q->log)
			return err_set_errno(err, -errno, "-qtest-log: cannot open '%s' for writing", log);
		setvbuf(q->log, NULL, _IOLBF, 0);
	}
	chr_set_writable(c, qtest_writable, q);
	struct chr_fe fe = {qtest_can_receive, qtest_receive, qtest_event, q};
	int ret = chr_attach(c, &fe, "the test protocol", err);
	if (ret)
		return ret;
	vm_bus(vm)->line_opaque = q;
	__atomic_store_n(&vm_bus(vm)->line_watch, qtest_line, __ATOMIC_RELEASE);
	return 0;
}

void qtest_destroy(void)
{
	struct qtest *q = the_qtest;

	if (!q)
		return;
	the_qtest = NULL;
	/* The machine stands still by now: nobody is inside qtest_line. */
	__atomic_store_n(&vm_bus(q->vm)->line_watch, NULL, __ATOMIC_RELEASE);
	chr_set_writable(q->chr, NULL, q);
	chr_detach(q->chr, q);
	if (q->log)
		fclose(q->log);
	textbuf_free(&q->in);
	textbuf_free(&q->out);
	pthread_mutex_destroy(&q->lock);
	free(q);
}
