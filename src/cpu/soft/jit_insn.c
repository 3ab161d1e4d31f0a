/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions whose operands are not in their ModRM, VEX or opcode fields: the
 * stack's, and those of rax and rdx; and the table of all kinds.
 */
#include "cpu/soft/jit_insn.h"

#include "cpu/soft/stub.h"

#define GS_OFF(field) offsetof(struct soft_cpu, field)

/* ---- address and stack ---------------------------------------------------- */

void x_lower_lea(struct xlat *x, struct xinsn *in)
{
	unsigned size;
	bool high;
	unsigned g = (unsigned)x_gpr(in->op[0].reg.value, &size, &high);
	int h = home_of(g);

	x_prepare_mem(x, in, NULL);
	if (size >= 4 && h != H_NONE) {
		x_address(x, in, &in->op[1].mem, h);
		return;
	}
	x_address(x, in, &in->op[1].mem, H_RCX);
	if (size == 2) {
		if (h == H_NONE) {
			e_load(&x->e, H_RAX, slot_of(g));
			h = H_RAX;
		}
		e1(&x->e, 0x66);
		e_op_reg(&x->e, 0, 0x8b, h, H_RCX);
		if (h == H_RAX)
			e_store(&x->e, slot_of(g), H_RAX);
		return;
	}
	e_store(&x->e, slot_of(g), H_RCX);
}

void x_rsp_add(struct xlat *x, int32_t n)
{
	int h = home_of(R_RSP);
	struct hmem m = h_base(h, n);

	e_op_mem(&x->e, !x->w32, 0x8d, h, &m);
}

/* Push the value in `src` (H_NONE: the sign-extended immediate). */
void x_push_value(struct xlat *x, struct xinsn *in, int src, int32_t imm)
{
	int width = x->w32 ? 4 : 8;
	struct hmem m;

	if (!x_group_member(x, in))
		x_flags_clobber(x, in->live_in);
	m = x_lookup_stack(x, in, R_RSP, -width, (unsigned)width, MMU_WRITE);
	if (x_flags_breaking(x, in)) /* no scratch: the recipe is in place, or the slot has them */
		x_flags_to_host(x, x_flags_breaking(x, in));
	if (src == H_NONE) {
		e_op_mem(&x->e, !x->w32, 0xc7, 0, &m);
		e4(&x->e, (uint32_t)imm);
	} else if (src == H_RCX) { /* was kept in SLOT_TMP2 */
		if (x->w32) {	   /* rcx is part of the address */
			e_lea(&x->e, H_RAX, m);
			m = h_base(H_RAX, 0);
		}
		e_load(&x->e, H_RCX, h_slot(SLOT_TMP2));
		e_op_mem(&x->e, !x->w32, 0x89, H_RCX, &m);
	} else {
		e_op_mem(&x->e, !x->w32, 0x89, src, &m);
	}
	x_rsp_add(x, -width);
	/* CALL has its exit still to come, and flags made again from the old RSP would be wrong there. */
	if (x->recipe.regs & in->gpr_written)
		x->recipe.kind = RECIPE_NONE;
}

void x_load_operand_rcx(struct xlat *x, struct xinsn *in, unsigned n)
{
	struct hmem m;

	if (in->op[n].type == ZYDIS_OPERAND_TYPE_MEMORY) {
		x_flags_clobber(x, in->live_in);
		m = x_lookup(x, in, &in->op[n].mem, x->w32 ? 4 : 8, MMU_READ);
		e_op_mem(&x->e, !x->w32, 0x8b, H_RCX, &m);
	} else {
		unsigned size;
		bool high;
		unsigned g = (unsigned)x_gpr(in->op[n].reg.value, &size, &high);

		e_mov(&x->e, H_RCX, x_reg_get(x, g, H_RCX));
	}
}

void x_lower_push(struct xlat *x, struct xinsn *in)
{
	unsigned size;
	bool high;
	int h = H_NONE;

	if (in->op[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		x_push_value(x, in, H_NONE, (int32_t)in->op[0].imm.value.s);
		return;
	}
	if (in->op[0].type == ZYDIS_OPERAND_TYPE_REGISTER)
		h = home_of((unsigned)x_gpr(in->op[0].reg.value, &size, &high));
	if (h == H_NONE) {
		x_load_operand_rcx(x, in, 0);
		e_store(&x->e, h_slot(SLOT_TMP2), H_RCX);
		h = H_RCX;
	}
	x_push_value(x, in, h, 0);
}

void x_lower_pop(struct xlat *x, struct xinsn *in)
{
	unsigned size;
	bool high;
	unsigned g = (unsigned)x_gpr(in->op[0].reg.value, &size, &high), breaking;
	struct hmem m;
	int h = home_of(g);

	if (!x_group_member(x, in))
		x_flags_clobber(x, in->live_in);
	m = x_lookup_stack(x, in, R_RSP, 0, x->w32 ? 4 : 8, MMU_READ);
	breaking = x_flags_breaking(x, in);
	if (breaking)
		x_flags_to_host(x, breaking);
	if (h == H_NONE) {
		e_op_mem(&x->e, !x->w32, 0x8b, H_RCX, &m);
		e_store(&x->e, slot_of(g), H_RCX);
	} else {
		e_op_mem(&x->e, !x->w32, 0x8b, h, &m);
	}
	if (g != R_RSP)
		x_rsp_add(x, x->w32 ? 4 : 8);
}

void x_lower_leave(struct xlat *x, struct xinsn *in)
{
	int bp = home_of(R_RBP);
	struct hmem m, after = h_base(bp, x->w32 ? 4 : 8);
	unsigned breaking;

	if (!x_group_member(x, in))
		x_flags_clobber(x, in->live_in);
	m = x_lookup_stack(x, in, R_RBP, 0, x->w32 ? 4 : 8, MMU_READ);
	breaking = x_flags_breaking(x, in);
	if (breaking)
		x_flags_to_host(x, breaking);
	e_op_mem(&x->e, !x->w32, 0x8d, home_of(R_RSP), &after);
	e_op_mem(&x->e, !x->w32, 0x8b, bp, &m);
}

/* ---- rax, rdx and the like ------------------------------------------------ */

/* r/m operand for MUL, DIV, CMPXCHG: host register, or *m is set to what rax does not carry. */
static bool rm_operand(struct xlat *x, struct xinsn *in, struct role *role, struct hmem *m)
{
	bool mem = x_prepare_mem(x, in, m);

	x_roles_collect(in, role);
	if (mem) {
		e_lea(&x->e, H_RCX, *m);
		*m = h_base(H_RCX, 0);
	} else if (role[ROLE_RM].host == H_NONE) {
		*m = slot_of(role[ROLE_RM].guest);
		if (role[ROLE_RM].wr) /* a 32-bit result must clear the upper half: keep to registers */
			x->failed = true;
		return true;
	}
	return mem;
}

void x_lower_mul(struct xlat *x, struct xinsn *in)
{
	struct role role[ROLE_COUNT];
	struct hmem m;
	bool mem = rm_operand(x, in, role, &m);

	e_mov(&x->e, H_RAX, home_of(R_RAX));
	x_emit_guest(x, in, role, mem ? &m : NULL);
	e_mov(&x->e, home_of(R_RAX), H_RAX);
}

/* Divide errors must not happen on the host: quotients that may not fit are the interpreter's. */
void x_lower_div(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct role role[ROLE_COUNT];
	struct hmem m;
	unsigned size = in->op[0].size / 8u;
	bool mem, is_signed = in->zi.mnemonic == ZYDIS_MNEMONIC_IDIV;
	uint8_t *bad, *bad2 = NULL;

	if (in->live_in) {
		/* Undefined afterwards, so nobody needs them; but a side exit does. */
		x_flags_to_slot(x, in->live_in);
	}
	x->host = 0;
	mem = rm_operand(x, in, role, &m);
	if (!mem)
		e_mov(e, H_RCX, role[ROLE_RM].host);
	else
		e_op_mem(e, size == 8, 0x8b, H_RCX, &m);
	if (!is_signed) {
		/* rdx < divisor: fits, and the divisor is not 0 */
		e_op_reg(e, size == 8, 0x3b, H_RDX, H_RCX);
		bad = e_jcc(e, CC_AE);
	} else {
		e_op_reg(e, size == 8, 0x8b, H_RAX, home_of(R_RAX));
		e_op_reg(e, size == 8, 0xc1, 7, H_RAX); /* sar rax, 31 or 63 */
		e1(e, size * 8 - 1);
		e_op_reg(e, size == 8, 0x3b, H_RAX, H_RDX);
		bad = e_jcc(e, CC_NE);
		e_op_mem(e, size == 8, 0x8d, H_RAX, &(struct hmem){.base = H_RCX, .index = H_NONE, .disp = 1});
		e_alu_imm(e, size == 8, 7, H_RAX, 1); /* divisor 0 or -1 */
		bad2 = e_jcc(e, CC_BE);
	}
	/* PUSHF shows what the host makes of them, which on some CPUs is nothing. */
	if (in->live_out && x->slot == F_ALL)
		x_flags_to_host(x, F_ALL);
	e_mov(e, H_RAX, home_of(R_RAX));
	e_op_reg(e, size == 8, 0xf7, is_signed ? 7 : 6, H_RCX);
	e_mov(e, home_of(R_RAX), H_RAX);
	x_swap(x);
	e_patch(bad, x->e.p);
	if (bad2)
		e_patch(bad2, x->e.p);
	x_side_exit(x, in->off, x->j->leave[REASON_INTERP]);
	x_swap(x);
}

void x_lower_cmpxchg(struct xlat *x, struct xinsn *in)
{
	struct role role[ROLE_COUNT];
	struct scratch s = {.busy = 1u << H_RSP | 1u << H_RAX, .borrowed = H_NONE};
	struct hmem m;
	bool mem = x_prepare_mem(x, in, &m);

	if (mem) {
		e_lea(&x->e, H_RCX, m);
		m = h_base(H_RCX, 0);
		s.busy |= 1u << H_RCX;
	}
	x_roles_collect(in, role);
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (!role[i].used)
			continue;
		if (role[i].high)
			x->failed = true;
		role[i].rd = true;
		if (role[i].host != H_NONE)
			s.busy |= 1u << role[i].host;
		if (role[i].guest == R_RAX) { /* its copy in rax is what the instruction sees and writes */
			if (role[i].wr)
				x->failed = true;
			role[i].host = H_RAX;
		}
	}
	x_roles_place(x, role, &s);
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	x_emit_guest(x, in, role, mem ? &m : NULL);
	e_mov(&x->e, home_of(R_RAX), H_RAX);
	x_roles_finish(x, role, &s);
}

void x_lower_cmpxchg16b(struct xlat *x, struct xinsn *in)
{
	static const struct role none[ROLE_COUNT];
	struct emit *e = &x->e;
	struct hmem m;

	x_prepare_mem(x, in, &m);
	/* rsi lends itself as the pointer: rax, rcx, rdx and rbx are operands. */
	e_lea(e, H_RAX, m);
	e_store(e, h_slot(SLOT_TMP), H_RSI);
	e_mov(e, H_RSI, H_RAX);
	m = h_base(H_RSI, 0);
	e_mov(e, H_RAX, home_of(R_RAX));
	e_mov(e, H_RCX, home_of(R_RCX));
	x_emit_guest(x, in, none, &m);
	e_mov(e, home_of(R_RAX), H_RAX);
	e_load(e, H_RSI, h_slot(SLOT_TMP));
}

/* BT, BTS, BTR, BTC m, r: the bit index reaches beyond the operand. */
void x_lower_bt_mem(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	unsigned size, g;
	bool high;
	uint8_t *miss;
	const uint8_t *resume;
	struct hmem lin = h_slot(SLOT_LIN), ea = h_slot(SLOT_TMP2), ptr = h_base(H_RCX, 0);
	int idx;
	enum mmu_access a = in->mem_write ? MMU_WRITE : MMU_READ;
	const ZydisDecodedOperandMem *mm = &in->op[0].mem;
	size_t seg = 0;

	g = (unsigned)x_gpr(in->op[1].reg.value, &size, &high);
	x_flags_clobber(x, in->live_in);
	if (mm->segment == ZYDIS_REGISTER_FS || mm->segment == ZYDIS_REGISTER_GS)
		seg = offsetof(struct soft_cpu, s.seg) +
		      (mm->segment == ZYDIS_REGISTER_FS ? S_FS : S_GS) * sizeof(struct cpu_segment) +
		      offsetof(struct cpu_segment, base);
	x_address(x, in, mm, H_RCX);
	if (seg) {
		struct hmem h = h_gs(seg);

		e_op_mem(e, 1, 0x03, H_RCX, &h);
	}
	e_store(e, ea, H_RCX);
	if (size == 4)
		e_op_reg(e, 1, 0x63, H_RAX, x_reg_get(x, g, H_RAX)); /* movsxd */
	else
		e_mov(e, H_RAX, x_reg_get(x, g, H_RAX));
	e_op_reg(e, 1, 0xc1, 7, H_RAX); /* sar rax, 5 or 6 */
	e1(e, size == 8 ? 6 : 5);
	e_lea(e, H_RCX, (struct hmem){.base = H_RCX, .index = H_RAX, .scale = size == 8 ? 3 : 2});
	e_store(e, lin, H_RCX);
	/* as x_lookup, with the address in SLOT_LIN */
	miss = NULL;
	{
		size_t tlb = offsetof(struct soft_cpu, tlb) +
			     (x->mmu_index * MMU_ACCESSES + (unsigned)a) * TLB_SIZE * sizeof(struct tlb_entry);
		struct hmem tag = h_gs(tlb), addend = h_gs(tlb + offsetof(struct tlb_entry, addend));

		tag.base = addend.base = H_RAX;
		e_rorx(e, 0, H_RAX, H_RCX, PAGE_SHIFT - 4);
		e1(e, 0x25);
		e4(e, (TLB_SIZE - 1) << 4);
		e_op_mem(e, 1, 0x33, H_RCX, &tag);
		e_alu_imm(e, 1, 7, H_RCX, (int32_t)(PAGE_SIZE - size));
		miss = e_jcc(e, CC_A);
		e_load(e, H_RAX, addend);
	}
	resume = e->p;
	x_swap(x);
	e_patch(miss, x->e.p);
	e_load(&x->e, H_RCX, lin);
	e_mov_imm32(&x->e, H_RAX, size);
	e_call_to(&x->e, a == MMU_WRITE ? x->j->slow_write : x->j->slow_read);
	e_jmp_to(&x->e, resume);
	x_flags_cold(x, in->live_in, x->slot, &x->recipe);
	x_side_exit(x, in->off, x->j->leave_keep);
	x_swap(x);
	/* The host's instruction adds the index again: it gets the base's address and the whole index. */
	e_op_mem(e, 1, 0x03, H_RAX, &ea);
	e_mov(e, H_RCX, H_RAX);
	if (in->live_out & ~in->f_written)
		x_flags_to_host(x, in->live_in);
	idx = x_reg_get(x, g, H_RAX);
	for (unsigned i = 0; i < in->zi.raw.prefix_count; i++) {
		if (in->zi.raw.prefixes[i].value == 0xf0)
			e1(e, 0xf0);
	}
	e_op_mem(e, size == 8, 0x0f00u | in->zi.opcode, idx, &ptr);
}

void x_lower_cbw(struct xlat *x, struct xinsn *in)
{
	int a = home_of(R_RAX);

	x_prepare_mem(x, in, NULL);
	switch (in->zi.mnemonic) {
	case ZYDIS_MNEMONIC_CBW:
		e1(&x->e, 0x66);
		e_op_reg(&x->e, 0, 0x0fbe, a, a);
		break;
	case ZYDIS_MNEMONIC_CWDE: e_op_reg(&x->e, 0, 0x0fbf, a, a); break;
	default: e_op_reg(&x->e, 1, 0x63, a, a); break;
	}
}

void x_lower_cwd(struct xlat *x, struct xinsn *in)
{
	x_prepare_mem(x, in, NULL);
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_CWD)
		e1(&x->e, 0x66);
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_CQO)
		e1(&x->e, 0x48);
	e1(&x->e, 0x99);
}

void x_lower_lahf(struct xlat *x, struct xinsn *in)
{
	int a = home_of(R_RAX);

	x_flags_to_host(x, in->live_in);
	e1(&x->e, 0x9f);
	e_op_reg(&x->e, 0, 0x0fb6, H_RAX, 4); /* movzx eax, ah */
	e_rorx(&x->e, 1, a, a, 8);
	e_op_reg(&x->e, 0, 0x8a, a, H_RAX);
	e_rorx(&x->e, 1, a, a, 56);
}

void x_lower_sahf(struct xlat *x, struct xinsn *in)
{
	if (in->live_out & ~in->f_written)
		x_flags_to_host(x, in->live_in);
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	e1(&x->e, 0x9e);
}

/* DF is kept in memory, and string instructions with it set are the interpreter's. */
void x_lower_cld(struct xlat *x, struct xinsn *in)
{
	struct hmem f = h_gs(offsetof(struct soft_cpu, s.rflags));

	x_flags_clobber(x, in->live_in);
	e_op_mem(&x->e, 0, 0x81, 4, &f);
	e4(&x->e, (uint32_t)~FLAG_DF);
}

/* PCMPxSTRx: lengths in rax and rdx, index to rcx. */
void x_lower_pcmpstr(struct xlat *x, struct xinsn *in)
{
	static const struct role none[ROLE_COUNT];
	struct hmem m;
	bool mem = x_prepare_mem(x, in, &m);

	if (mem) {
		e_lea(&x->e, H_RCX, m);
		m = h_base(H_RCX, 0);
	}
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	x_emit_guest(x, in, none, mem ? &m : NULL);
	if (in->gpr_written & 1u << R_RCX)
		e_mov(&x->e, home_of(R_RCX), H_RCX);
}

void x_lower_fnstsw_ax(struct xlat *x, struct xinsn *in)
{
	x_prepare_mem(x, in, NULL);
	e1(&x->e, 0xdf);
	e1(&x->e, 0xe0);
	e1(&x->e, 0x66);
	e_op_reg(&x->e, 0, 0x8b, home_of(R_RAX), H_RAX);
}

void x_lower_raw(struct xlat *x, struct xinsn *in)
{
	x_prepare_mem(x, in, NULL);
	for (unsigned i = 0; i < in->zi.length; i++)
		e1(&x->e, in->bytes[i]);
}

void x_lower_nop(struct xlat *x, struct xinsn *in)
{
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_PAUSE) {
		e1(&x->e, 0xf3);
		e1(&x->e, 0x90);
	}
}

/* ---- all kinds ------------------------------------------------------------ */

static bool is_x87(const ZydisDecodedInstruction *zi)
{
	return zi->meta.isa_ext == ZYDIS_ISA_EXT_X87 || zi->meta.isa_set == ZYDIS_ISA_SET_X87 ||
	       zi->meta.isa_set == ZYDIS_ISA_SET_FCMOV || zi->meta.isa_set == ZYDIS_ISA_SET_SSE3X87 ||
	       zi->mnemonic == ZYDIS_MNEMONIC_FISTTP /* of SSE3, says Zydis */;
}

/* mov word gs:[off], imm */
static void store_word(struct xlat *x, size_t off, unsigned imm)
{
	struct hmem m = h_gs(off);

	e1(&x->e, 0x66);
	e_op_mem(&x->e, 0, 0xc7, 0, &m);
	e1(&x->e, imm & 0xff);
	e1(&x->e, imm >> 8);
}

static void copy_selector(struct xlat *x, size_t to, unsigned seg)
{
	struct hmem m = h_gs(to),
		    sel = h_gs(GS_OFF(s.seg) + seg * sizeof(struct cpu_segment) + offsetof(struct cpu_segment, sel));

	e_op_mem(&x->e, 0, 0x0fb7, H_RAX, &sel);
	e1(&x->e, 0x66);
	e_op_mem(&x->e, 0, 0x89, H_RAX, &m);
}

/*
 * Pointers and opcode of the last x87 instruction: the host's are those of translated code, so the guest's are
 * kept in the memory image, from where jit_vec_unload takes them. No flags are touched.
 */
static void x87_pointers(struct xlat *x, const struct xinsn *in)
{
	struct emit *e = &x->e;
	size_t image = GS_OFF(s.xsave);

	if (in->zi.mnemonic == ZYDIS_MNEMONIC_FNINIT) {
		e_mov_imm32(e, H_RAX, 0);
		e_store(e, h_gs(image + FX_FIP), H_RAX);
		e_store(e, h_gs(image + FX_FDP), H_RAX);
		store_word(x, image + FX_FOP, 0);
		store_word(x, GS_OFF(x87_cs), 0);
		store_word(x, GS_OFF(x87_ds), 0);
		return;
	}
	if (x87_is_control(in->zi.mnemonic))
		return;
	e_load(e, H_RAX, h_slot(SLOT_PAGE));
	e_lea(e, H_RAX, h_base(H_RAX, in->off));
	e_store(e, h_gs(image + FX_FIP), H_RAX);
	store_word(x, image + FX_FOP, x87_opcode(in->bytes, in->zi.length));
	copy_selector(x, GS_OFF(x87_cs), S_CS);
	if (in->mem < 0)
		return;
	x_address(x, in, &in->op[in->mem].mem, H_RCX);
	e_store(e, h_gs(image + FX_FDP), H_RCX);
	copy_selector(x, GS_OFF(x87_ds), (unsigned)(in->op[in->mem].mem.segment - ZYDIS_REGISTER_ES));
}

static void (*const lower[])(struct xlat *x, struct xinsn *in) = {
    [K_GENERIC] = x_lower_generic,   [K_ACC_IMM] = x_lower_acc_imm,
    [K_XCHG_ACC] = x_lower_xchg_acc, [K_MOFFS] = x_lower_moffs,
    [K_NOP] = x_lower_nop,	     [K_RAW] = x_lower_raw,
    [K_LEA] = x_lower_lea,	     [K_PUSH] = x_lower_push,
    [K_POP] = x_lower_pop,	     [K_LEAVE] = x_lower_leave,
    [K_MUL] = x_lower_mul,	     [K_DIV] = x_lower_div,
    [K_CMPXCHG] = x_lower_cmpxchg,   [K_CMPXCHG16B] = x_lower_cmpxchg16b,
    [K_BT_MEM] = x_lower_bt_mem,     [K_CBW] = x_lower_cbw,
    [K_CWD] = x_lower_cwd,	     [K_LAHF] = x_lower_lahf,
    [K_SAHF] = x_lower_sahf,	     [K_CLD] = x_lower_cld,
    [K_PCMPSTR] = x_lower_pcmpstr,   [K_FNSTSW_AX] = x_lower_fnstsw_ax,
    [K_CLI] = x_lower_cli,	     [K_STI] = x_lower_sti,
    [K_PUSHF] = x_lower_pushf,	     [K_SWAPGS] = x_lower_swapgs,
    [K_RDTSC] = x_lower_rdtsc,	     [K_STAC] = x_lower_stac,
    [K_JCC] = x_lower_jcc,	     [K_JRCXZ] = x_lower_jrcxz,
    [K_LOOP] = x_lower_jrcxz,	     [K_JMP_IND] = x_lower_jmp_ind,
    [K_CALL] = x_lower_call,	     [K_CALL_IND] = x_lower_call_ind,
    [K_RET] = x_lower_ret,
};

/* Lowered by functions that say (x->rax_group) when they use rax. */
static bool keeps_rax(const struct xinsn *in)
{
	return in->kind == K_GENERIC || in->kind == K_ACC_IMM || in->kind == K_NOP || in->kind == K_JCC;
}

void x_lower(struct xlat *x, struct xinsn *in)
{
	if (in->vec)
		x_need_vec(x, in);
	if (unlikely(x->j->spoil && x->j->spoil == in->zi.mnemonic))
		return;
	if (in->kind == K_JMP)
		x_exit_direct(x, in->target, in->live_out);
	else
		lower[in->kind](x, in);
	if (in->vec && is_x87(&in->zi)) {
		x87_pointers(x, in);
		x->rax_group = -1;
	}
	if (!keeps_rax(in))
		x->rax_group = -1;
	x_flags_after(x, in);
}
