// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The QEMU Machine Protocol: JSON objects both ways, one client at a time per
 * chardev. Wire format and error classes as QEMU's docs/interop/qmp-spec
 * describes them; there is no out-of-band execution, and none is advertised.
 *
 * A client is not trusted with our memory: input is bounded, and while replies
 * wait for a client that does not read, no more of its commands are taken and
 * events are dropped. Commands run in the main loop's thread, in order.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include "base/log.h"
#include "base/util.h"
#include "control/json.h"
#include "control/monitor.h"
#include "control/qmp_impl.h"
#include "control/textbuf.h"

#define CHR_INPUT_STEP 4096
#define QMP_MAX_INPUT  (1024 * 1024) /* one command */
#define QMP_MAX_QUEUED (256 * 1024)  /* of output that waits: no more commands beyond */
#define QMP_MAX_EVENTS (1024 * 1024) /* no more events beyond */

struct qmp {
	struct chr *chr;
	struct vm *vm;
	bool pretty, connected, negotiated;
	struct json_cutter in;
	struct textbuf out;
	struct vm_event_sink sink;
	struct qmp *next;
};

static struct qmp *qmp_list;

/* ---- output ------------------------------------------------------------------ */

static void qmp_flush(struct qmp *q)
{
	while (q->out.len) {
		size_t n = chr_write(q->chr, q->out.text, q->out.len);
		if (!n)
			return;
		textbuf_drop(&q->out, n);
	}
}

static void qmp_send(struct qmp *q, json_t *message)
{
	char *text = json_dumps(message, q->pretty ? JSON_INDENT(4) : 0);

	json_decref(message);
	if (!text)
		return;
	if (log_on(LOG_QMP))
		log_diag(LOG_QMP, "> %s", text);
	textbuf_add(&q->out, text, strlen(text));
	textbuf_add(&q->out, "\r\n", 2);
	free(text);
	qmp_flush(q);
}

static void qmp_writable(void *opaque)
{
	struct qmp *q = opaque;

	qmp_flush(q);
	if (q->out.len < QMP_MAX_QUEUED)
		chr_fe_ready(q->chr, q);
}

static void qmp_greet(struct qmp *q)
{
	qmp_send(q, json_pack("{s:{s:o,s:[]}}", "QMP", "version", qmp_version(), "capabilities"));
}

static void qmp_event(void *opaque, const char *name, const char *data_json)
{
	struct qmp *q = opaque;
	struct timeval tv;

	if (!q->connected || !q->negotiated || q->out.len > QMP_MAX_EVENTS)
		return;
	gettimeofday(&tv, NULL);
	json_t *data = data_json ? json_loads(data_json, 0, NULL) : NULL;
	json_t *e = json_pack("{s:{s:I,s:I},s:s}", "timestamp", "seconds", (json_int_t)tv.tv_sec, "microseconds",
			      (json_int_t)tv.tv_usec, "event", name);
	if (data)
		json_object_set_new(e, "data", data);
	qmp_send(q, e);
}

/* `id` is whatever the client gave; it goes back unchanged. */
static void qmp_reply_error(struct qmp *q, const char *class, const char *text, json_t *id)
{
	json_t *r = json_pack("{s:{s:s,s:o}}", "error", "class", class, "desc", json_text(text));

	if (id)
		json_object_set(r, "id", id);
	qmp_send(q, r);
}

static void qmp_reply(struct qmp *q, json_t *value, json_t *id)
{
	json_t *r = json_pack("{s:o}", "return", value ? value : json_object());

	if (id)
		json_object_set(r, "id", id);
	qmp_send(q, r);
}

/* ---- commands ------------------------------------------------------------------- */

static const struct qmp_command *qmp_find(const char *name)
{
	for (const struct qmp_command *c = qmp_command_table; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

/* No capability is offered (out-of-band execution is the only one there is), so none can be enabled. */
static void qmp_negotiate(struct qmp *q, json_t *args, json_t *id)
{
	struct err err = {0};
	char text[120];

	if (qmp_check_members(QMP_CAPABILITIES_ARGS, args, &err)) {
		qmp_reply_error(q, "GenericError", err.msg, id);
		return;
	}
	json_t *want = json_object_get(args, "enable");
	if (json_array_size(want)) {
		snprintf(text, sizeof(text), "Capability '%s' is not available",
			 json_string_value(json_array_get(want, 0)));
		qmp_reply_error(q, "GenericError", text, id);
		return;
	}
	q->negotiated = true;
	qmp_reply(q, NULL, id);
}

static void qmp_execute(struct qmp *q, const char *name, json_t *args, json_t *id)
{
	struct err err = {0};
	char text[200];

	if (!q->negotiated && !strcmp(name, QMP_CAPABILITIES)) {
		qmp_negotiate(q, args, id);
		return;
	}
	if (!q->negotiated) {
		qmp_reply_error(q, "CommandNotFound", "Expecting capabilities negotiation with 'qmp_capabilities'", id);
		return;
	}
	if (!strcmp(name, QMP_CAPABILITIES)) {
		qmp_reply_error(q, "CommandNotFound", "Capabilities negotiation is already complete, command ignored",
				id);
		return;
	}
	const struct qmp_command *c = qmp_find(name);
	if (!c) {
		snprintf(text, sizeof(text), "The command %.100s has not been found", name);
		qmp_reply_error(q, "CommandNotFound", text, id);
		return;
	}
	json_t *result = qmp_check_members(c->args, args, &err) ? NULL : c->fn(q->vm, args, &err);
	if (err.code || !result) {
		json_decref(result);
		qmp_reply_error(q, err.code == -ENODEV ? "DeviceNotFound" : "GenericError", err.msg, id);
	} else {
		qmp_reply(q, result, id);
	}
}

/* Check the envelope: an object with execute, arguments and id, nothing else. */
static void qmp_handle(struct qmp *q, json_t *request)
{
	const char *key;
	json_t *value;
	char text[120];

	if (!json_is_object(request)) {
		qmp_reply_error(q, "GenericError", "QMP input must be a JSON object", NULL);
		return;
	}
	json_t *id = json_object_get(request, "id"), *args = json_object_get(request, "arguments");
	json_t *execute = json_object_get(request, "execute");
	json_object_foreach(request, key, value) {
		if (!strcmp(key, "execute") || !strcmp(key, "arguments") || !strcmp(key, "id"))
			continue;
		snprintf(text, sizeof(text), "QMP input member '%.60s' is unexpected", key);
		qmp_reply_error(q, "GenericError", text, id);
		return;
	}
	if (!execute)
		qmp_reply_error(q, "GenericError", "QMP input lacks member 'execute'", id);
	else if (!json_is_string(execute))
		qmp_reply_error(q, "GenericError", "QMP input member 'execute' must be a string", id);
	else if (args && !json_is_object(args))
		qmp_reply_error(q, "GenericError", "QMP input member 'arguments' must be an object", id);
	else
		qmp_execute(q, json_string_value(execute), args, id);
}

static void qmp_parse(struct qmp *q, const char *text, size_t len)
{
	json_error_t je;
	char desc[160];

	if (log_on(LOG_QMP))
		log_diag(LOG_QMP, "< %.*s", (int)MIN(len, (size_t)1000), text);
	json_t *request = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	if (!request) {
		snprintf(desc, sizeof(desc), "JSON parse error, %.100s", je.text);
		qmp_reply_error(q, "GenericError", desc, NULL);
		return;
	}
	qmp_handle(q, request);
	json_decref(request);
}

/* ---- the chardev's side ----------------------------------------------------------- */

static size_t qmp_can_receive(void *opaque)
{
	struct qmp *q = opaque;

	return q->out.len < QMP_MAX_QUEUED ? CHR_INPUT_STEP : 0;
}

static void qmp_receive(void *opaque, const uint8_t *buf, size_t len)
{
	struct qmp *q = opaque;

	for (size_t i = 0; i < len; i++) {
		switch (json_cutter_byte(&q->in, (char)buf[i])) {
		case JSON_CUT_MORE: break;
		case JSON_CUT_VALUE: qmp_parse(q, q->in.buf, q->in.len); break;
		case JSON_CUT_BAD:
			qmp_reply_error(q, "GenericError",
					"JSON parse error, the input is no JSON object, or too large", NULL);
			break;
		}
	}
}

static void qmp_chr_event(void *opaque, enum chr_event event)
{
	struct qmp *q = opaque;

	if (event != CHR_OPENED && event != CHR_CLOSED)
		return;
	/* Each client starts anew. */
	json_cutter_free(&q->in);
	textbuf_free(&q->out);
	q->negotiated = false;
	q->connected = event == CHR_OPENED;
	if (q->connected)
		qmp_greet(q);
}

int qmp_create(struct chr *c, struct vm *vm, bool pretty, struct err *err)
{
	struct qmp *q = calloc(1, sizeof(*q));

	if (!q)
		return err_set_errno(err, -ENOMEM, "QMP");
	q->chr = c;
	q->vm = vm;
	q->pretty = pretty;
	q->in.limit = QMP_MAX_INPUT;
	q->sink.event = qmp_event;
	q->sink.opaque = q;
	chr_set_writable(c, qmp_writable, q);
	struct chr_fe fe = {qmp_can_receive, qmp_receive, qmp_chr_event, q};
	int ret = chr_attach(c, &fe, "a QMP monitor", err);
	if (ret) {
		chr_set_writable(c, NULL, q);
		free(q);
		return ret;
	}
	vm_add_event_sink(vm, &q->sink);
	q->next = qmp_list;
	qmp_list = q;
	return 0;
}

void qmp_destroy_all(void)
{
	while (qmp_list) {
		struct qmp *q = qmp_list;
		qmp_list = q->next;
		qmp_flush(q);
		vm_remove_event_sink(q->vm, &q->sink);
		chr_detach(q->chr, q);
		json_cutter_free(&q->in);
		textbuf_free(&q->out);
		free(q);
	}
}
