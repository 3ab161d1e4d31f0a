/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The timer chips through the 8259 pair to a real-mode program on the software CPU, with the
 * real clock and loop: what a program of old needs to see its ticks.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "../device/rig.h"
#include "base/clock.h"
#include "cpu/model.h"

#define GUEST_CODE 0x1000

/*
 * Three programs, chosen by BX at 1000h; each counts interrupts and then leaves
 * through isa-debug-exit (501h). The handlers are for vectors 8 (IRQ 0) and 70h (IRQ 8).
 */
__asm__(".pushsection .rodata\n"
	".code16\n"
	"chips_begin:\n"
	"	cli\n"
	"	xorw %ax, %ax\n"
	"	movw %ax, %ds\n"
	"	movw %ax, %ss\n"
	"	movw $0x8000, %sp\n"
	"	movw $(chips_tick - chips_begin + 0x1000), 0x20\n"
	"	movw %ax, 0x22\n"
	"	movw $(chips_rtc - chips_begin + 0x1000), 0x1c0\n"
	"	movw %ax, 0x1c2\n"
	"	movw %ax, 0x500\n" /* the count */
	/* 8259: vectors 8 and 70h; lines 0 and 2, line 8 */
	"	movb $0x11, %al\n"
	"	outb %al, $0x20\n"
	"	outb %al, $0xa0\n"
	"	movb $0x08, %al\n"
	"	outb %al, $0x21\n"
	"	movb $0x70, %al\n"
	"	outb %al, $0xa1\n"
	"	movb $4, %al\n"
	"	outb %al, $0x21\n"
	"	movb $2, %al\n"
	"	outb %al, $0xa1\n"
	"	movb $1, %al\n"
	"	outb %al, $0x21\n"
	"	outb %al, $0xa1\n"
	"	movb $0xfa, %al\n"
	"	outb %al, $0x21\n"
	"	movb $0xfe, %al\n"
	"	outb %al, $0xa1\n"
	"	cmpw $1, %bx\n"
	"	je chips_hlt\n"
	"	cmpw $2, %bx\n"
	"	je chips_periodic\n"
	/* 0: mode word 3Eh (mode 7 is 3), about 50 Hz; spin until 40 ticks have come */
	"	movb $0x3e, %al\n"
	"	outb %al, $0x43\n"
	"	movb $0xec, %al\n"
	"	outb %al, $0x40\n"
	"	movb $0x5c, %al\n"
	"	outb %al, $0x40\n"
	"	sti\n"
	"1:	cmpw $40, 0x500\n"
	"	jb 1b\n"
	"	cli\n"
	"	movb $0x3e, %al\n" /* back to 18.2 Hz, and three more */
	"	outb %al, $0x43\n"
	"	xorb %al, %al\n"
	"	outb %al, $0x40\n"
	"	outb %al, $0x40\n"
	"	sti\n"
	"1:	cmpw $43, 0x500\n"
	"	jb 1b\n"
	"	jmp chips_done\n"
	/* 1: mode 2 at 1 kHz, asleep between ticks */
	"chips_hlt:\n"
	"	movb $0x34, %al\n"
	"	outb %al, $0x43\n"
	"	movb $0xa9, %al\n"
	"	outb %al, $0x40\n"
	"	movb $0x04, %al\n"
	"	outb %al, $0x40\n"
	"	sti\n"
	"1:	hlt\n"
	"	cmpw $200, 0x500\n"
	"	jb 1b\n"
	"	jmp chips_done\n"
	/* 2: the RTC's periodic interrupt at 1024 Hz, behind the cascade */
	"chips_periodic:\n"
	"	movb $0x0b, %al\n"
	"	outb %al, $0x70\n"
	"	movb $0x42, %al\n"
	"	outb %al, $0x71\n"
	"	sti\n"
	"1:	hlt\n"
	"	cmpw $200, 0x500\n"
	"	jb 1b\n"
	"chips_done:\n"
	"	cli\n"
	"	movb $1, %al\n"
	"	movw $0x501, %dx\n"
	"	outb %al, %dx\n"
	"1:	hlt\n"
	"	jmp 1b\n"
	"chips_tick:\n"
	"	pushw %ax\n"
	"	incw 0x500\n"
	"	movb $0x20, %al\n"
	"	outb %al, $0x20\n"
	"	popw %ax\n"
	"	iretw\n"
	"chips_rtc:\n"
	"	pushw %ax\n"
	"	incw 0x500\n"
	"	movb $0x0c, %al\n"
	"	outb %al, $0x70\n"
	"	inb $0x71, %al\n"
	"	movb $0x20, %al\n"
	"	outb %al, $0xa0\n"
	"	outb %al, $0x20\n"
	"	popw %ax\n"
	"	iretw\n"
	"chips_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t chips_begin[], chips_end[];

static struct rig rig;
static struct accel *accel;
static struct vcpu *vcpu;

static uint64_t host_port_read(void *opaque, uint16_t port, unsigned size)
{
	return ports_read(rig.bus.ports, port, size);
}

static void host_port_write(void *opaque, uint16_t port, uint64_t val, unsigned size)
{
	ports_write(rig.bus.ports, port, val, size);
}

static int host_intr_ack(void *opaque, unsigned cpu)
{
	return irqchip_intr_ack(rig.chip, cpu);
}

static bool host_intr_pending(void *opaque, unsigned cpu)
{
	return irqchip_intr_pending(rig.chip, cpu);
}

static uint64_t host_tpr_get(void *opaque, unsigned cpu)
{
	return irqchip_tpr_get(rig.chip, cpu);
}

static void host_tpr_set(void *opaque, unsigned cpu, uint64_t cr8)
{
	irqchip_tpr_set(rig.chip, cpu, cr8);
}

static int host_msr_read(void *opaque, unsigned cpu, uint32_t msr, uint64_t *val)
{
	return irqchip_msr_read(rig.chip, cpu, msr, val);
}

static int host_msr_write(void *opaque, unsigned cpu, uint32_t msr, uint64_t val)
{
	return irqchip_msr_write(rig.chip, cpu, msr, val);
}

static void host_lapic_reset(void *opaque, unsigned cpu, bool init)
{
	irqchip_lapic_reset(rig.chip, cpu, init);
}

/* The program is done: leave both loops. */
static void host_request(void *opaque, enum vm_request what, int status, const char *why)
{
	rig.request = what;
	rig.request_status = status;
	atomic_fetch_or(&vcpu->requests, VCPU_REQ_STOP);
	loop_stop(rig.bus.loop);
}

static const struct cpu_host host = {.port_read = host_port_read,
				     .port_write = host_port_write,
				     .intr_ack = host_intr_ack,
				     .intr_pending = host_intr_pending,
				     .tpr_get = host_tpr_get,
				     .tpr_set = host_tpr_set,
				     .apic_msr_read = host_msr_read,
				     .apic_msr_write = host_msr_write,
				     .lapic_reset = host_lapic_reset,
				     .request = host_request};

static void *cpu_thread(void *arg)
{
	assert_int_equal(accel->ops->vcpu_run(vcpu), 0);
	return NULL;
}

/* Run program `which`; how many ns it took. */
static uint64_t run_program(unsigned which)
{
	static struct cpuid_entry sup[CPU_MODEL_MAX_SUPPORTED];
	static struct cpu_model model;
	static struct cpu_state s;
	struct err err = {0};
	struct opts none = {0};
	struct accel_config cfg = {.mem = &rig.mem, .clock = &rig.clock, .host = &host, .model = &model, .ncpus = 1};
	uint64_t start, took;
	pthread_t t;
	unsigned n;

	rig_init(&rig, 1);
	rig.bus.request = host_request;
	rig_dev(&rig, &pit_dev_ops, NULL);
	rig_dev(&rig, &rtc_dev_ops, NULL);
	rig_dev(&rig, &debug_exit_dev_ops, NULL);
	assert_int_equal(mem_add_ram(&rig.mem, "ram", 0, 2 * MIB, NULL, false, &err), 0);
	memcpy(mem_ram_ptr(&rig.mem, GUEST_CODE, 4096), chips_begin, (size_t)(chips_end - chips_begin));
	n = soft_accel_ops.supported_cpuid(sup, ARRAY_SIZE(sup), &err);
	model = (struct cpu_model){.sockets = 1, .cores = 1, .threads = 1};
	assert_int_equal(cpu_model_build(&model, NULL, "max", sup, n, &err), 0);
	accel = soft_accel_ops.create(&cfg, &none, &err);
	assert_non_null(accel);
	if (!accel->vcpu)
		accel->vcpu = calloc(1, sizeof(*accel->vcpu));
	vcpu = accel->vcpu[0] = soft_accel_ops.vcpu_create(accel, 0, 0, &err);
	assert_non_null(vcpu);
	irqchip_set_vcpu(rig.chip, 0, vcpu);
	cpu_state_reset(&s, true);
	s.seg[S_CS].sel = 0;
	s.seg[S_CS].base = 0;
	s.rip = GUEST_CODE;
	s.gpr[R_RBX] = which;
	assert_int_equal(soft_accel_ops.set_state(vcpu, &s), 0);
	vmclock_start(&rig.clock);
	if (soft_accel_ops.clock_changed)
		soft_accel_ops.clock_changed(accel, true);
	start = clock_raw_ns();
	assert_int_equal(pthread_create(&t, NULL, cpu_thread, NULL), 0);
	vcpu->thread = t;
	loop_run(rig.bus.loop);
	pthread_join(t, NULL);
	took = clock_raw_ns() - start;
	assert_int_equal(rig.request, VM_EXIT);
	assert_int_equal(rig.request_status, 3);
	irqchip_set_vcpu(rig.chip, 0, NULL);
	soft_accel_ops.vcpu_destroy(vcpu);
	accel->vcpu[0] = NULL;
	soft_accel_ops.destroy(accel);
	rig_fini(&rig);
	return took;
}

/* No upper limits of time: a host may be as busy as it likes. A tick too early is never right. */
static void test_mode_word_3e(void **state)
{
	/* 39 whole periods of 0x5cec ticks and two of 65536 */
	assert_true(run_program(0) > 39ull * 0x5cec * 838 + 2ull * 65536 * 838);
}

static void test_ticks_wake_hlt(void **state)
{
	/* A late loop catches up at four times the pace, so only the average is bounded. */
	assert_true(run_program(1) > 190000000);
}

static void test_rtc_periodic(void **state)
{
	assert_true(run_program(2) > 190000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_mode_word_3e), cmocka_unit_test(test_ticks_wake_hlt),
					   cmocka_unit_test(test_rtc_periodic)};

	alarm(50);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
