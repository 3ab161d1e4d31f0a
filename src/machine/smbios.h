/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SMBIOS 2.8 tables (DMTF DSP0134) with the texts of -smbios, -name and -uuid. */
#ifndef KELVIN_MACHINE_SMBIOS_H
#define KELVIN_MACHINE_SMBIOS_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define SMBIOS_MAX_OEM_STRINGS 32

struct smbios_config {
	const uint8_t *uuid;	    /* 16 bytes as the text has them, or NULL */
	uint64_t ram_size, low_end; /* bytes; RAM below 4 GB ends at low_end */
	unsigned ncpus, sockets, cores, threads;
	const char *cpu_version; /* text of type 4 */
	char *const *option;	 /* -smbios arguments */
	unsigned noption;
};

/* Entry point and structures as one image for guest address `base` (16-byte aligned); caller frees. */
int smbios_build(const struct smbios_config *c, uint64_t base, size_t max_len, uint8_t **image, size_t *len,
		 struct err *err);

#endif
