/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupts from everywhere at once, with real threads: vCPU threads that acknowledge, end
 * and send interrupts and sleep in between, device threads with messages, edges and level
 * lines, the loop with the LAPIC timers. Each source waits until its last interrupt was
 * taken, so one that is lost, or a vCPU that is not woken, stops the test.
 * Made for ThreadSanitizer.
 */
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include "base/clock.h"
#include "rig.h"

#define CPUS   3
#define ROUNDS 3000

enum {
	VECTOR_MSI = 0x41, /* + source */
	VECTOR_EDGE = 0x51,
	VECTOR_LEVEL = 0x61,
	VECTOR_IPI = 0x71, /* + sender */
	VECTOR_TIMER = 0xec,
	VECTOR_STOP = 0xf0,
};

static struct rig rig;
static sem_t wake[CPUS];
static _Atomic unsigned taken[256];
static _Atomic bool level_high;
static _Atomic bool failed;

static void stress_kick(struct vcpu *v)
{
	sem_post(&wake[v->index]);
}

static const struct accel_ops stress_ops = {.vcpu_kick = stress_kick};

static bool wait_for(_Atomic unsigned *counter, unsigned value)
{
	uint64_t end = clock_raw_ns() + 20 * NSEC_PER_SEC;

	while (*counter < value) {
		if (failed || clock_raw_ns() > end) {
			failed = true;
			return false;
		}
		nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
	}
	return true;
}

static void arm_timer(unsigned cpu)
{
	lapic_put(&rig, cpu, 0x380, 50000);
}

/* The guest's handler. */
static bool handle(unsigned cpu, int vector, unsigned *sent)
{
	if (vector == VECTOR_LEVEL) {
		/* the device sees its register read and lowers the line */
		level_high = false;
		irq_set(&rig.bus.gsi[10], 0);
	}
	if (vector == VECTOR_TIMER)
		arm_timer(cpu);
	lapic_put(&rig, cpu, 0xb0, 0);
	taken[vector]++;
	/* Every interrupt but another's IPI makes this vCPU send one to the next, once the last came. */
	if (vector < VECTOR_IPI && taken[VECTOR_IPI + cpu] == *sent) {
		(*sent)++;
		lapic_put(&rig, cpu, 0x310, ((cpu + 1) % CPUS) << 24);
		lapic_put(&rig, cpu, 0x300, VECTOR_IPI + cpu);
	}
	return vector != VECTOR_STOP;
}

static void *vcpu_main(void *arg)
{
	unsigned cpu = (unsigned)(uintptr_t)arg, sent = 0;
	int vector;

	irqchip_bind_thread(rig.chip, cpu);
	arm_timer(cpu);
	for (;;) {
		struct timespec end;

		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += 20;
		if (sem_timedwait(&wake[cpu], &end)) {
			failed = true;
			return NULL;
		}
		atomic_fetch_and(&rig.vcpu[cpu].requests, ~(uint32_t)VCPU_REQ_INTR);
		while (irqchip_intr_pending(rig.chip, cpu)) {
			vector = irqchip_intr_ack(rig.chip, cpu);
			if (vector >= 0 && !handle(cpu, vector, &sent))
				return NULL;
		}
	}
}

static void *msi_main(void *arg)
{
	unsigned source = (unsigned)(uintptr_t)arg;

	for (unsigned i = 1; i <= ROUNDS; i++) {
		/* fixed to one, and lowest priority among all */
		uint32_t addr = source ? 0xfee00000u | (i % CPUS) << 12 : 0xfee00004u | 7 << 12;

		rig.bus.msi->send(rig.bus.msi_opaque, addr, (source ? 0 : 0x100) | (VECTOR_MSI + source));
		if (!wait_for(&taken[VECTOR_MSI + source], i))
			break;
	}
	return NULL;
}

static void *edge_main(void *arg)
{
	for (unsigned i = 1; i <= ROUNDS; i++) {
		irq_pulse(&rig.bus.gsi[4]);
		if (!wait_for(&taken[VECTOR_EDGE], i))
			break;
	}
	return NULL;
}

static void *level_main(void *arg)
{
	for (unsigned i = 1; i <= ROUNDS; i++) {
		level_high = true;
		irq_set(&rig.bus.gsi[10], 1);
		if (!wait_for(&taken[VECTOR_LEVEL], i))
			break;
		while (level_high && !failed)
			;
	}
	return NULL;
}

static void *loop_main(void *arg)
{
	loop_run(rig.bus.loop);
	return NULL;
}

static void test_stress(void **state)
{
	pthread_t vcpu[CPUS], dev[4], loop;

	rig_init(&rig, CPUS);
	vmclock_start(&rig.clock);
	rig.accel.ops = &stress_ops;
	for (unsigned i = 0; i < CPUS; i++) {
		sem_init(&wake[i], 0, 0);
		rig_enable_lapic(&rig, i);
		lapic_put(&rig, i, 0x3e0, 0xb);
		lapic_put(&rig, i, 0x320, VECTOR_TIMER);
	}
	ioapic_put_pin(&rig, 4, 1ull << 56 | VECTOR_EDGE);
	ioapic_put_pin(&rig, 10, 2ull << 56 | 0xa000 | VECTOR_LEVEL);
	pthread_create(&loop, NULL, loop_main, NULL);
	for (uintptr_t i = 0; i < CPUS; i++)
		pthread_create(&vcpu[i], NULL, vcpu_main, (void *)i);
	pthread_create(&dev[0], NULL, msi_main, (void *)0);
	pthread_create(&dev[1], NULL, msi_main, (void *)1);
	pthread_create(&dev[2], NULL, edge_main, NULL);
	pthread_create(&dev[3], NULL, level_main, NULL);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(dev[i], NULL);
	/* One more of everything that is in flight, then an end. */
	for (uint32_t i = 0; i < CPUS; i++)
		rig.bus.msi->send(rig.bus.msi_opaque, 0xfee00000u | i << 12, VECTOR_STOP);
	for (unsigned i = 0; i < CPUS; i++)
		pthread_join(vcpu[i], NULL);
	loop_stop(rig.bus.loop);
	pthread_join(loop, NULL);
	assert_false(failed);
	assert_int_equal(taken[VECTOR_MSI], ROUNDS);
	assert_int_equal(taken[VECTOR_MSI + 1], ROUNDS);
	assert_int_equal(taken[VECTOR_EDGE], ROUNDS);
	assert_int_equal(taken[VECTOR_LEVEL], ROUNDS);
	assert_true(taken[VECTOR_TIMER] > 0);
	assert_true(taken[VECTOR_IPI] > 0);
	rig_fini(&rig);
}

/* ---- the timer devices: two vCPUs program them at random while the loop fires their timers ------ */

static void *hammer_main(void *arg)
{
	uint64_t x = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15ull + 1;
	static const uint16_t port[] = {0x40,  0x42,  0x43,  0x61,  0x70, 0x71, 0x3f8,
					0x3f9, 0x3fa, 0x3fb, 0x3fc, 0x20, 0x21};

	for (unsigned i = 0; i < 20000; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		if (x >> 63) {
			mem_write(&rig.mem, 0xfed00000 + (x >> 32) % 0x180 / 4 * 4, (uint32_t)(x >> 20) & 0xffff, 4);
			mem_read(&rig.mem, 0xfed000f0, 8);
		} else {
			out8(&rig, port[(x >> 32) % ARRAY_SIZE(port)], (uint8_t)(x >> 24));
			in8(&rig, port[(x >> 40) % ARRAY_SIZE(port)]);
		}
		if (i % 64 == 0) /* legacy replacement on and off: the HPET calls the other two */
			mem_write(&rig.mem, 0xfed00010, x >> 50 & 3, 4);
	}
	return NULL;
}

static void test_stress_timers(void **state)
{
	pthread_t hammer[2], loop;

	rig_init(&rig, 1);
	vmclock_start(&rig.clock);
	rig_dev(&rig, &pit_dev_ops, NULL);
	rig_dev(&rig, &rtc_dev_ops, NULL);
	rig_dev(&rig, &hpet_dev_ops, NULL);
	rig_dev(&rig, &serial_dev_ops, NULL);
	pthread_create(&loop, NULL, loop_main, NULL);
	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&hammer[i], NULL, hammer_main, (void *)i);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(hammer[i], NULL);
	loop_stop(rig.bus.loop);
	pthread_join(loop, NULL);
	dev_reset_all(&rig.bus);
	assert_int_equal(mem_read(&rig.mem, 0xfed00010, 4), 0);
	assert_int_equal(in8(&rig, 0x3fd), 0x60);
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_stress), cmocka_unit_test(test_stress_timers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
