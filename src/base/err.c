// SPDX-License-Identifier: GPL-2.0-or-later
/* The error type: formatting, the first error wins. No state, so any thread on its own err. */
#include "base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/util.h"

/* Names in it may come from anywhere: no new line, and nothing that a terminal would obey. */
static void err_one_line(struct err *err)
{
	for (char *p = err->msg; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

/* Text that does not fit is cut; the message stays one line and terminated. */
static void err_format(struct err *err, int code, const char *fmt, va_list ap)
{
	err->code = code ? code : -1;
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	err_one_line(err);
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	if (err && !err->code) {
		va_list ap;
		va_start(ap, fmt);
		err_format(err, code, fmt, ap);
		va_end(ap);
	}
	return code;
}

int err_set_errno(struct err *err, int code, const char *fmt, ...)
{
	if (err && !err->code) {
		va_list ap;
		va_start(ap, fmt);
		err_format(err, code, fmt, ap);
		va_end(ap);
		size_t n = strlen(err->msg);
		/* strerror_r of glibc returns a constant string or uses `buf`: safe in any thread. */
		char buf[64];
		snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", strerror_r(-code, buf, sizeof(buf)));
	}
	return code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
	if (!err || !err->code)
		return err ? err->code : 0;
	char old[sizeof(err->msg)];
	memcpy(old, err->msg, sizeof(old));
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	size_t n = strlen(err->msg);
	size_t room = sizeof(err->msg) - n;
	snprintf(err->msg + n, room, ": %.*s", (int)room, old);
	err_one_line(err);
	return err->code;
}
