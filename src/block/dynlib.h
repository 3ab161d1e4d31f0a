/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Libraries loaded when first used: linking all of them would cost every start their loading. Main thread. */
#ifndef KELVIN_BLOCK_DYNLIB_H
#define KELVIN_BLOCK_DYNLIB_H

#include <stddef.h>
#include "base/err.h"

struct dynlib_symbol {
	const char *name;
	void **address; /* filled in */
};
/* Once for each library; it stays loaded. Errors name the Debian package to install. */
int dynlib_load(const char *file, const char *package, const struct dynlib_symbol *symbols, size_t n, struct err *err);

#endif
