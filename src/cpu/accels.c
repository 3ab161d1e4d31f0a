/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The CPU engines, in the order of preference. */
#include "cpu/cpu.h"

#include <string.h>

#include "base/util.h"

const struct accel_ops *const accel_table[] = {&kvm_accel_ops, &soft_accel_ops, &qtest_accel_ops, NULL};

/* QEMU's name for its own software CPU */
static const char soft_alias[] = "tcg";

const char *accel_alias_at(size_t i)
{
	return i ? NULL : soft_alias;
}

const struct accel_ops *accel_find(const char *name)
{
	if (strcmp(name, soft_alias) == 0)
		name = "soft";
	for (size_t i = 0; i < ARRAY_SIZE(accel_table); i++)
		if (accel_table[i] && strcmp(accel_table[i]->type.name, name) == 0)
			return accel_table[i];
	return NULL;
}
