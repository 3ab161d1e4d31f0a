/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The one error type. A function that can fail returns 0 or -errno and, where
 * the cause is known, fills a `struct err` with one line that says what failed,
 * on which object, why, and what to do. No full stop; the subject quoted.
 */
#ifndef KELVIN_BASE_ERR_H
#define KELVIN_BASE_ERR_H

struct err {
	int code; /* negative errno, 0 while no error was set */
	char msg[480];
};

/*
 * Fill *err (which may be NULL) and return `code`, so that callers write
 * `return err_set(err, -EINVAL, ...)`. The first error wins: a later call on an
 * err that is already set changes nothing. Any thread, on its own err.
 */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, with ": strerror(-code)" appended. */
int err_set_errno(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put "prefix: " in front of an error that is already set; returns its code. */
int err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
