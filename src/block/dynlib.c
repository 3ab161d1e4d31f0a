// SPDX-License-Identifier: GPL-2.0-or-later
/* Loading of libraries by name. No state but the loader's. */
#include "block/dynlib.h"

#include <dlfcn.h>
#include <errno.h>

int dynlib_load(const char *file, const char *package, const struct dynlib_symbol *symbols, size_t n, struct err *err)
{
	void *lib;

	if (*symbols[n - 1].address)
		return 0;
	lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return err_set(err, -ENOENT, "%s cannot be loaded: install the package %s (%s)", file, package,
			       dlerror());
	for (size_t i = 0; i < n; i++) {
		*symbols[i].address = dlsym(lib, symbols[i].name);
		if (!*symbols[i].address)
			return err_set(err, -ENOENT, "%s lacks %s: it is too old", file, symbols[i].name);
	}
	return 0;
}
