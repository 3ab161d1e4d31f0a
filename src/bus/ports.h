/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * I/O ports: a table of 65,536 entries, so that dispatch is one load. Regions
 * are the same struct mem_region as memory's, with offsets from their base.
 * Regions may overlap by single ports being re-registered (a PCI BAR over a
 * legacy port loses: first come keeps the port, and the clash is logged).
 */
#ifndef KELVIN_BUS_PORTS_H
#define KELVIN_BUS_PORTS_H

#include "base/err.h"
#include "mem/mem.h"

struct ports;
struct ports *ports_create(void);
void ports_destroy(struct ports *p);
void ports_map(struct ports *p, struct mem_region *r, uint16_t base);
void ports_unmap(struct ports *p, struct mem_region *r);
/* A vCPU's access, 1, 2 or 4 bytes; unclaimed reads give all ones. Takes region locks. */
uint64_t ports_read(struct ports *p, uint16_t port, unsigned size);
void ports_write(struct ports *p, uint16_t port, uint64_t val, unsigned size);
void ports_walk(struct ports *p, void (*fn)(void *arg, uint16_t base, const struct mem_region *r), void *arg);

#endif
