/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * x87 errors as a PC reported them before the 486 (CR0.NE = 0): FERR# and IGNNE#
 * instead of #MF. SDM volume 1, appendix D. An instruction that waits and finds an
 * unmasked error raises FERR#, which a PC wires to interrupt 13, and the processor
 * stands still before it until an interrupt is taken. With IGNNE# it goes on as if
 * the error were masked. The board has both lines (cpu_host.x87_error). Runs in the
 * vCPU's thread.
 */
#include "cpu/soft/sys.h"

#define FCW_MASKS    0x3fu
#define FCW_INFINITY 0x1000u /* means nothing since the 387, but is kept */
#define FSW_ES	     0x8080u /* error summary, and busy, its copy */

/* The instruction at rip with all errors masked. What it does to the status word stays; so does a control word it
 * loads. */
static int step_masked(struct soft_cpu *c)
{
	uint8_t *x = c->s.xsave;
	const uint16_t fcw = ld16le(x), masked = (fcw | FCW_MASKS) ^ FCW_INFINITY;
	int r;

	st16le(x, masked);
	st16le(x + 2, ld16le(x + 2) & (uint16_t)~FSW_ES);
	c->ferr = false; /* it is not gone */
	r = interp_step(c);
	c->ferr = true;
	if (ld16le(x) == masked)
		st16le(x, fcw);
	if (ld16le(x + 2) & ~ld16le(x) & FCW_MASKS)
		st16le(x + 2, ld16le(x + 2) | FSW_ES);
	return r;
}

bool x87_error_external(struct soft_cpu *c)
{
	const struct cpu_host *h = sys_host(c);

	if (c->exc_vector != EXC_MF || (c->s.cr0 & CR0_NE) || !h->x87_error)
		return false;
	c->exc_raised = false;
	c->ferr = true;
	if (!h->x87_error(h->opaque, c->v.index, true)) {
		c->s.mp_state = MP_HALTED;
		return true;
	}
	return step_masked(c) == 0;
}

void x87_error_gone(struct soft_cpu *c)
{
	const struct cpu_host *h = sys_host(c);

	c->ferr = false;
	if (h->x87_error)
		h->x87_error(h->opaque, c->v.index, false);
}
