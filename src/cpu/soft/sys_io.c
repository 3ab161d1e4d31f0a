/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Port instructions: IN, OUT, INS, OUTS with REP. AMD64 APM volume 3; the
 * permission bitmap in the TSS: volume 2 section 12.2.4.
 *
 * A repeated form commits each iteration (registers, then the next), so a fault
 * or an interrupt in the middle restarts where it was.
 */
#include "cpu/soft/sys.h"

#define TSS_IOMAP 102 /* offset of the bitmap's offset */

/* May this code touch size ports from `port` on? */
static int io_check(struct soft_cpu *c, uint16_t port, unsigned size)
{
	const struct cpu_segment *tr = &c->s.seg[S_TR];
	uint16_t map, bits;
	uint32_t off;

	if (!(c->s.cr0 & CR0_PE) || (!(c->s.rflags & FLAG_VM) && c->cpl <= sys_iopl(c)))
		return 0;
	if (tr->unusable || tr->type != DESC_TSS_BUSY || tr->limit < TSS_IOMAP + 1)
		return sys_gp0(c);
	if (mmu_read_buf(c, tr->base + TSS_IOMAP, &map, 2, MMU_KERNEL))
		return EXC_RAISED;
	off = map + port / 8u;
	/* Two bytes are always read, so that an unaligned access finds all its bits. */
	if (off + 1 > tr->limit)
		return sys_gp0(c);
	if (mmu_read_buf(c, tr->base + off, &bits, 2, MMU_KERNEL))
		return EXC_RAISED;
	return (bits >> (port % 8)) & ((1u << size) - 1) ? sys_gp0(c) : 0;
}

static uint64_t port_read(struct soft_cpu *c, uint16_t port, unsigned size)
{
	c->n_port_io++;
	if (unlikely(c->debug_active))
		soft_debug_io(c, port, size);
	return sys_host(c)->port_read(sys_host(c)->opaque, port, size);
}

static void port_write(struct soft_cpu *c, uint16_t port, uint64_t val, unsigned size)
{
	c->n_port_io++;
	if (unlikely(c->debug_active))
		soft_debug_io(c, port, size);
	sys_host(c)->port_write(sys_host(c)->opaque, port, val, size);
}

static unsigned io_size(const struct insn *i)
{
	return i->opsize > 4 ? 4 : i->opsize;
}

/* Operand n is an immediate port or DX. */
static uint16_t io_port(const struct soft_cpu *c, const struct insn *i, unsigned n)
{
	return i->op[n].kind == OPD_IMM ? (uint8_t)i->imm : (uint16_t)c->s.gpr[R_RDX];
}

static uint64_t low_mask(unsigned size)
{
	return size == 8 ? ~0ull : (1ull << (size * 8)) - 1;
}

int sys_in(struct soft_cpu *c, const struct insn *i)
{
	unsigned size = io_size(i);
	uint16_t port = io_port(c, i, 1);
	uint64_t val;

	if (io_check(c, port, size))
		return EXC_RAISED;
	val = port_read(c, port, size) & low_mask(size);
	c->s.gpr[R_RAX] = size == 4 ? val : (c->s.gpr[R_RAX] & ~low_mask(size)) | val;
	return INSN_NEXT;
}

int sys_out(struct soft_cpu *c, const struct insn *i)
{
	unsigned size = io_size(i);
	uint16_t port = io_port(c, i, 0);

	if (io_check(c, port, size))
		return EXC_RAISED;
	port_write(c, port, c->s.gpr[R_RAX] & low_mask(size), size);
	return INSN_NEXT;
}

/* ---- string forms ----------------------------------------------------------------------- */

static unsigned string_size(const struct insn *i)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_INSB:
	case ZYDIS_MNEMONIC_OUTSB: return 1;
	case ZYDIS_MNEMONIC_INSW:
	case ZYDIS_MNEMONIC_OUTSW: return 2;
	default: return 4;
	}
}

/* Add to an address or count register with the width of the address size. */
static void reg_add(struct soft_cpu *c, unsigned reg, unsigned addrsize, uint64_t n)
{
	uint64_t val = c->s.gpr[reg] + n;

	if (addrsize == 2)
		val = (c->s.gpr[reg] & ~0xffffull) | (val & 0xffff);
	else if (addrsize == 4)
		val = (uint32_t)val;
	c->s.gpr[reg] = val;
}

static int ins_once(struct soft_cpu *c, const struct insn *i, unsigned size)
{
	uint16_t port = (uint16_t)c->s.gpr[R_RDX];
	uint64_t lin;

	if (seg_linear(c, S_ES, c->s.gpr[R_RDI] & low_mask(i->addrsize), size, true, &lin) ||
	    mmu_probe(c, lin, size, MMU_WRITE, c->mmu_index))
		return EXC_RAISED;
	if (mmu_store_slow(c, lin, size, port_read(c, port, size), c->mmu_index))
		return EXC_RAISED;
	reg_add(c, R_RDI, i->addrsize, c->s.rflags & FLAG_DF ? -(uint64_t)size : size);
	return 0;
}

static int outs_once(struct soft_cpu *c, const struct insn *i, unsigned size)
{
	uint64_t lin, val;

	if (seg_linear(c, i->mem_seg, c->s.gpr[R_RSI] & low_mask(i->addrsize), size, false, &lin) ||
	    mmu_load(c, lin, size, &val))
		return EXC_RAISED;
	port_write(c, (uint16_t)c->s.gpr[R_RDX], val, size);
	reg_add(c, R_RSI, i->addrsize, c->s.rflags & FLAG_DF ? -(uint64_t)size : size);
	return 0;
}

static int io_string(struct soft_cpu *c, const struct insn *i,
		     int (*once)(struct soft_cpu *, const struct insn *, unsigned))
{
	unsigned size = string_size(i);

	if (io_check(c, (uint16_t)c->s.gpr[R_RDX], size))
		return EXC_RAISED;
	if (!(i->prefixes & (INSN_REP | INSN_REPNE)))
		return once(c, i, size) ? EXC_RAISED : INSN_NEXT;
	while (c->s.gpr[R_RCX] & low_mask(i->addrsize)) {
		if (once(c, i, size))
			return EXC_RAISED;
		reg_add(c, R_RCX, i->addrsize, -1ull);
		/* rip stays at the instruction: it goes on after the interrupt, or the trap of this iteration. */
		if ((soft_attention(c) || c->debug_active || (c->s.rflags & FLAG_TF)) &&
		    (c->s.gpr[R_RCX] & low_mask(i->addrsize)))
			return INSN_JUMP;
	}
	return INSN_NEXT;
}

int sys_ins(struct soft_cpu *c, const struct insn *i)
{
	return io_string(c, i, ins_once);
}

int sys_outs(struct soft_cpu *c, const struct insn *i)
{
	return io_string(c, i, outs_once);
}
