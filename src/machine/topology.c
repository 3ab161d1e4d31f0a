/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * APIC IDs from -smp: thread, core and socket numbers each in as many bits as
 * they need (Intel SDM volume 3, 9.9.3.2), so that CPUID's shift counts hold for
 * counts that are no power of two.
 */
#include "machine/vm.h"
#include "base/util.h"

static unsigned topology_bits(unsigned count)
{
	unsigned bits = 0;

	while (bits < 31 && (1u << bits) < count)
		bits++;
	return bits;
}

uint32_t vm_apic_id(const struct vm_config *cfg, unsigned index)
{
	unsigned threads = MAX(cfg->threads, 1u), cores = MAX(cfg->cores, 1u);
	unsigned thread = index % threads, core = index / threads % cores, socket = index / threads / cores;
	unsigned thread_bits = topology_bits(threads), core_bits = topology_bits(cores);

	return (uint32_t)(socket << (core_bits + thread_bits) | core << thread_bits | thread);
}
