/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between model.c (parsing, tables) and named_models.c (data). */
#ifndef KELVIN_CPU_MODEL_INT_H
#define KELVIN_CPU_MODEL_INT_H

#include <stdint.h>

/* A named CPU: its parent's flags, plus `add`, minus `drop` (space-separated names). */
struct cpu_named_model {
	const char *name, *parent;
	uint16_t family;
	uint8_t model, stepping;
	const char *id; /* brand string */
	const char *add, *drop;
};
extern const struct cpu_named_model cpu_named_model_table[]; /* ends with name NULL */

#endif
