/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One small real-mode guest, run on a CPU engine without a board: port and
 * device-memory accesses, string I/O, HLT woken by an interrupt and by an NMI,
 * a doorbell, self-reported results, state transfer, dirty log, stop in the
 * middle of a busy loop, and a triple fault. `test_engine kvm` or `soft`;
 * exit status 77 where the engine is not usable.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "cpu/cpu.h"
#include "cpu/model.h"
#include "io/vmclock.h"
#include "mem/mem.h"
#include "no_lapic.h"

#define GUEST_CODE    0x1000
#define PORT_ECHO     0x500 /* in: 0x1233; out: what the guest made of it */
#define PORT_READY    0x502 /* the guest waits for interrupt 4 */
#define PORT_IRQ      0x503 /* from the interrupt handler */
#define PORT_NMI      0x505 /* the guest waits for an NMI */
#define PORT_NMI_SEEN 0x506
#define PORT_DONE     0x507
#define PORT_MMIO     0x508 /* what the guest read from device memory */
#define PORT_BELL     0x510
#define PORT_STR      0x514
#define PORT_SPIN     0x516 /* the guest spins from here on */
#define MMIO_BASE     0xa0000
#define DIRTY_PAGE    5

/* Assembled for address 0x1000, data segment 0. */
__asm__(".pushsection .rodata\n"
	".code16\n"
	"guest_begin:\n"
	"	xorw %ax, %ax\n"
	"	movw %ax, %ds\n"
	"	movw %ax, %ss\n"
	"	movw $0x8000, %sp\n"
	"	movw $(guest_nmi - guest_begin + 0x1000), 8\n" /* vector 2 */
	"	movw $0, 10\n"
	"	movw $(guest_irq - guest_begin + 0x1000), 48\n" /* vector 12 */
	"	movw $0, 50\n"
	"	movw $0x500, %dx\n"
	"	inw %dx, %ax\n"
	"	incw %ax\n"
	"	outw %ax, %dx\n"
	"	movw $0xa000, %ax\n"
	"	movw %ax, %es\n"
	"	movw $0xbeef, %es:0x10\n"
	"	movw %es:0x20, %ax\n"
	"	movw $0x508, %dx\n"
	"	outw %ax, %dx\n"
	"	movb $0x77, 0x5000\n" /* dirties page 5 */
	"	movw $0x510, %dx\n"
	"	movw $1, %ax\n"
	"	outw %ax, %dx\n" /* three rings */
	"	outw %ax, %dx\n"
	"	outw %ax, %dx\n"
	"	movw $0x514, %dx\n"
	"	movw $(guest_text - guest_begin + 0x1000), %si\n"
	"	movw $5, %cx\n"
	"	cld\n"
	"	rep outsb\n"
	/* the 8259: vectors from 8, only line 4 enabled */
	"	movb $0x11, %al\n"
	"	outb %al, $0x20\n"
	"	movb $8, %al\n"
	"	outb %al, $0x21\n"
	"	movb $4, %al\n"
	"	outb %al, $0x21\n"
	"	movb $1, %al\n"
	"	outb %al, $0x21\n"
	"	movb $0xef, %al\n"
	"	outb %al, $0x21\n"
	"	movw $0x502, %dx\n"
	"	outb %al, %dx\n"
	"	sti\n"
	"	hlt\n"
	"	cli\n"
	"	movw $0x505, %dx\n"
	"	outb %al, %dx\n"
	"1:	hlt\n"
	"	cmpb $0, guest_flag - guest_begin + 0x1000\n"
	"	je 1b\n"
	"	movw $0x507, %dx\n"
	"	outb %al, %dx\n"
	"	movw $0x516, %dx\n"
	"	outb %al, %dx\n"
	"	xorl %ebx, %ebx\n"
	"2:	incl %ebx\n" /* until the host changes BP */
	"	testw %bp, %bp\n"
	"	jz 2b\n"
	"	lidtl guest_null - guest_begin + 0x1000\n"
	/* in protected mode: a KVM that emulates real mode does not look at the limit there */
	"	movl %cr0, %eax\n"
	"	incw %ax\n"
	"	movl %eax, %cr0\n"
	"	int3\n" /* triple fault */
	"	hlt\n"
	"guest_irq:\n"
	"	pushw %dx\n"
	"	movw $0x503, %dx\n"
	"	outb %al, %dx\n"
	"	movb $0x20, %al\n"
	"	outb %al, $0x20\n"
	"	popw %dx\n"
	"	iretw\n"
	"guest_nmi:\n"
	"	movb $1, guest_flag - guest_begin + 0x1000\n"
	"	pushw %dx\n"
	"	movw $0x506, %dx\n"
	"	outb %al, %dx\n"
	"	popw %dx\n"
	"	iretw\n"
	"guest_flag: .byte 0\n"
	"guest_text: .ascii \"hello\"\n"
	"guest_null: .word 0\n"
	"	.long 0\n"
	"guest_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t guest_begin[], guest_end[];

struct board {
	struct mem_map mem;
	struct vmclock clock;
	struct accel *a;
	struct vcpu *v;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned seen[0x20]; /* writes per port */
	uint64_t last[0x20];
	uint64_t mmio_written;
	char text[8];
	bool irq; /* the software engine's interrupt line */
	unsigned resets;
	int run_result;
};
static struct board b;

#define CHECK(cond)                                                                                                    \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                           \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static uint64_t port_read(void *opaque, uint16_t port, unsigned size)
{
	return port == PORT_ECHO && size == 2 ? 0x1233 : UINT64_MAX;
}

static void port_write(void *opaque, uint16_t port, uint64_t val, unsigned size)
{
	if (port < 0x500 || port > 0x51f)
		return;
	pthread_mutex_lock(&b.lock);
	if (port == PORT_STR && b.seen[port - 0x500] < sizeof(b.text) - 1)
		b.text[b.seen[port - 0x500]] = (char)val;
	b.seen[port - 0x500]++;
	b.last[port - 0x500] = val;
	pthread_cond_broadcast(&b.cond);
	pthread_mutex_unlock(&b.lock);
}

static uint64_t mmio_read(void *opaque, uint64_t off, unsigned size)
{
	return off == 0x20 && size == 2 ? 0x4321 : 0;
}

static void mmio_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	if (off == 0x10 && size == 2)
		b.mmio_written = val;
}

static int intr_ack(void *opaque, unsigned cpu)
{
	return __atomic_exchange_n(&b.irq, false, __ATOMIC_ACQ_REL) ? 12 : -1;
}

static bool intr_pending(void *opaque, unsigned cpu)
{
	return __atomic_load_n(&b.irq, __ATOMIC_ACQUIRE);
}

static void request(void *opaque, enum vm_request what, int status, const char *why)
{
	pthread_mutex_lock(&b.lock);
	/* kvm-pvm emulates legacy modes and gives up on an exception without an IDT. */
	CHECK(what == VM_RESET || (what == VM_PANIC && access("/sys/module/kvm_pvm", F_OK) == 0));
	b.resets++;
	pthread_cond_broadcast(&b.cond);
	pthread_mutex_unlock(&b.lock);
	atomic_fetch_or(&b.v->requests, VCPU_REQ_STOP);
}

static void *cpu_thread(void *arg)
{
	int rc;

	atomic_fetch_and(&b.v->requests, ~(uint32_t)VCPU_REQ_STOP);
	rc = b.a->ops->vcpu_run(b.v);
	pthread_mutex_lock(&b.lock);
	b.run_result = rc;
	pthread_cond_broadcast(&b.cond);
	pthread_mutex_unlock(&b.lock);
	return NULL;
}

static void show_and_exit(void)
{
	static struct cpu_state s;

	vcpu_request(b.v, VCPU_REQ_STOP);
	usleep(500000);
	b.a->ops->get_state(b.v, &s);
	for (const struct counter *c = b.a->ops->counters; c && c->name; c++)
		fprintf(stderr, "%s %llu ", c->name,
			(unsigned long long)counter_get((const void *)((const char *)b.v + c->offset)));
	fprintf(stderr, "\ncs %x base %llx rip %llx rflags %llx cr0 %llx ax %llx dx %llx sp %llx mp %d\n",
		s.seg[S_CS].sel, (unsigned long long)s.seg[S_CS].base, (unsigned long long)s.rip,
		(unsigned long long)s.rflags, (unsigned long long)s.cr0, (unsigned long long)s.gpr[R_RAX],
		(unsigned long long)s.gpr[R_RDX], (unsigned long long)s.gpr[R_RSP], s.mp_state);
	for (unsigned i = 0; i < ARRAY_SIZE(b.seen); i++)
		if (b.seen[i])
			fprintf(stderr, "port %#x: %u writes, last %#llx\n", 0x500 + i, b.seen[i],
				(unsigned long long)b.last[i]);
	exit(1);
}

/* Wait for a port write, at most 20 s; repeat `again` each 20 ms meanwhile. */
static void wait_port(uint16_t port, void (*again)(void))
{
	uint64_t limit = clock_raw_ns() + 20 * NSEC_PER_SEC;

	for (;;) {
		unsigned n;

		pthread_mutex_lock(&b.lock);
		n = b.seen[port - 0x500];
		pthread_mutex_unlock(&b.lock);
		if (n)
			return;
		if (clock_raw_ns() > limit) {
			fprintf(stderr, "the guest did not reach port %#x\n", port);
			show_and_exit();
		}
		if (again)
			again();
		usleep(20000);
	}
}

static void raise_irq(void)
{
	if (b.a->ops->irqchip) {
		b.a->ops->irqchip->set_gsi(b.a, 4, 1);
		b.a->ops->irqchip->set_gsi(b.a, 4, 0);
	} else {
		__atomic_store_n(&b.irq, true, __ATOMIC_RELEASE);
		vcpu_request(b.v, VCPU_REQ_INTR);
	}
}

static void send_nmi(void)
{
	vcpu_request(b.v, VCPU_REQ_NMI);
}

static void build(const struct accel_ops *ops, struct cpu_model *model, const struct cpu_host *host,
		  struct mem_region *mmio)
{
	static struct cpuid_entry sup[CPU_MODEL_MAX_SUPPORTED];
	static struct cpu_state s;
	struct err err = {0};
	struct opts none = {0};
	struct accel_config cfg = {.mem = &b.mem, .clock = &b.clock, .host = host, .model = model, .ncpus = 1};
	unsigned n;

	CHECK(mem_init(&b.mem, &err) == 0);
	CHECK(mem_add_ram(&b.mem, "ram", 0, 2 * MIB, NULL, false, &err) == 0);
	CHECK(mem_add_ram(&b.mem, "rom", 0xffff0000, 0x10000, NULL, true, &err) == 0);
	memcpy(mem_ram_ptr(&b.mem, GUEST_CODE, 4096), guest_begin, (size_t)(guest_end - guest_begin));
	/* at the reset vector: jmp far 0:0x1000 */
	memcpy(b.mem.block[1].host + 0xfff0, "\xea\x00\x10\x00\x00", 5);
	mem_map_region(&b.mem, mmio, MMIO_BASE, 1);
	vmclock_init(&b.clock);
	n = ops->supported_cpuid(sup, ARRAY_SIZE(sup), &err);
	CHECK(n > 0);
	*model = (struct cpu_model){.sockets = 1, .cores = 1, .threads = 1};
	CHECK(cpu_model_build(model, NULL, ops->irqchip ? "host" : "max", sup, n, &err) == 0);
	b.a = ops->create(&cfg, &none, &err);
	if (!b.a)
		fprintf(stderr, "%s\n", err.msg);
	CHECK(b.a);
	if (!b.a->vcpu)
		b.a->vcpu = calloc(1, sizeof(*b.a->vcpu));
	b.v = b.a->vcpu[0] = ops->vcpu_create(b.a, 0, 0, &err);
	if (!b.v)
		fprintf(stderr, "%s\n", err.msg);
	CHECK(b.v);
	cpu_state_reset(&s, true);
	CHECK(ops->set_state(b.v, &s) == 0);
	vmclock_start(&b.clock);
	if (ops->clock_changed)
		ops->clock_changed(b.a, true);
}

static void spawn(pthread_t *t)
{
	CHECK(pthread_create(t, NULL, cpu_thread, NULL) == 0);
	b.v->thread = *t;
}

int main(int argc, char **argv)
{
	static struct cpu_model model;
	static struct cpu_state s;
	static const struct region_ops mmio_ops = {mmio_read, mmio_write, 1, 4};
	struct mem_region mmio = {.name = "probe", .size = 0x1000, .ops = &mmio_ops};
	const struct cpu_host host = {.port_read = port_read,
				      .port_write = port_write,
				      .intr_ack = intr_ack,
				      .intr_pending = intr_pending,
				      NO_LAPIC,
				      .request = request};
	const struct accel_ops *ops = accel_find(argc > 1 ? argv[1] : "kvm");
	struct err err = {0};
	pthread_t t;
	uint64_t rings = 0;
	uint32_t spun;
	int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	CHECK(ops);
	/* 1 is good enough here: slow but usable */
	if (ops->probe && ops->probe(&err) < 0) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	alarm(60);
	pthread_mutex_init(&b.lock, NULL);
	pthread_cond_init(&b.cond, NULL);
	build(ops, &model, &host, &mmio);
	if (ops->doorbell)
		CHECK(ops->doorbell(b.a, true, PORT_BELL, 2, false, 0, bell, true) == 0);
	mem_dirty_start(&b.mem);
	spawn(&t);

	wait_port(PORT_READY, NULL);
	CHECK(b.last[PORT_ECHO - 0x500] == 0x1234);
	CHECK(b.mmio_written == 0xbeef);
	CHECK(b.last[PORT_MMIO - 0x500] == 0x4321);
	CHECK(strcmp(b.text, "hello") == 0);
	if (ops->doorbell) {
		CHECK(read(bell, &rings, 8) == 8 && rings == 3);
		CHECK(b.seen[PORT_BELL - 0x500] == 0); /* never left the kernel */
	} else {
		CHECK(b.seen[PORT_BELL - 0x500] == 3);
	}
	raise_irq();
	wait_port(PORT_IRQ, NULL);
	CHECK(b.seen[PORT_IRQ - 0x500] == 1);
	wait_port(PORT_NMI, NULL);
	wait_port(PORT_DONE, send_nmi);
	CHECK(b.seen[PORT_NMI_SEEN - 0x500] >= 1);

	/* Stop it in its loop, look, change a register, let it go on. */
	wait_port(PORT_SPIN, NULL);
	usleep(2000);
	vcpu_request(b.v, VCPU_REQ_STOP);
	pthread_join(t, NULL);
	CHECK(b.run_result == 0 && b.resets == 0);
	CHECK(ops->get_state(b.v, &s) == 0);
	spun = (uint32_t)s.gpr[R_RBX];
	CHECK(s.seg[S_CS].base == 0 && s.rip > GUEST_CODE && s.rip < GUEST_CODE + 0x1000);
	CHECK(spun > 0 && !(s.cr0 & CR0_PE) && s.gpr[R_RSP] == 0x8000);
	if (ops->sync_dirty)
		CHECK(ops->sync_dirty(b.a, &err) == 0);
	CHECK(mem_dirty_test_clear(&b.mem, DIRTY_PAGE));
	CHECK(!mem_dirty_test_clear(&b.mem, 100));
	s.gpr[R_RBP] = 1;
	CHECK(ops->set_state(b.v, &s) == 0);
	spawn(&t);
	pthread_join(t, NULL); /* the triple fault asks for a reset */
	CHECK(b.resets == 1);

	/* After a reset the same program runs again. */
	memset(b.seen, 0, sizeof(b.seen));
	memcpy(mem_ram_ptr(&b.mem, GUEST_CODE, 4096), guest_begin, (size_t)(guest_end - guest_begin));
	mem_mark_written(&b.mem, mem_ram_ptr(&b.mem, GUEST_CODE, 1), (uint64_t)(guest_end - guest_begin));
	if (ops->reset)
		ops->reset(b.a);
	cpu_state_reset(&s, true);
	CHECK(ops->set_state(b.v, &s) == 0);
	spawn(&t);
	wait_port(PORT_READY, NULL);
	vcpu_request(b.v, VCPU_REQ_STOP); /* also while it is halted */
	pthread_join(t, NULL);

	ops->vcpu_destroy(b.v);
	b.a->vcpu[0] = NULL;
	ops->destroy(b.a);
	mem_fini(&b.mem);
	vmclock_fini(&b.clock);
	close(bell);
	printf("%s: ok\n", ops->type.name);
	return 0;
}
