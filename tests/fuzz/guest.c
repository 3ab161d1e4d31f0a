/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A guest that does nothing sensible: random port, configuration space and
 * device memory accesses, and virtio queues with random contents. Built
 * freestanding for 32 bits, started by PVH. The seed is the command line.
 *
 * It does not reset or switch off the machine on purpose: those ports are left
 * out, so that a run is as long as the test wants. Each round it writes a byte to
 * the debug console, so the test sees that it is alive.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__asm__(".pushsection .note.Xen, \"a\", @note\n"
	".long 4, 4, 18\n"
	".asciz \"Xen\"\n"
	".long _start\n"
	".popsection\n"
	".globl _start\n"
	"_start:\n"
	"	movl $0x80000, %esp\n"
	"	pushl %ebx\n"
	"	call guest_main\n"
	"1:	cli\n"
	"	hlt\n"
	"	jmp 1b\n");

#define ARENA	   0x400000u /* 1 MiB of RAM that descriptors point into */
#define ARENA_SIZE 0x100000u
#define DEBUGCON   0xe9

static u64 state;
static u32 bars[64], nbars; /* what configuration space showed: memory windows and (odd) port windows */

static u32 rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (u32)(state >> 16);
}

static u32 pick(u32 n)
{
	return rnd() % n;
}

static void out(u16 port, u32 val, u32 size)
{
	if (size == 1)
		__asm__ volatile("outb %0, %1" : : "a"((u8)val), "Nd"(port));
	else if (size == 2)
		__asm__ volatile("outw %0, %1" : : "a"((u16)val), "Nd"(port));
	else
		__asm__ volatile("outl %0, %1" : : "a"(val), "Nd"(port));
}

static u32 in(u16 port, u32 size)
{
	u32 val = 0;

	if (size == 1)
		__asm__ volatile("inb %1, %b0" : "+a"(val) : "Nd"(port));
	else if (size == 2)
		__asm__ volatile("inw %1, %w0" : "+a"(val) : "Nd"(port));
	else
		__asm__ volatile("inl %1, %0" : "=a"(val) : "Nd"(port));
	return val;
}

static u32 config_read(u32 bdf, u32 off)
{
	out(0xcf8, 0x80000000u | bdf << 8 | (off & 0xfc), 4);
	return in(0xcfc, 4);
}

static void config_write(u32 bdf, u32 off, u32 val, u32 size)
{
	out(0xcf8, 0x80000000u | bdf << 8 | (off & 0xfc), 4);
	out((u16)(0xcfc + (off & 3)), val, size);
}

/* Values that break things more often than uniform ones do. */
static u32 value(void)
{
	static const u32 edge[] = {0,	   1,	   2,	       0x7f,	   0x80,       0xff,	   0x100,      0x7fff,
				   0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffff000, 0xfee00000, 0xa0000};

	switch (pick(4)) {
	case 0: return edge[pick(sizeof(edge) / sizeof(edge[0]))];
	case 1: return ARENA + pick(ARENA_SIZE);
	case 2: return pick(256);
	default: return rnd();
	}
}

/* Ports that end the machine, or the test's own. */
static int forbidden(u32 port, u32 size)
{
	static const u16 ports[] = {0x64, 0x92, 0xcf9, 0x505, 0xf4, DEBUGCON};

	for (u32 i = 0; i < sizeof(ports) / sizeof(ports[0]); i++)
		if (port <= ports[i] && port + size > ports[i])
			return 1;
	return port + size > 0x600 && port < 0x610; /* ACPI: sleep */
}

static void random_port(void)
{
	static const u16 base[] = {0x00,  0x20,	 0x40,	0x60,  0x70,  0x80,   0xa0,  0xc0,   0x1f0, 0x2e8,
				   0x2f8, 0x3e8, 0x3f8, 0x4d0, 0x510, 0xafe0, 0xcf8, 0xb000, 0x3b0, 0x700};
	u32 size = 1u << pick(3), port;

	switch (pick(4)) {
	case 0: port = pick(65536); break;
	case 1:
		port = nbars ? bars[pick(nbars)] : 1;
		port = port & 1 ? (port & 0xfffc) + pick(64) : pick(65536);
		break;
	default: port = base[pick(sizeof(base) / sizeof(base[0]))] + pick(16); break;
	}
	if (port + size > 65536 || forbidden(port, size))
		return;
	if (pick(2))
		in((u16)port, size);
	else
		out((u16)port, value(), size);
}

static void random_config(void)
{
	u32 bdf = pick(3) ? pick(8) << 3 : pick(65536), off = pick(256), size = 1u << pick(3);

	if (off % 4 + size > 4)
		return;
	/* Not the power management device's I/O base: its sleep register must stay where it is left out. */
	if ((bdf & 7) == 3 || (bdf >> 3 == 1 && (bdf & 7) == 0))
		return;
	if (pick(2))
		config_read(bdf, off);
	else
		config_write(bdf, off, value(), size);
}

/* Where devices are now; some of them may have been moved or switched off: switch them on again. */
static void find_bars(void)
{
	nbars = 0;
	for (u32 slot = 2; slot < 12; slot++) {
		if (config_read(slot << 3, 0) == 0xffffffff)
			continue;
		config_write(slot << 3, 4, pick(8) ? 7 : value(), 2);
		for (u32 bar = 0; bar < 6 && nbars < 60; bar++) {
			u32 v = config_read(slot << 3, 0x10 + 4 * bar);

			if (v > 3 && v != 0xffffffff)
				bars[nbars++] = v & 1 ? v : v & ~15u;
		}
	}
}

static void random_memory(void)
{
	static const u32 base[] = {0xfec00000, 0xfee00000, 0xfed00000, 0xa0000,
				   0xc0000,    0xf0000,	   0xffff0000, 0xc0000000};
	u32 addr = nbars && pick(3) ? bars[pick(nbars)] : base[pick(sizeof(base) / sizeof(base[0]))];

	if (addr & 1)
		return;
	addr += pick(2) ? pick(64) : pick(0x4000);
	if (addr > 0xffffff00 || (addr >= 0x100000 && addr < 0x3f0000)) /* beyond the segment; our own code */
		return;
	switch (pick(6)) {
	case 0: (void)*(volatile u8 *)addr; break;
	case 1: (void)*(volatile u16 *)addr; break;
	case 2: (void)*(volatile u32 *)addr; break;
	case 3: *(volatile u8 *)addr = (u8)value(); break;
	case 4: *(volatile u16 *)addr = (u16)value(); break;
	default: *(volatile u32 *)addr = value(); break;
	}
}

/* A virtio device's modern registers are in one of its memory windows: drive a queue with nonsense. */
static void random_virtqueue(void)
{
	u32 bar = nbars ? bars[pick(nbars)] : 1, desc = ARENA + (pick(256) << 12), n = pick(4) ? 64 : 1u << pick(9),
	    queues;
	volatile u32 *common = (volatile u32 *)bar;

	/* Common configuration at its start? 16 bits at 18 are the number of queues. */
	if (bar & 1 || bar < 0xc0000000u || bar > 0xffff0000u)
		return;
	queues = *(volatile u16 *)(bar + 18);
	if (queues == 0 || queues > 64)
		return;
	for (u32 i = 0; i < 64; i++) { /* descriptors: address, length, flags, next; mostly possible, some absurd */
		volatile u32 *d = (volatile u32 *)(desc + 16 * i);
		u32 buffer = ARENA + pick(ARENA_SIZE - 64);

		d[0] = pick(16) ? buffer : value();
		d[1] = pick(64) ? 0 : value();
		d[2] = pick(4) ? (pick(3) ? 16 : 512) : pick(16) ? pick(8192) : value();
		d[3] = (pick(8) ? pick(4) : pick(8)) | (pick(8) ? (i + 1) % 64 : pick(128)) << 16;
		if (!pick(64))
			d[3] = value();
		/* what a disk request begins with: type and sector */
		*(volatile u32 *)buffer = pick(8) ? pick(16) : value();
		*(volatile u32 *)(buffer + 8) = pick(8) ? pick(9000) : value();
		*(volatile u32 *)(buffer + 12) = 0;
	}
	for (u32 i = 0; i < 64; i++) /* the available ring */
		*(volatile u32 *)(desc + 0x2000 + 4 * i) = pick(64) | pick(64) << 16;
	*(volatile u16 *)(desc + 0x2002) = (u16)(pick(8) ? pick(n + 1) : pick(70));
	*((volatile u8 *)common + 20) = pick(4) ? 0 : (u8)value(); /* reset */
	*((volatile u8 *)common + 20) = 3;
	common[2] = pick(2); /* driver feature select */
	common[3] = pick(4) ? 0 : value();
	common[2] = 1;
	common[3] = 1; /* VERSION_1 */
	*((volatile u8 *)common + 20) = 11;
	*(volatile u16 *)(bar + 22) = (u16)pick(pick(8) ? queues : 70); /* queue select */
	*(volatile u16 *)(bar + 24) = (u16)n;
	common[8] = desc;
	common[9] = pick(16) ? 0 : value();
	common[10] = desc + 0x2000;
	common[11] = 0;
	common[12] = pick(8) ? desc + 0x3000 : value();
	common[13] = 0;
	*(volatile u16 *)(bar + 28) = 1;
	*((volatile u8 *)common + 20) = 15;
	for (u32 i = 0; i < 4; i++) {
		*(volatile u16 *)(desc + 0x2002) += (u16)pick(8);
		*(volatile u16 *)(bar + 0x3000 + 4 * pick(8)) = (u16)pick(4);
		*(volatile u16 *)(bar + 0x1000 * pick(4) + 4 * pick(8)) = (u16)pick(4);
	}
}

/* Commands on the IDE channels, mostly ones that exist, with a PRD table of every kind and the bus master on or off. */
static void random_ide(void)
{
	static const u8 opcode[] = {0x20, 0x24, 0x25, 0x29, 0x30, 0x34, 0x35, 0x39, 0xc4, 0xc5, 0xc8, 0xca, 0xec, 0xa1,
				    0xa0, 0xa0, 0xa0, 0xa0, 0xe7, 0xef, 0x06, 0xb0, 0x90, 0x08, 0xc6, 0x91, 0x2f};
	static const u8 packet[] = {0x00, 0x03, 0x12, 0x1b, 0x1e, 0x25, 0x28, 0x43, 0x46, 0x4a,
				    0x51, 0x55, 0x5a, 0xa8, 0xad, 0xbd, 0xbe, 0x42, 0x2b};
	u32 port = pick(2) ? 0x1f0 : 0x170, table = ARENA + (pick(16) << 16), n = pick(64), bm = 0;
	u8 cmd = pick(16) ? opcode[pick(sizeof(opcode))] : (u8)rnd();

	for (u32 i = 0; i < 6; i++)
		if (config_read(9, 0x20) & 1)
			bm = (config_read(9, 0x20) & 0xfff0) + (port == 0x170 ? 8 : 0);
	config_write(9, 4, 5, 2);
	for (u32 i = 0; i <= n; i++) {
		((volatile u32 *)table)[2 * i] = pick(8) ? ARENA + pick(ARENA_SIZE) : value();
		((volatile u32 *)table)[2 * i + 1] =
		    (pick(4) ? pick(4096) : value() & 0xffff) | (i == n && pick(8) ? 1u << 31 : 0);
	}
	if (bm && pick(4)) {
		out((u16)(bm + 4), pick(16) ? table : value(), 4);
		out((u16)bm, pick(2) ? 9 : 1, 1);
	}
	if (!pick(8))
		out((u16)(port + 0x206), pick(2) ? 4 : value(), 1), out((u16)(port + 0x206), pick(2) ? 2 : 0, 1);
	out((u16)(port + 6), 0x40 | (pick(2) << 4) | (pick(8) ? 0 : pick(256)), 1);
	for (u32 i = 1; i < 6; i++)
		for (u32 k = pick(3); k > 0; k--)
			out((u16)(port + i), pick(8) ? pick(4) : value(), 1);
	out((u16)(port + 7), cmd, 1);
	if (cmd == 0xa0) {
		out((u16)port, packet[pick(sizeof(packet))] | pick(4) << 8, 2);
		for (u32 i = 0; i < 5; i++)
			out((u16)port, pick(2) ? pick(16) : rnd(), 2);
	}
	for (u32 i = pick(600); i > 0; i--) {
		if (pick(2))
			in((u16)port, 1u << pick(3));
		else
			out((u16)port, rnd(), 1u << pick(3));
		if (!pick(64))
			in((u16)(port + 7), 1);
	}
	if (bm && pick(2))
		out((u16)bm, pick(2) ? 9 : 0, 1);
}

/* An AHCI port's lists with commands of every kind: the controller is a memory window that says version 1.3 at 10h. */
static void random_ahci(void)
{
	static const u8 opcode[] = {0x60, 0x61, 0x60, 0x61, 0x25, 0x35, 0xec, 0xea, 0x06, 0xa0, 0x2f, 0xb0, 0xef};
	u32 bar = nbars ? bars[pick(nbars)] : 1, list = ARENA + (pick(64) << 12), port;

	if (bar & 1 || bar < 0xc0000000u || bar > 0xffff0000u || *(volatile u32 *)(bar + 0x10) != 0x10300)
		return;
	port = bar + 0x100 + 0x80 * pick(3);
	for (u32 slot = 0; slot < 32; slot++) {
		volatile u32 *h = (volatile u32 *)(list + 32 * slot);
		u32 table = ARENA + 0x40000 + (pick(256) << 10);
		volatile u8 *fis = (volatile u8 *)table;

		h[0] = 5 | (pick(16) ? pick(8) : value()) << 16;
		h[2] = pick(16) ? table : value();
		h[3] = 0;
		for (u32 i = 0; i < 20; i++)
			fis[i] = pick(4) ? 0 : (u8)(pick(4) ? pick(8) : rnd());
		fis[0] = 0x27;
		fis[1] = pick(16) ? 0x80 : 0;
		fis[2] = opcode[pick(sizeof(opcode))];
		fis[3] = (u8)pick(8);
		fis[12] = (u8)(pick(8) ? slot << 3 : rnd());
		fis[6] = fis[8] = fis[9] = fis[10] = 0;
		for (u32 i = 0; i < 8; i++) {
			volatile u32 *prd = (volatile u32 *)(table + 0x80 + 16 * i);

			prd[0] = pick(16) ? ARENA + pick(ARENA_SIZE) : value();
			prd[1] = 0;
			prd[3] = pick(4) ? 511 : pick(8192);
		}
	}
	if (!pick(4)) {
		*(volatile u32 *)(port + 0x18) = pick(2) ? 0x10 : value();
		*(volatile u32 *)(port + 0x2c) = pick(2);
		*(volatile u32 *)(port + 0x2c) = 0;
	}
	if (pick(4)) /* after an error only this lets it go on */
		*(volatile u32 *)(port + 0x18) = 0;
	*(volatile u32 *)port = pick(16) ? list : value();
	*(volatile u32 *)(port + 4) = 0;
	*(volatile u32 *)(port + 8) = pick(16) ? ARENA + (pick(256) << 12) : value();
	*(volatile u32 *)(port + 12) = 0;
	*(volatile u32 *)(port + 0x14) = rnd();
	*(volatile u32 *)(port + 0x18) = 0x11;
	*(volatile u32 *)(port + 0x34) = pick(2) ? 0xffffffff : rnd();
	*(volatile u32 *)(port + 0x38) = pick(2) ? 0xffffffff : rnd();
	*(volatile u32 *)(port + 0x10) = 0xffffffff;
	*(volatile u32 *)(bar + 8) = 0xffffffff;
}

/* An NVMe controller (version 1.4 at 8) with queues of nonsense. */
static void random_nvme(void)
{
	u32 bar = nbars ? bars[pick(nbars)] : 1, asq = ARENA + (pick(64) << 12),
	    acq = ARENA + 0x80000 + (pick(64) << 12);
	u32 q = pick(2);

	if (bar & 1 || bar < 0xc0000000u || bar > 0xffff0000u || *(volatile u32 *)(bar + 8) != 0x10400)
		return;
	if (pick(4)) {
		*(volatile u32 *)(bar + 0x14) = 0;
		*(volatile u32 *)(bar + 0x24) = pick(8) ? 0x003f003f : value();
		*(volatile u32 *)(bar + 0x28) = pick(16) ? asq : value();
		*(volatile u32 *)(bar + 0x2c) = 0;
		*(volatile u32 *)(bar + 0x30) = pick(16) ? acq : value();
		*(volatile u32 *)(bar + 0x34) = 0;
		*(volatile u32 *)(bar + 0x14) = pick(16) ? 0x00460001 : value();
	}
	for (u32 i = 0; i < 64; i++) { /* both queues read the same entries: some are admin commands, some not */
		static const u8 opcode[] = {0, 1, 2, 4, 5, 6, 8, 9, 0x0a, 0x0c, 0, 1, 2, 8, 9, 2, 1};
		volatile u32 *e = (volatile u32 *)(asq + 64 * i);

		e[0] = opcode[pick(sizeof(opcode))] | i << 16;
		e[1] = pick(8) ? 1 : value();
		e[6] = pick(16) ? ARENA + (pick(256) << 12) : value();
		e[8] = pick(16) ? ARENA + (pick(256) << 12) + (pick(2) ? 4088 : 0) : value();
		e[7] = e[9] = 0;
		e[10] = pick(2) ? pick(8) | pick(64) << 16 : pick(4) ? pick(9000) : value();
		e[11] = pick(2) ? 1 | pick(4) << 16 : pick(8) ? pick(8) : value();
		e[12] = pick(4) ? pick(16) : value();
	}
	for (u32 i = 0; i < 4; i++, q = pick(4)) {
		*(volatile u32 *)(bar + 0x1000 + 8 * q) = pick(8) ? pick(64) : value();
		*(volatile u32 *)(bar + 0x1004 + 8 * q) = pick(8) ? pick(64) : value();
	}
}

void guest_main(const u32 *start_info)
{
	const u8 *text = (const u8 *)start_info[6]; /* hvm_start_info.cmdline_paddr */

	state = 0x9e3779b97f4a7c15ull;
	while (text && *text)
		state = state * 31 + *text++;
	for (u32 round = 0;; round++) {
		if (round % 16 == 0)
			find_bars();
		for (u32 i = 0; i < 100; i++)
			switch (pick(9)) {
			case 8:
				if (!pick(20))
					random_ide();
				else if (!pick(10))
					random_ahci();
				else if (!pick(10))
					random_nvme();
				break;
			case 0: random_config(); break;
			case 1:
			case 2: random_port(); break;
			case 3: random_virtqueue(); break;
			default: random_memory(); break;
			}
		out(DEBUGCON, '.', 1);
	}
}
