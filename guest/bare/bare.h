/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bare-metal test guests: 32-bit code started by multiboot, flat segments, no
 * paging, interrupts off. A test fills a `struct ctx` with a register state of
 * any mode and privilege, run() enters it by IRET, and the next exception,
 * interrupt or INT brings it back with the state then. Results go to the first
 * serial port, the end to isa-debug-exit (status 1: all passed, 3: not).
 */
#ifndef BARE_H
#define BARE_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define KIB	      1024u
#define MIB	      (1024u * 1024u)

/* ---- instructions ---- */

static inline u8 inb(u16 port)
{
	u8 v;
	__asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
	return v;
}
static inline u16 inw(u16 port)
{
	u16 v;
	__asm__ volatile("inw %1, %0" : "=a"(v) : "Nd"(port));
	return v;
}
static inline u32 inl(u16 port)
{
	u32 v;
	__asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(port));
	return v;
}
static inline void outb(u16 port, u8 v)
{
	__asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port) : "memory");
}
static inline void outw(u16 port, u16 v)
{
	__asm__ volatile("outw %0, %1" : : "a"(v), "Nd"(port) : "memory");
}
static inline void outl(u16 port, u32 v)
{
	__asm__ volatile("outl %0, %1" : : "a"(v), "Nd"(port) : "memory");
}
#define READ_REG(reg)                                                                                                  \
	({                                                                                                             \
		u32 v_;                                                                                                \
		__asm__ volatile("mov %%" #reg ", %0" : "=r"(v_));                                                     \
		v_;                                                                                                    \
	})
#define WRITE_REG(reg, val) __asm__ volatile("mov %0, %%" #reg : : "r"((u32)(val)) : "memory")
static inline u64 rdmsr(u32 msr)
{
	u32 lo, hi;
	__asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr));
	return (u64)hi << 32 | lo;
}
static inline void wrmsr(u32 msr, u64 v)
{
	__asm__ volatile("wrmsr" : : "c"(msr), "a"((u32)v), "d"((u32)(v >> 32)) : "memory");
}
static inline void cpuid(u32 leaf, u32 r[4])
{
	__asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(0));
}
static inline u64 rdtsc(void)
{
	u32 lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (u64)hi << 32 | lo;
}
static inline void pause(void)
{
	__asm__ volatile("pause" : : : "memory");
}

/* ---- descriptors ---- */

enum {
	SEL_CODE = 0x08,
	SEL_DATA = 0x10,
	SEL_UCODE = 0x1b,
	SEL_UDATA = 0x23,
	SEL_TSS = 0x28,
	SEL_FREE = 0x30 /* the tests' own from here on */
};
#define GDT_ENTRIES 64
extern u64 gdt[GDT_ENTRIES], idt[256];
/* Access byte: present, DPL, type with S. */
enum {
	A_P = 0x80,
	A_DPL3 = 0x60,
	A_CODE = 0x1b,	  /* execute, read, accessed */
	A_CODE_XO = 0x19, /* execute only */
	A_CONFORM = 0x1f,
	A_DATA = 0x13, /* read, write, accessed */
	A_DATA_RO = 0x11,
	A_DOWN = 0x17, /* expand-down, writable */
	A_TSS16 = 0x01,
	A_LDT = 0x02,
	A_TSS16_BUSY = 0x03,
	A_CALL16 = 0x04,
	A_TASK = 0x05,
	A_INT16 = 0x06,
	A_TRAP16 = 0x07,
	A_TSS = 0x09,
	A_TSS_BUSY = 0x0b,
	A_CALL = 0x0c,
	A_INT = 0x0e,
	A_TRAP = 0x0f
};
enum { F_32 = 4, F_G = 8 };
u64 make_desc(u32 base, u32 limit, u8 access, u8 flags);
u64 make_gate(u16 sel, u32 offset, u8 access, u8 count);
static inline u8 desc_access(u64 d)
{
	return (u8)(d >> 40);
}

struct tss {
	u32 link, esp0, ss0, esp1, ss1, esp2, ss2, cr3, eip, eflags;
	u32 eax, ecx, edx, ebx, esp, ebp, esi, edi;
	u32 es, cs, ss, ds, fs, gs, ldt;
	u16 trap, iomap;
};
struct tss16 {
	u16 link, sp0, ss0, sp1, ss1, sp2, ss2, ip, flags;
	u16 ax, cx, dx, bx, sp, bp, si, di;
	u16 es, cs, ss, ds, ldt;
};
/* The task everything runs in, and room for its I/O permission bitmap. */
extern struct tss_and_map {
	struct tss tss;
	u8 iomap[8192 + 1];
} main_task;
#define main_tss       main_task.tss
#define main_tss_iomap main_task.iomap

/* ---- entering a state ---- */

#define EFL_TF	 0x100u
#define EFL_IF	 0x200u
#define EFL_OF	 0x800u
#define EFL_IOPL 0x3000u
#define EFL_NT	 0x4000u
#define EFL_RF	 0x10000u
#define EFL_VM	 0x20000u
#define EFL_AC	 0x40000u

struct ctx {
	u32 gs, fs, es, ds;
	u32 edi, esi, ebp, unused, ebx, edx, ecx, eax;
	u32 vector, error; /* how it came back; error is 0 when the exception has none */
	u32 eip, cs, eflags, esp, ss;
	u32 vm_es, vm_ds, vm_fs, vm_gs;
};
/* A state of ring 0 or 3 at code, flat, with its own stack. */
void ctx_init(struct ctx *c, unsigned ring, const void *code);
/* Virtual-8086 or not by EFL_VM. Returns the vector. */
u32 run(struct ctx *c);
/* Interrupts that are to be handled instead of ending run(). NULL: none. */
typedef void handler_fn(struct ctx *c);
void set_handler(u8 vector, handler_fn *fn);
/* Code as text of the assembler; NAME is its first byte. It ends in INT 0x30 to come back. */
#define CODE(name, text)                                                                                               \
	extern const char name[], name##_end[];                                                                        \
	__asm__(".pushsection .text\n" #name ": " text "\n int $0x30\n" #name "_end:\n.popsection\n")
#define CODE16(name, text)                                                                                             \
	extern const char name[], name##_end[];                                                                        \
	__asm__(".pushsection .text\n.code16\n" #name ": " text "\n int $0x30\n" #name "_end:\n.code32\n."             \
		"popsection\n")
enum {
	V_DE,
	V_DB,
	V_NMI,
	V_BP,
	V_OF,
	V_BR,
	V_UD,
	V_NM,
	V_DF,
	V_TS = 10,
	V_NP,
	V_SS,
	V_GP,
	V_PF,
	V_MF = 16,
	V_AC,
	V_XM = 19,
	V_BACK = 0x30
};

/* ---- reporting ---- */

void print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern unsigned failures;
extern const char *test_name;
/* One line per failure; the test goes on. */
void check_failed(const char *file, int line, const char *what, u32 got, u32 want);
#define CHECK_EQ(got, want)                                                                                            \
	do {                                                                                                           \
		u32 g_ = (u32)(got), w_ = (u32)(want);                                                                 \
		if (g_ != w_)                                                                                          \
			check_failed(__FILE__, __LINE__, #got, g_, w_);                                                \
	} while (0)
#define CHECK(cond) CHECK_EQ(!!(cond), 1)

struct test {
	const char *name;
	void (*fn)(void);
};
/* Each program defines it; ends with a NULL name. */
extern const struct test tests[];
/* The kernel's command line holds this word. */
int option(const char *word);
/* A copy that the compiler does not turn into a call of itself. */
void copy(void *to, const void *from, u32 n);
void fill(void *to, u8 v, u32 n);

#endif
