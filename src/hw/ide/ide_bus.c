// SPDX-License-Identifier: GPL-2.0-or-later
/* Names and places on IDE buses. Main loop's thread, vCPUs stopped. */
#include "hw/ide/ide.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "hw/ide/controllers.h"

/* Every type that has IDE buses. */
static const struct {
	const struct dev_ops *ops;
	struct ide_bus *(*bus)(struct dev *d, unsigned i); /* NULL: no more */
} hosts[] = {
    {&piix3_ide_ops, piix3_ide_bus},
    {&ich9_ahci_ops, ahci_bus},
    {&ahci_ops, ahci_bus},
};

/* The n-th bus of the machine, or NULL. */
static struct ide_bus *bus_at(struct bus *bus, unsigned n)
{
	for (struct dev *d = bus->devices; d; d = d->next)
		for (size_t h = 0; h < ARRAY_SIZE(hosts); h++) {
			struct ide_bus *b;

			if (d->ops != hosts[h].ops)
				continue;
			for (unsigned i = 0; (b = hosts[h].bus(d, i)) != NULL; i++)
				if (n-- == 0)
					return b;
		}
	return NULL;
}

void ide_bus_init(struct ide_bus *b, struct dev *controller, unsigned i)
{
	unsigned first = 0;

	for (unsigned k = 0; bus_at(controller->bus, k); k++)
		if (!strncmp(bus_at(controller->bus, k)->name, "ide.", 4))
			first++;
	b->controller = controller;
	if (controller->id)
		snprintf(b->name, sizeof(b->name), "%.30s.%u", controller->id, i);
	else
		snprintf(b->name, sizeof(b->name), "ide.%u", first + i);
}

static int bus_free_unit(const struct ide_bus *b)
{
	for (unsigned i = 0; i < b->nunits; i++)
		if (!b->unit[i])
			return (int)i;
	return -1;
}

/* By name, or the first with a free unit. */
static struct ide_bus *bus_choose(struct bus *bus, const char *name, struct err *err)
{
	struct ide_bus *b;

	for (unsigned i = 0; (b = bus_at(bus, i)) != NULL; i++)
		if (name ? !strcmp(b->name, name) : bus_free_unit(b) >= 0)
			return b;
	if (name)
		err_set(err, -ENOENT, "Bus '%.60s' not found", name);
	else
		err_set(err, -ENOSPC, "No IDE bus has a free place");
	return NULL;
}

int ide_bus_attach(struct ata_dev *d, struct dev *owner, const char *name, int unit, struct err *err)
{
	struct ide_bus *b = bus_choose(d->bus, name, err);

	if (!b)
		return -ENOENT;
	if (unit < 0)
		unit = bus_free_unit(b);
	if (unit < 0)
		return err_set(err, -ENOSPC, "IDE bus '%s' is full", b->name);
	if ((unsigned)unit >= b->nunits)
		return err_set(err, -EINVAL, "Can't create IDE unit %d, bus '%s' supports only %u units", unit, b->name,
			       b->nunits);
	if (b->unit[unit])
		return err_set(err, -EBUSY, "IDE unit %d of bus '%s' is in use", unit, b->name);
	d->lock = &b->controller->lock;
	d->ops = b->ops;
	d->port = b->port;
	d->sata = b->sata;
	d->slave = unit == 1;
	pthread_mutex_lock(d->lock);
	b->unit[unit] = d;
	ata_power_on(d);
	pthread_mutex_unlock(d->lock);
	return 0;
}

void ide_bus_detach(struct ata_dev *d)
{
	struct ide_bus *b;

	for (unsigned i = 0; (b = bus_at(d->bus, i)) != NULL; i++)
		for (unsigned u = 0; u < IDE_BUS_UNITS; u++)
			if (b->unit[u] == d) {
				pthread_mutex_lock(d->lock);
				b->unit[u] = NULL;
				pthread_mutex_unlock(d->lock);
			}
}
