// SPDX-License-Identifier: GPL-2.0-or-later
/* The end of the line for broken invariants of our own. */
#include "base/util.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void util_bug(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "kelvin: internal error at %s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort(); /* main's SIGABRT handler gives the terminal back */
}
