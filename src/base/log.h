/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Logging. Messages for the user go to stderr as "kelvin: text"; diagnostic
 * classes are off until -d names them and go to the -D file (else stderr).
 * Any thread; one write(2) per line, so lines never interleave.
 */
#ifndef KELVIN_BASE_LOG_H
#define KELVIN_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

/* Diagnostic classes of -d, one bit each; log_class_table in log.c has names and help. */
enum log_class {
	LOG_GUEST_ERRORS = 1u << 0, /* the guest programmed a device wrongly */
	LOG_UNIMP = 1u << 1,	    /* the guest asked for something Kelvin does not model */
	LOG_INT = 1u << 2,	    /* exceptions and interrupts of the software CPU */
	LOG_CPU_RESET = 1u << 3,    /* resets and triple faults, with the CPU state */
	LOG_IN_ASM = 1u << 4,	    /* guest code as it is decoded */
	LOG_OUT_ASM = 1u << 5,	    /* host code as it is generated */
	LOG_EXEC = 1u << 6,	    /* each block entered */
	LOG_MMU = 1u << 7,	    /* page walks */
	LOG_IO = 1u << 8,	    /* port and memory accesses to devices */
	LOG_VIRTIO = 1u << 9,
	LOG_BLOCK = 1u << 10,
	LOG_QMP = 1u << 11,
};

extern uint32_t log_mask; /* set once before threads start */

static inline bool log_on(uint32_t class_bits)
{
	return (log_mask & class_bits) != 0;
}

void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Diagnostics; guard costly arguments with log_on(). At most 1000 lines a second per
 * class reach the file; what was dropped is counted and said. */
void log_diag(enum log_class class_bit, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -msg timestamp=on: date and time in front of user messages. Set before threads start. */
extern bool log_timestamps;

/* -d LIST ("help" lists the classes on stdout and returns 1); -D FILE. 0 or -errno. */
int log_set_classes(const char *list, struct err *err);
int log_set_file(const char *path, struct err *err);

#endif
