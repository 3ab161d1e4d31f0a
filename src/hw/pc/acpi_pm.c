/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Power management function of the PIIX4 (82371AB data sheet, chapter 7; ACPI
 * 6.4, 4.8): PM1 event and control registers, the 24-bit timer at 3.579545 MHz,
 * the general-purpose event block, and the APM ports that switch ACPI on.
 * Entering S5 turns the machine off; S3 and S4 are not modelled.
 *
 * Locking: everything under dev.lock.
 */
#include "hw/pc/acpi_pm.h"
#include <errno.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "bus/pci.h"
#include "hw/pc/devices.h"

#define PM_TIMER_HZ  3579545ull
#define PM_TIMER_MSB BIT(23) /* toggling it is the timer's event */

/* PM1 status and enable bits */
#define PM1_TMR	       BIT(0)
#define PM1_GBL	       BIT(5)
#define PM1_PWRBTN     BIT(8)
#define PM1_RTC	       BIT(10)
#define PM1_WAK	       BIT(15)
#define PM1_STS_W1C    (PM1_TMR | BIT(4) | PM1_GBL | PM1_PWRBTN | PM1_RTC | PM1_WAK)
#define PM1_EN_MASK    (PM1_TMR | PM1_GBL | PM1_PWRBTN | PM1_RTC)
#define PM1_SCI_EN     BIT(0)
#define PM1_CNT_MASK   (BIT(1) | BIT(2) | 0x1c00) /* BM_RLD, GBL_RLS, SLP_TYP */
#define PM1_SLP_TYP(v) ((v) >> 10 & 7)
#define PM1_SLP_EN     BIT(13)

#define PMBA_MASK	 0xffc0u
#define PMREGMISC_PMIOSE BIT(0) /* decode the block at PMBA */

struct acpi_pm {
	struct pci_dev pci;
	struct mem_region block, apm;
	uint16_t sts, en, cnt;
	uint16_t gpe_sts, gpe_en;
	uint64_t toggle_tick; /* timer value at which the MSB next toggles, since TMR_STS was cleared */
	struct vmtimer timer;
	uint8_t apm_cnt, apm_sts;
};

/* ---- timer and interrupt ----------------------------------------------- */

static uint64_t acpi_pm_ticks(const struct acpi_pm *s)
{
	return muldiv64(vmclock_ns(s->pci.dev.bus->clock), PM_TIMER_HZ, NSEC_PER_SEC);
}

/* The status register with the timer's bit as of now. */
static uint16_t acpi_pm_status(struct acpi_pm *s)
{
	if (acpi_pm_ticks(s) >= s->toggle_tick)
		s->sts |= PM1_TMR;
	return s->sts;
}

/* Set the SCI line and, when the guest waits for the timer's event, a host timer for it. */
static void acpi_pm_update(struct acpi_pm *s)
{
	uint16_t sts = acpi_pm_status(s);
	bool sci = (s->cnt & PM1_SCI_EN) && ((sts & s->en) || (s->gpe_sts & s->gpe_en));

	irq_set(&s->pci.dev.bus->gsi[ACPI_PM_SCI], sci);
	if ((s->en & PM1_TMR) && !(sts & PM1_TMR))
		/* round up, so that the tick has come when the timer fires */
		vmtimer_arm(&s->timer, muldiv64(s->toggle_tick, NSEC_PER_SEC, PM_TIMER_HZ) + 1);
	else
		vmtimer_cancel(&s->timer);
}

static void acpi_pm_timer_fired(void *opaque)
{
	struct acpi_pm *s = opaque;

	pthread_mutex_lock(&s->pci.dev.lock);
	acpi_pm_update(s);
	pthread_mutex_unlock(&s->pci.dev.lock);
}

static void acpi_pm_event(struct dev *d, uint16_t bit)
{
	struct acpi_pm *s = container_of(d, struct acpi_pm, pci.dev);

	pthread_mutex_lock(&d->lock);
	s->sts |= bit;
	acpi_pm_update(s);
	pthread_mutex_unlock(&d->lock);
}

void acpi_pm_power_button(struct dev *d)
{
	acpi_pm_event(d, PM1_PWRBTN);
}

void acpi_pm_rtc_alarm(struct dev *d)
{
	acpi_pm_event(d, PM1_RTC);
}

/* ---- registers --------------------------------------------------------- */

static void acpi_pm_write_cnt(struct acpi_pm *s, uint16_t val)
{
	struct bus *bus = s->pci.dev.bus;

	/* SCI_EN is the firmware's: it follows the APM port. */
	s->cnt = (s->cnt & PM1_SCI_EN) | (val & PM1_CNT_MASK);
	if (!(val & PM1_SLP_EN))
		return;
	if (PM1_SLP_TYP(val) == ACPI_SLP_TYP_S5)
		bus->request(bus->opaque, VM_SHUTDOWN, 0, "guest-shutdown");
	else
		log_diag(LOG_UNIMP, "acpi: sleep type %u is not modelled", (unsigned)PM1_SLP_TYP(val));
}

/* The block as 16-bit registers; the timer is two of them. */
static uint16_t acpi_pm_reg_read(struct acpi_pm *s, unsigned reg)
{
	switch (reg) {
	case ACPI_PM_EVT: return acpi_pm_status(s);
	case ACPI_PM_EVT + 2: return s->en;
	case ACPI_PM_CNT: return s->cnt;
	case ACPI_PM_GPE0: return s->gpe_sts;
	case ACPI_PM_GPE0 + 2: return s->gpe_en;
	default: return 0;
	}
}

static void acpi_pm_reg_write(struct acpi_pm *s, unsigned reg, uint16_t val)
{
	switch (reg) {
	case ACPI_PM_EVT:
		acpi_pm_status(s);
		s->sts &= (uint16_t) ~(val & PM1_STS_W1C);
		if (val & PM1_TMR)
			s->toggle_tick = (acpi_pm_ticks(s) & ~(PM_TIMER_MSB - 1)) + PM_TIMER_MSB;
		break;
	case ACPI_PM_EVT + 2: s->en = val & PM1_EN_MASK; break;
	case ACPI_PM_CNT: acpi_pm_write_cnt(s, val); break;
	case ACPI_PM_GPE0: s->gpe_sts &= (uint16_t)~val; break;
	case ACPI_PM_GPE0 + 2: s->gpe_en = val; break;
	default: break;
	}
	acpi_pm_update(s);
}

static uint64_t acpi_pm_read(void *opaque, uint64_t off, unsigned size)
{
	struct acpi_pm *s = opaque;
	uint64_t val = 0;

	if (ALIGN_DOWN(off, 4ull) == ACPI_PM_TMR) {
		uint64_t ticks = acpi_pm_ticks(s) & (2 * PM_TIMER_MSB - 1);

		return ticks >> ((off & 3) * 8);
	}
	for (unsigned i = 0; i < size; i++) {
		uint16_t reg = acpi_pm_reg_read(s, (unsigned)ALIGN_DOWN(off + i, 2ull));

		val |= (uint64_t)(((off + i) & 1) ? reg >> 8 : reg & 0xff) << (i * 8);
	}
	return val;
}

static void acpi_pm_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct acpi_pm *s = opaque;

	if (size == 1) {
		/* One half of a register: the other half keeps its value, status bits stay as they are. */
		unsigned reg = (unsigned)ALIGN_DOWN(off, 2ull);
		bool w1c = reg == ACPI_PM_EVT || reg == ACPI_PM_GPE0;
		uint16_t old = w1c ? 0 : acpi_pm_reg_read(s, reg);

		val = (off & 1) ? (old & 0xff) | val << 8 : (old & 0xff00) | val;
		acpi_pm_reg_write(s, reg, (uint16_t)val);
		return;
	}
	for (unsigned i = 0; i < size; i += 2)
		acpi_pm_reg_write(s, (unsigned)ALIGN_DOWN(off, 2ull) + i, (uint16_t)(val >> (i * 8)));
}

static const struct region_ops acpi_pm_block_ops = {
    .read = acpi_pm_read,
    .write = acpi_pm_write,
    .min_size = 1,
    .max_size = 4,
};

static uint64_t acpi_pm_apm_read(void *opaque, uint64_t off, unsigned size)
{
	struct acpi_pm *s = opaque;

	return off ? s->apm_sts : s->apm_cnt;
}

/* On a PC this raises an SMI and the firmware sets SCI_EN; here the device does it. */
static void acpi_pm_apm_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct acpi_pm *s = opaque;

	if (off) {
		s->apm_sts = (uint8_t)val;
		return;
	}
	s->apm_cnt = (uint8_t)val;
	if (val == ACPI_APM_ENABLE)
		s->cnt |= PM1_SCI_EN;
	else if (val == ACPI_APM_DISABLE)
		s->cnt &= (uint16_t)~PM1_SCI_EN;
	acpi_pm_update(s);
}

static const struct region_ops acpi_pm_apm_ops = {
    .read = acpi_pm_apm_read,
    .write = acpi_pm_apm_write,
    .min_size = 1,
    .max_size = 1,
};

/* ---- device ------------------------------------------------------------ */

/* Decode the block where PMBA says, if PMREGMISC says so. */
static void acpi_pm_config_written(struct pci_dev *p, unsigned off, unsigned len)
{
	struct acpi_pm *s = container_of(p, struct acpi_pm, pci);
	struct ports *ports = p->dev.bus->ports;
	uint32_t base = ld32le(&p->config[ACPI_PM_CONFIG_BASE]) & PMBA_MASK;
	bool on = (p->config[ACPI_PM_CONFIG_MISC] & PMREGMISC_PMIOSE) && base;

	if (s->block.mapped && (!on || s->block.addr != base))
		ports_unmap(ports, &s->block);
	if (on && !s->block.mapped)
		ports_map(ports, &s->block, (uint16_t)base);
}

static void acpi_pm_reset(struct dev *d)
{
	struct acpi_pm *s = container_of(d, struct acpi_pm, pci.dev);
	struct pci_dev *p = &s->pci;

	pci_reset_common(p);
	st16le(&p->config[0x06], 0x0280); /* DEVSEL medium, fast back-to-back */
	st32le(&p->config[ACPI_PM_CONFIG_BASE], 1);
	p->config[ACPI_PM_CONFIG_MISC] = 0;
	p->config[ACPI_PM_CONFIG_DEVACTB + 3] =
	    0x02; /* APMC enabled: firmware sees that SMM is set up, there is none */
	acpi_pm_config_written(p, ACPI_PM_CONFIG_BASE, 4);
	s->sts = s->en = s->cnt = s->gpe_sts = s->gpe_en = 0;
	s->apm_cnt = s->apm_sts = 0;
	s->toggle_tick = (acpi_pm_ticks(s) & ~(PM_TIMER_MSB - 1)) + PM_TIMER_MSB;
	acpi_pm_update(s);
}

static int acpi_pm_realize(struct dev *d, struct err *err)
{
	struct acpi_pm *s = container_of(d, struct acpi_pm, pci.dev);
	struct pci_dev *p = &s->pci;
	int r;

	p->devfn = ACPI_PM_DEVFN;
	p->vendor = 0x8086;
	p->device = 0x7113;
	p->subsys_vendor = 0x1af4;
	p->subsys_id = 0x1100;
	p->class_code = 0x068000;
	p->revision = 3;
	r = pci_register(p, err);
	if (r)
		return r;
	st32le(&p->wmask[ACPI_PM_CONFIG_BASE], PMBA_MASK);
	p->wmask[ACPI_PM_CONFIG_MISC] = PMREGMISC_PMIOSE;
	p->config_written = acpi_pm_config_written;
	s->block = (struct mem_region){
	    .name = "acpi-pm", .size = ACPI_PM_SIZE, .ops = &acpi_pm_block_ops, .opaque = s, .lock = &d->lock};
	s->apm = (struct mem_region){.name = "apm", .size = 2, .ops = &acpi_pm_apm_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->apm, ACPI_APM_CNT);
	vmtimer_init(&s->timer, d->bus->clock, d->bus->loop, acpi_pm_timer_fired, s);
	return 0;
}

static void acpi_pm_unrealize(struct dev *d)
{
	struct acpi_pm *s = container_of(d, struct acpi_pm, pci.dev);

	vmtimer_fini(&s->timer);
	ports_unmap(d->bus->ports, &s->apm);
	ports_unmap(d->bus->ports, &s->block);
	pci_unregister(&s->pci);
}

static const struct state_field acpi_pm_fields[] = {
    STATE_INT(struct acpi_pm, sts),
    STATE_INT(struct acpi_pm, en),
    STATE_INT(struct acpi_pm, cnt),
    STATE_INT(struct acpi_pm, gpe_sts),
    STATE_INT(struct acpi_pm, gpe_en),
    STATE_INT(struct acpi_pm, toggle_tick),
    STATE_INT(struct acpi_pm, apm_cnt),
    STATE_INT(struct acpi_pm, apm_sts),
    STATE_INT(struct acpi_pm, timer.guest_deadline),
    {0},
};

static int acpi_pm_post_load(void *obj, struct err *err)
{
	struct acpi_pm *s = obj;

	pthread_mutex_lock(&s->pci.dev.lock);
	acpi_pm_config_written(&s->pci, ACPI_PM_CONFIG_BASE, 4);
	pthread_mutex_unlock(&s->pci.dev.lock);
	return 0;
}

static const struct state acpi_pm_state = {.name = "acpi-pm",
					   .version = 1,
					   .min_version = 1,
					   .parent = &pci_state,
					   .fields = acpi_pm_fields,
					   .post_load = acpi_pm_post_load};

const struct dev_ops acpi_pm_ops = {
    .type = {.name = "PIIX4_PM",
	     .about = "ACPI power management of the pc board",
	     .parent = "pci-device",
	     .size = sizeof(struct acpi_pm)},
    .bus_kind = DEV_BUS_PCI,
    .realize = acpi_pm_realize,
    .unrealize = acpi_pm_unrealize,
    .reset = acpi_pm_reset,
    .state = &acpi_pm_state,
};
