/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Intel 440FX host bridge (82441FX data sheet): the PCI bus, configuration
 * mechanism 1 (ports 0xCF8 and 0xCFC), and the reset control register of the
 * PIIX3 at 0xCF9, which lies between them. The memory attribute registers (PAM,
 * SMRAM) are kept but have no effect: low memory is RAM throughout.
 *
 * Locking: CONFIG_ADDRESS is under config_lock, not dev.lock: an access goes on to take
 * the lock of the device it configures, which may be the bridge itself.
 */
#include <errno.h>
#include "base/log.h"
#include "base/util.h"
#include "bus/pci.h"
#include "hw/pc/devices.h"

#define CONFIG_ADDRESS	   0xcf8
#define CONFIG_PORTS	   8
#define CONFIG_DATA_OFFSET 4 /* 0xCFC */
#define CONFIG_ENABLE	   BIT(31)
#define CONFIG_ELSEWHERE   0x7fff0000u /* reserved bits, extended registers, other buses: nobody is there */
#define RCR_OFFSET	   1	       /* 0xCF9 */
#define RCR_HARD	   BIT(1)
#define RCR_CPU		   BIT(2) /* 0 to 1: reset */

#define I440FX_PMCCFG 0x50
#define I440FX_DRB    0x60
#define I440FX_PAM0   0x59
#define I440FX_PAM6   0x5f
#define I440FX_SMRAM  0x72

struct i440fx {
	struct pci_dev pci;
	pthread_mutex_t config_lock;
	uint32_t config_address;
	uint8_t rcr;
	struct mem_region ports;
};

static void i440fx_write_rcr(struct i440fx *s, uint8_t val)
{
	struct bus *bus = s->pci.dev.bus;
	bool edge = (val & RCR_CPU) && !(s->rcr & RCR_CPU);

	s->rcr = val & (RCR_HARD | RCR_CPU);
	if (edge) {
		s->rcr &= (uint8_t)~RCR_CPU;
		bus->request(bus->opaque, VM_RESET, 0, "port 0xcf9");
	}
}

static uint64_t i440fx_port_read(void *opaque, uint64_t off, unsigned size)
{
	struct i440fx *s = opaque;
	uint32_t a = s->config_address;

	if (off >= CONFIG_DATA_OFFSET) {
		if (!(a & CONFIG_ENABLE) || (a & CONFIG_ELSEWHERE))
			return UINT32_MAX;
		return pci_config_read(s->pci.dev.bus->pci, a >> 8 & 0xff, (a & 0xfc) | (off & 3), size);
	}
	if (off == 0 && size == 4)
		return a;
	if (off == RCR_OFFSET && size == 1)
		return s->rcr;
	return UINT32_MAX;
}

static void i440fx_port_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct i440fx *s = opaque;
	uint32_t a = s->config_address;

	if (off >= CONFIG_DATA_OFFSET) {
		if ((a & CONFIG_ENABLE) && !(a & CONFIG_ELSEWHERE))
			pci_config_write(s->pci.dev.bus->pci, a >> 8 & 0xff, (a & 0xfc) | (off & 3), (uint32_t)val,
					 size);
	} else if (off == 0 && size == 4) {
		s->config_address = (uint32_t)val & ~3u;
	} else if (off == RCR_OFFSET && size == 1) {
		i440fx_write_rcr(s, (uint8_t)val);
	}
}

static const struct region_ops i440fx_port_ops = {
    .read = i440fx_port_read,
    .write = i440fx_port_write,
    .min_size = 1,
    .max_size = 4,
};

static void i440fx_reset(struct dev *d)
{
	struct i440fx *s = container_of(d, struct i440fx, pci.dev);

	pci_reset_common(&s->pci);
	st16le(&s->pci.config[0x04], 0x0006); /* memory and master: hard-wired */
	memset(&s->pci.config[I440FX_PMCCFG], 0, 0x80 - I440FX_PMCCFG);
	s->pci.config[I440FX_SMRAM] = 0x02;
	/* The BIOS area is RAM that holds the ROM's copy, as after shadowing (machine/firmware.c). */
	s->pci.config[I440FX_PAM0] = 0x30;
	memset(&s->pci.config[I440FX_PAM0 + 1], 0x33, I440FX_PAM6 - I440FX_PAM0);
	s->config_address = 0;
	s->rcr = 0;
}

static int i440fx_realize(struct dev *d, struct err *err)
{
	struct i440fx *s = container_of(d, struct i440fx, pci.dev);
	struct pci_dev *p = &s->pci;
	int r;

	p->dev.bus->pci = pci_bus_create(d->bus, "pci.0");
	if (!p->dev.bus->pci)
		return err_set(err, -ENOMEM, "out of memory for the PCI bus");
	pthread_mutex_init(&s->config_lock, NULL);
	p->devfn = 0;
	p->vendor = 0x8086;
	p->device = 0x1237;
	p->subsys_vendor = 0x1af4;
	p->subsys_id = 0x1100;
	p->class_code = 0x060000;
	p->revision = 2;
	r = pci_register(p, err);
	if (r) {
		pthread_mutex_destroy(&s->config_lock);
		pci_bus_destroy(d->bus->pci);
		d->bus->pci = NULL;
		return r;
	}
	memset(&p->wmask[I440FX_PAM0], 0xff, I440FX_PAM6 - I440FX_PAM0 + 1);
	memset(&p->wmask[I440FX_DRB], 0xff, 8);
	p->wmask[I440FX_SMRAM] = 0x7f;
	st16le(&p->wmask[0x04], 0x0100); /* SERR enable only */
	s->ports = (struct mem_region){
	    .name = "pci-config", .size = CONFIG_PORTS, .ops = &i440fx_port_ops, .opaque = s, .lock = &s->config_lock};
	ports_map(d->bus->ports, &s->ports, CONFIG_ADDRESS);
	return 0;
}

static void i440fx_unrealize(struct dev *d)
{
	struct i440fx *s = container_of(d, struct i440fx, pci.dev);

	ports_unmap(d->bus->ports, &s->ports);
	pci_unregister(&s->pci);
	pci_bus_destroy(d->bus->pci);
	d->bus->pci = NULL;
	pthread_mutex_destroy(&s->config_lock);
}

static const struct state_field i440fx_fields[] = {
    STATE_INT(struct i440fx, config_address), STATE_INT(struct i440fx, rcr), {0}};
static const struct state i440fx_state = {
    .name = "i440fx", .version = 1, .min_version = 1, .parent = &pci_state, .fields = i440fx_fields};

const struct dev_ops i440fx_ops = {
    .type = {.name = "i440FX",
	     .about = "host bridge of the pc board",
	     .parent = "pci-device",
	     .size = sizeof(struct i440fx)},
    .bus_kind = DEV_BUS_PCI,
    .realize = i440fx_realize,
    .unrealize = i440fx_unrealize,
    .reset = i440fx_reset,
    .state = &i440fx_state,
};
