// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LSI (Symbios) 53C895A, a PCI SCSI adapter that runs programs (SCRIPTS): registers,
 * interrupts, PCI. LSI53C895A PCI to Ultra2 SCSI controller technical manual,
 * chapters 2 to 4.
 *
 *   BAR 0  I/O     256 bytes of registers
 *   BAR 1  memory  the same, in 1 KiB
 *   BAR 2  memory  8 KiB of RAM for programs
 *
 * Locking: registers, SCRIPTS and the bus's phases are under dev.lock. The SCRIPTS
 * run in the loop's thread only, where commands start; a register write wakes it.
 */
#include "hw/scsi/lsi.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "hw/scsi/scsi_devices.h"

/* Instructions in one go, and what a program that never waits gets after that: as many each millisecond. */
#define STEPS	    20000
#define COMMANDS    64 /* started before other devices get their turn */
#define REST_NS	    1000000
#define GEN_UNIT_NS 125000 /* STIME1: GEN n expires after 2^(n-1) of these */

/* ---- interrupts ------------------------------------------------------------------------ */

void lsi_update_irq(struct lsi *l)
{
	uint8_t *r = l->reg;
	const uint8_t dstat = r[DSTAT] & 0x7f;
	bool level;

	r[ISTAT0] &= (uint8_t) ~(ISTAT0_DIP | ISTAT0_SIP);
	if (dstat)
		r[ISTAT0] |= ISTAT0_DIP;
	/* A condition that is masked and does not stop the program shows in its register only. */
	if ((r[SIST0] & (r[SIEN0] | SIST0_FATAL)) || (r[SIST1] & (r[SIEN1] | SIST1_STO)))
		r[ISTAT0] |= ISTAT0_SIP;
	level = (dstat & r[DIEN]) || (r[SIST0] & r[SIEN0]) || (r[SIST1] & r[SIEN1]) || (r[ISTAT0] & ISTAT0_INTF);
	if (level && !(r[DCNTL] & DCNTL_IRQD))
		counter_add(&l->irqs, l->pci.intx_level ? 0 : 1);
	pci_set_intx(&l->pci, level && !(r[DCNTL] & DCNTL_IRQD));
}

void lsi_interrupt(struct lsi *l, uint8_t dstat, uint8_t sist0, uint8_t sist1)
{
	l->reg[DSTAT] |= dstat;
	l->reg[SIST0] |= sist0;
	l->reg[SIST1] |= sist1;
	if (dstat || (sist0 & (SIST0_FATAL | l->reg[SIEN0])) || (sist1 & (SIST1_STO | l->reg[SIEN1]))) {
		l->run = LSI_HALTED;
		l->move_left = 0;
		l->no_answer = false;
	}
	lsi_update_irq(l);
}

/* ---- DMA ---------------------------------------------------------------------------------- */

/* Offset in the BAR, if all of it is there; the guest decides where BARs are. */
static bool in_bar(const struct lsi *l, int bar, uint64_t addr, uint32_t len, uint32_t size, uint32_t *off)
{
	const struct pci_bar *b = &l->pci.bar[bar];

	if (!b->region.mapped || addr < b->addr || addr - b->addr > size || len > size - (addr - b->addr))
		return false;
	*off = (uint32_t)(addr - b->addr);
	return true;
}

static bool bus_fault(struct lsi *l)
{
	log_diag(LOG_GUEST_ERRORS, "lsi53c895a: DMA outside RAM; the program stops");
	lsi_interrupt(l, DSTAT_BF, 0, 0);
	return false;
}

bool lsi_dma_read(struct lsi *l, uint64_t addr, void *buf, uint32_t len)
{
	uint32_t off;

	if (in_bar(l, 2, addr, len, LSI_RAM_SIZE, &off)) {
		memcpy(buf, l->ram + off, len);
		return true;
	}
	return (pci_bus_master(&l->pci) && !dma_read(l->pci.dev.bus->mem, addr, buf, len)) || bus_fault(l);
}

bool lsi_dma_write(struct lsi *l, uint64_t addr, const void *buf, uint32_t len)
{
	uint32_t off;

	if (in_bar(l, 2, addr, len, LSI_RAM_SIZE, &off)) {
		memcpy(l->ram + off, buf, len);
		return true;
	}
	return (pci_bus_master(&l->pci) && !dma_write(l->pci.dev.bus->mem, addr, buf, len)) || bus_fault(l);
}

bool lsi_memory_read(struct lsi *l, uint64_t addr, void *buf, uint32_t len)
{
	uint32_t off;

	if (!in_bar(l, 1, addr, len, LSI_REG_SIZE, &off))
		return lsi_dma_read(l, addr, buf, len);
	for (uint32_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = lsi_reg_read(l, off + i);
	return true;
}

bool lsi_memory_write(struct lsi *l, uint64_t addr, const void *buf, uint32_t len)
{
	uint32_t off;

	if (!in_bar(l, 1, addr, len, LSI_REG_SIZE, &off))
		return lsi_dma_write(l, addr, buf, len);
	for (uint32_t i = 0; i < len; i++)
		lsi_reg_write(l, off + i, ((const uint8_t *)buf)[i]);
	return true;
}

/* ---- running ------------------------------------------------------------------------------- */

/* In the loop's thread, without the lock. */
static void lsi_run_loop(void *arg)
{
	struct lsi *l = arg;
	bool done = true, submitted = false;
	unsigned n = 0;

	pthread_mutex_lock(&l->pci.dev.lock);
	l->posted = false;
	while (!l->paused && n++ < COMMANDS) {
		struct lsi_req *req;

		if (l->reset_units) {
			l->reset_units = false;
			scsi_bus_reset(&l->bus);
		}
		done = lsi_script_run(l, STEPS);
		req = l->submit;
		if (!req)
			break;
		l->submit = NULL;
		submitted = true;
		pthread_mutex_unlock(&l->pci.dev.lock);
		lsi_submit(l, req);
		pthread_mutex_lock(&l->pci.dev.lock);
	}
	if (n > COMMANDS)
		lsi_wake(l);
	pthread_mutex_unlock(&l->pci.dev.lock);
	if (submitted)
		scsi_bus_flush_queues(&l->bus);
	if (!done)
		timer_arm(&l->later, clock_raw_ns() + REST_NS);
}

void lsi_wake(struct lsi *l)
{
	if (l->posted || l->paused)
		return;
	l->posted = true;
	loop_post(l->bus.loop, lsi_run_loop, l);
}

static void later_fired(void *arg)
{
	struct lsi *l = arg;

	pthread_mutex_lock(&l->pci.dev.lock);
	lsi_wake(l);
	pthread_mutex_unlock(&l->pci.dev.lock);
}

static void gen_fired(void *arg)
{
	struct lsi *l = arg;

	pthread_mutex_lock(&l->pci.dev.lock);
	if (l->reg[STIME1] & 15)
		lsi_interrupt(l, 0, 0, SIST1_GEN);
	pthread_mutex_unlock(&l->pci.dev.lock);
}

static void start_script(struct lsi *l)
{
	l->move_left = 0;
	l->no_answer = false;
	l->run = LSI_RUNNING;
	lsi_wake(l);
}

/* ---- registers --------------------------------------------------------------------------------- */

static void soft_reset(struct lsi *l)
{
	uint8_t *r = l->reg;

	memset(r, 0, sizeof(l->reg));
	r[SCNTL0] = 0xc0;
	r[DSTAT] = DSTAT_DFE;
	r[GPREG] = 0x7f;
	r[CTEST1] = 0xf0;
	r[CTEST2] = 1;	  /* DACK */
	r[MACNTL] = 0xd0; /* chip type */
	r[STEST4] = 0xe0; /* a low voltage differential bus, clock locked */
	r[0x47] = 0x0f;	  /* GPCNTL: all inputs */
	l->run = LSI_HALTED;
	l->carry = l->no_answer = false;
	l->move_left = 0;
	timer_cancel(&l->gen_timer);
	timer_cancel(&l->later);
	lsi_update_irq(l);
}

/* The bus as it is now: REQ, -, BSY, -, ATN, MSG, C/D, I/O. */
static uint8_t bus_lines(const struct lsi *l)
{
	if (!l->connected)
		return 0;
	return (uint8_t)(0x20 | (l->req_line ? 0x80 : 0) | (l->atn ? 8 : 0) | l->phase);
}

uint8_t lsi_reg_read(struct lsi *l, unsigned off)
{
	uint8_t *r = l->reg, val = r[off];

	switch (off) {
	case SCNTL1: return (uint8_t)((val & ~SCNTL1_CON) | (l->connected ? SCNTL1_CON : 0));
	case SBCL: return bus_lines(l);
	case DSTAT:
		r[DSTAT] = DSTAT_DFE;
		lsi_update_irq(l);
		return val;
	case SSTAT0: return r[SCNTL1] & SCNTL1_RST ? 2 : 0;
	case SSTAT1: return l->connected ? (uint8_t)l->phase : 0;
	case ISTAT0: return (uint8_t)((val & ~ISTAT0_CON) | (l->connected ? ISTAT0_CON : 0));
	case ISTAT1: return l->run != LSI_HALTED ? ISTAT1_SRUN : 0;
	case CTEST2: /* shows SIGP and clears it */
		val |= r[ISTAT0] & ISTAT0_SIGP ? 0x40 : 0;
		r[ISTAT0] &= (uint8_t)~ISTAT0_SIGP;
		return val;
	case SIST0:
	case SIST1:
		r[off] = 0;
		lsi_update_irq(l);
		return val;
	default: return val;
	}
}

static void write_istat0(struct lsi *l, uint8_t val)
{
	uint8_t *r = l->reg;

	if (val & ISTAT0_SRST) {
		lsi_bus_reset(l);
		soft_reset(l);
		r[ISTAT0] = ISTAT0_SRST;
		return;
	}
	/* SIP, DIP and CON are the chip's; INTF is cleared by a one. */
	r[ISTAT0] = (uint8_t)((r[ISTAT0] & 0x0f) | (val & 0xf0));
	if (val & ISTAT0_INTF)
		r[ISTAT0] &= (uint8_t)~ISTAT0_INTF;
	if (val & ISTAT0_ABRT) {
		r[ISTAT0] &= (uint8_t)~ISTAT0_ABRT;
		lsi_interrupt(l, DSTAT_ABRT, 0, 0);
	}
	if (val & ISTAT0_SIGP)
		lsi_wake(l);
	lsi_update_irq(l);
}

static void write_scntl1(struct lsi *l, uint8_t val)
{
	const bool rises = (val & SCNTL1_RST) && !(l->reg[SCNTL1] & SCNTL1_RST);

	l->reg[SCNTL1] = val & (uint8_t)~SCNTL1_CON;
	if (!rises)
		return;
	lsi_bus_reset(l);
	lsi_interrupt(l, 0, SIST0_RST, 0);
}

static void write_stime1(struct lsi *l, uint8_t val)
{
	l->reg[STIME1] = val;
	if (val & 15)
		timer_arm(&l->gen_timer, clock_raw_ns() + (GEN_UNIT_NS << ((val & 15) - 1)));
	else
		timer_cancel(&l->gen_timer);
}

void lsi_reg_write(struct lsi *l, unsigned off, uint8_t val)
{
	uint8_t *r = l->reg;

	switch (off) {
	case SCNTL1: write_scntl1(l, val); break;
	case SSID:
	case SBCL:
	case DSTAT:
	case SSTAT0:
	case SSTAT1:
	case SSTAT2:
	case ISTAT1:
	case CTEST1:
	case SIST0:
	case SIST1:
	case STEST4: break; /* read only */
	case ISTAT0: write_istat0(l, val); break;
	case CTEST3: r[CTEST3] = val & 0x01; break; /* flushing and clearing FIFOs that are never filled */
	case MACNTL: r[MACNTL] = (uint8_t)(0xd0 | (val & 15)); break;
	case STIME1: write_stime1(l, val); break;
	case DSP + 3:
		r[off] = val;
		if (!(r[DMODE] & DMODE_MAN))
			start_script(l);
		break;
	case DCNTL:
		r[off] = val & (uint8_t)~DCNTL_STD;
		if (val & DCNTL_STD)
			start_script(l);
		lsi_update_irq(l);
		break;
	case DIEN:
	case SIEN0:
	case SIEN1:
		r[off] = val;
		lsi_update_irq(l);
		break;
	default: r[off] = val; break;
	}
}

static uint64_t mmio_read(void *opaque, uint64_t off, unsigned size)
{
	return lsi_reg_read(opaque, off & (LSI_REG_SIZE - 1));
}

static void mmio_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	lsi_reg_write(opaque, off & (LSI_REG_SIZE - 1), (uint8_t)val);
}

static const struct region_ops mmio_ops = {mmio_read, mmio_write, 1, 1};

static uint64_t ram_read(void *opaque, uint64_t off, unsigned size)
{
	const struct lsi *l = opaque;
	uint64_t val = 0;

	memcpy(&val, l->ram + off, size);
	return val;
}

static void ram_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct lsi *l = opaque;

	memcpy(l->ram + off, &val, size);
}

static const struct region_ops ram_ops = {ram_read, ram_write, 1, 8};

/* ---- life cycle ------------------------------------------------------------------------------- */

static struct lsi *lsi_of(struct dev *d)
{
	return container_of(d, struct lsi, pci.dev);
}

/* Main thread, which runs the loop; the vCPUs are stopped. */
static void end_commands(struct lsi *l)
{
	pthread_mutex_lock(&l->pci.dev.lock);
	lsi_bus_reset(l);
	pthread_mutex_unlock(&l->pci.dev.lock);
	scsi_bus_drain(&l->bus);
	scsi_bus_abandon(&l->bus);
}

static void lsi_reset(struct dev *d)
{
	struct lsi *l = lsi_of(d);

	end_commands(l);
	pthread_mutex_lock(&d->lock);
	soft_reset(l);
	pci_reset_common(&l->pci);
	pthread_mutex_unlock(&d->lock);
}

static int lsi_pause(struct dev *d)
{
	struct lsi *l = lsi_of(d);

	pthread_mutex_lock(&d->lock);
	l->paused = true;
	pthread_mutex_unlock(&d->lock);
	scsi_bus_drain(&l->bus);
	return 0;
}

static void lsi_resume(struct dev *d)
{
	struct lsi *l = lsi_of(d);

	pthread_mutex_lock(&d->lock);
	l->paused = false;
	lsi_wake(l);
	pthread_mutex_unlock(&d->lock);
	scsi_bus_resume(&l->bus);
}

static void lsi_unrealize(struct dev *d)
{
	struct lsi *l = lsi_of(d);

	l->run = LSI_HALTED;
	end_commands(l);
	while (l->posted) /* a posted lsi_run_loop still points here */
		loop_run_once(l->bus.loop, 0);
	timer_cancel_sync(&l->gen_timer);
	timer_cancel_sync(&l->later);
	scsi_bus_fini(&l->bus);
	lsi_free_spare(l);
	pci_unregister(&l->pci);
}

static int lsi_realize(struct dev *d, struct err *err)
{
	struct lsi *l = lsi_of(d);
	struct pci_dev *p = &l->pci;
	int ret;

	p->vendor = 0x1000;
	p->device = 0x0012;
	p->subsys_id = 0x1000;
	p->subsys_vendor = 0x1000;
	p->class_code = 0x010000;
	p->intx_pin = 1;
	pci_add_bar(p, 0, PCI_BAR_IO, false, "lsi-io", LSI_REG_SIZE, &mmio_ops, l);
	pci_add_bar(p, 1, PCI_BAR_MEM32, false, "lsi-registers", 1024, &mmio_ops, l);
	pci_add_bar(p, 2, PCI_BAR_MEM32, false, "lsi-ram", LSI_RAM_SIZE, &ram_ops, l);
	ret = pci_register(p, err);
	if (ret)
		return ret;
	timer_init(&l->gen_timer, d->bus->loop, gen_fired, l);
	timer_init(&l->later, d->bus->loop, later_fired, l);
	l->bus = (struct scsi_bus){
	    .hba = d, .loop = d->bus->loop, .max_target = 15, .max_lun = 7, .own_id = 7, .keeps_sense = true};
	scsi_bus_init(&l->bus);
	soft_reset(l);
	return 0;
}

static const struct prop no_props[] = {{0}};

#define OFFSET(f) offsetof(struct lsi, f)
static const struct counter lsi_counters[] = {
    {"instructions", OFFSET(instructions), "SCRIPTS instructions"},
    {"commands", OFFSET(commands), "SCSI commands"},
    {"interrupts", OFFSET(irqs), "interrupts raised"},
    {"disconnects", OFFSET(disconnects), "commands that let go of the bus"},
    {"reselects", OFFSET(reselects), "and came back"},
    {0},
};

#define LSI_DEVICE(symbol, type_name, type_about)                                                                      \
	const struct dev_ops symbol = {                                                                                \
	    .type = {.name = type_name,                                                                                \
		     .about = type_about,                                                                              \
		     .parent = "pci-device",                                                                           \
		     .size = sizeof(struct lsi),                                                                       \
		     .props = no_props},                                                                               \
	    .bus_kind = DEV_BUS_PCI,                                                                                   \
	    .user_creatable = true,                                                                                    \
	    .realize = lsi_realize,                                                                                    \
	    .unrealize = lsi_unrealize,                                                                                \
	    .reset = lsi_reset,                                                                                        \
	    .pause = lsi_pause,                                                                                        \
	    .resume = lsi_resume,                                                                                      \
	    .state = &lsi_state,                                                                                       \
	    .counters = lsi_counters,                                                                                  \
	}

LSI_DEVICE(lsi53c895a_ops, "lsi53c895a", "LSI 53C895A SCSI adapter");
LSI_DEVICE(lsi_ops, "lsi", "the same as lsi53c895a"); /* QEMU's alias */
