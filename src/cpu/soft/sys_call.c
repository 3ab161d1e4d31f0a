/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Software interrupts and the fast system calls: INT, SYSCALL and SYSRET,
 * SYSENTER and SYSEXIT. AMD64 APM volume 2 section 6.1, volume 3.
 *
 * Vendors differ where it is visible: SYSENTER does not exist in AMD's long
 * mode, SYSCALL not outside Intel's 64-bit mode, and Intel checks SYSRET's
 * target. The advertised vendor decides.
 */
#include "cpu/soft/sys.h"

#define SYSRET_FLAGS (RFLAGS_ALL & ~(FLAG_RF | FLAG_VM))

int sys_int(struct soft_cpu *c, const struct insn *i)
{
	return exc_software_int(c, (uint8_t)i->imm, c->s.rip + i->length, false);
}

int sys_int3(struct soft_cpu *c, const struct insn *i)
{
	return exc_software_int(c, EXC_BP, c->s.rip + i->length, true);
}

int sys_into(struct soft_cpu *c, const struct insn *i)
{
	if (!(c->s.rflags & FLAG_OF))
		return INSN_NEXT;
	return exc_software_int(c, EXC_OF, c->s.rip + i->length, true);
}

/* INT1 is #DB as a trap: no privilege check, the next instruction's address is pushed. */
int sys_int1(struct soft_cpu *c, const struct insn *i)
{
	c->s.rip += i->length;
	return soft_raise(c, EXC_DB);
}

/* ---- SYSCALL, SYSRET -------------------------------------------------------------------- */

static bool rex_w(const struct soft_cpu *c, const struct insn *i)
{
	/* The REX prefix stands right before the two opcode bytes. */
	return c->long64 && i->length >= 3 && (i->bytes[i->length - 3] & 0xf8) == 0x48;
}

int sys_syscall(struct soft_cpu *c, const struct insn *i)
{
	uint64_t next = c->s.rip + i->length;
	uint16_t cs = (uint16_t)(c->s.star >> 32) & 0xfffc;
	bool lng = sys_long(c);

	if (!(c->s.efer & EFER_SCE) || !sys_protected(c) || (c->vendor_intel && !c->long64))
		return soft_raise(c, EXC_UD);
	if (lng) {
		c->s.gpr[R_RCX] = next;
		c->s.gpr[R_R11] = (c->s.rflags & ~FLAG_RF) | RFLAGS_FIXED;
		c->s.rip = c->long64 ? c->s.lstar : c->s.cstar;
		c->s.rflags = (c->s.rflags & ~(c->s.sfmask | FLAG_RF)) | RFLAGS_FIXED;
	} else {
		c->s.gpr[R_RCX] = (uint32_t)next;
		c->s.rip = (uint32_t)c->s.star;
		c->s.rflags &= ~(FLAG_IF | FLAG_RF | FLAG_VM);
	}
	seg_set_flat(c, S_CS, cs, 0, lng);
	seg_set_flat(c, S_SS, (uint16_t)(cs + 8), 0, false);
	soft_mode_changed(c);
	return INSN_JUMP;
}

int sys_sysret(struct soft_cpu *c, const struct insn *i)
{
	uint16_t base = (uint16_t)(c->s.star >> 48);
	bool to64 = rex_w(c, i);

	if (!(c->s.efer & EFER_SCE) || (c->vendor_intel && !c->long64))
		return soft_raise(c, EXC_UD);
	if (!sys_protected(c) || c->cpl)
		return sys_gp0(c);
	/* On AMD the fetch at the target faults, at CPL 3. */
	if (to64 && c->vendor_intel && !sys_canonical(c->s.gpr[R_RCX]))
		return sys_gp0(c);
	if (sys_long(c))
		c->s.rflags = (c->s.gpr[R_R11] & SYSRET_FLAGS) | RFLAGS_FIXED;
	else
		c->s.rflags |= FLAG_IF;
	c->s.rip = to64 ? c->s.gpr[R_RCX] : (uint32_t)c->s.gpr[R_RCX];
	seg_set_flat(c, S_CS, (uint16_t)((to64 ? base + 16 : base) | 3), 3, to64);
	seg_set_flat(c, S_SS, (uint16_t)((base + 8) | 3), 3, false);
	soft_mode_changed(c);
	soft_recheck_intr(c);
	return INSN_JUMP;
}

/* ---- SYSENTER, SYSEXIT ---------------------------------------------------------------------- */

int sys_sysenter(struct soft_cpu *c, const struct insn *i)
{
	uint16_t cs = (uint16_t)c->s.sysenter_cs & 0xfffc;
	bool lng = sys_long(c);

	if (lng && !c->vendor_intel)
		return soft_raise(c, EXC_UD);
	if (!(c->s.cr0 & CR0_PE) || !cs)
		return sys_gp0(c);
	c->s.rflags &= ~(FLAG_VM | FLAG_IF | FLAG_RF);
	seg_set_flat(c, S_CS, cs, 0, lng);
	seg_set_flat(c, S_SS, (uint16_t)(cs + 8), 0, false);
	c->s.gpr[R_RSP] = lng ? c->s.sysenter_esp : (uint32_t)c->s.sysenter_esp;
	c->s.rip = lng ? c->s.sysenter_eip : (uint32_t)c->s.sysenter_eip;
	soft_mode_changed(c);
	return INSN_JUMP;
}

int sys_sysexit(struct soft_cpu *c, const struct insn *i)
{
	uint16_t cs = (uint16_t)c->s.sysenter_cs & 0xfffc;
	bool to64 = rex_w(c, i);
	uint64_t rip = c->s.gpr[R_RDX], rsp = c->s.gpr[R_RCX];

	if (sys_long(c) && !c->vendor_intel)
		return soft_raise(c, EXC_UD);
	if (!sys_protected(c) || !cs || c->cpl || (to64 && (!sys_canonical(rip) || !sys_canonical(rsp))))
		return sys_gp0(c);
	seg_set_flat(c, S_CS, (uint16_t)((cs + (to64 ? 32 : 16)) | 3), 3, to64);
	seg_set_flat(c, S_SS, (uint16_t)((cs + (to64 ? 40 : 24)) | 3), 3, false);
	c->s.rip = to64 ? rip : (uint32_t)rip;
	c->s.gpr[R_RSP] = to64 ? rsp : (uint32_t)rsp;
	soft_mode_changed(c);
	return INSN_JUMP;
}
