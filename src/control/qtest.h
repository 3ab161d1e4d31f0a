/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The test protocol of -qtest: lines of text by which a client plays the CPU of a
 * machine. With -accel qtest nothing else runs in it and guest time moves only by
 * the client's clock_step; with another engine the clock commands are refused.
 *
 *	inb|inw|inl PORT                    OK 0xVALUE
 *	outb|outw|outl PORT VALUE           OK
 *	readb|readw|readl|readq ADDR        OK 0xVALUE
 *	writeb|writew|writel|writeq ADDR V  OK
 *	read ADDR SIZE                      OK 0xHEX           in memory's order
 *	write ADDR SIZE 0xHEX               OK                 short data: the rest is zeros
 *	b64read ADDR SIZE                   OK BASE64
 *	b64write ADDR SIZE BASE64           OK
 *	memset ADDR SIZE BYTE               OK
 *	clock_step [NS]                     OK NOW             without NS: to the next timer
 *	clock_set NS                        OK NOW             never back
 *	irq_intercept_in PATH               OK                 ioapic: the 24 lines; i8259: 16 of them
 *	irq_intercept_out PATH              OK                 i8259: its output to the CPU
 *	set_irq_in PATH NAME N LEVEL        OK                 a line of ioapic or i8259
 *	endianness                          OK little
 *
 * After an intercept each change of a line is told as "IRQ raise N" or "IRQ lower N",
 * before the reply of the command that caused it. Whatever is not right is answered
 * by a line that starts with FAIL. Numbers are decimal, 0x hexadecimal or 0 octal.
 *
 * One client at a time, in the main loop's thread; the client is not trusted.
 */
#ifndef KELVIN_CONTROL_QTEST_H
#define KELVIN_CONTROL_QTEST_H

#include "base/err.h"
#include "chr/chr.h"
#include "machine/vm.h"

#define QTEST_MAX_BYTES (16u << 20) /* of one read, write or memset */

/* There is at most one. `log`: file for the lines of both directions, or NULL. 0 or -errno and err. */
int qtest_create(struct chr *c, struct vm *vm, struct loop *loop, const char *log, struct err *err);
/* Detach from the chardev and the machine; before they go. Does nothing when there is none. */
void qtest_destroy(void);

/* qtest_memory.c: guest memory of any kind as the CPU sees it; len at most QTEST_MAX_BYTES. */
void qtest_memory_read(struct mem_map *m, uint64_t gpa, uint8_t *buf, size_t len);
void qtest_memory_write(struct mem_map *m, uint64_t gpa, const uint8_t *buf, size_t len);

#endif
