/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A PCI device under several threads at once: BARs that move while others access them,
 * MSI-X masks that change while vectors fire, INTx from threads without the device's
 * lock. Every message must arrive, once per mask at least; the thread sanitizer watches.
 */
#include <errno.h>
#include <stdlib.h>
#include "bus/pci.h"
#include "rig.h"

#define ROUNDS	20000
#define VECTORS 3
#define DEVFN	0x20

struct toy {
	struct pci_dev pci;
	unsigned accesses; /* under dev.lock */
};

static uint64_t toy_read(void *opaque, uint64_t off, unsigned size)
{
	return ++((struct toy *)opaque)->accesses;
}

static void toy_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	((struct toy *)opaque)->accesses++;
}

static const struct region_ops toy_region_ops = {.read = toy_read, .write = toy_write};

static int toy_realize(struct dev *d, struct err *err)
{
	struct toy *t = container_of(d, struct toy, pci.dev);

	t->pci.devfn = DEVFN;
	t->pci.intx_pin = 1;
	pci_add_bar(&t->pci, 0, PCI_BAR_IO, false, "toy-io", 32, &toy_region_ops, t);
	pci_add_bar(&t->pci, 1, PCI_BAR_MEM32, false, "toy-mem", 4096, &toy_region_ops, t);
	if (pci_register(&t->pci, err))
		return -EINVAL;
	return pci_msix_init(&t->pci, VECTORS, 1, 0x800, 0xc00, err);
}

static void toy_unrealize(struct dev *d)
{
	pci_unregister(&container_of(d, struct toy, pci.dev)->pci);
}

static const struct dev_ops toy_ops = {
    .type = {.name = "toy", .about = "test device", .parent = "pci-device", .size = sizeof(struct toy)},
    .bus_kind = DEV_BUS_PCI,
    .realize = toy_realize,
    .unrealize = toy_unrealize,
};

struct stress {
	struct rig r;
	struct toy *toy;
	_Atomic unsigned sent[VECTORS], notified[VECTORS];
	_Atomic int level;
	_Atomic bool stop;
};

static void stress_msi(void *opaque, uint64_t addr, uint32_t data)
{
	((struct stress *)opaque)->sent[data % VECTORS]++;
}

static const struct msi_ops stress_msi_ops = {.send = stress_msi};

static void stress_gsi(void *opaque, int n, int level)
{
	if (n == 11)
		((struct stress *)opaque)->level = level;
}

static void config(struct stress *s, unsigned off, uint32_t val, unsigned size)
{
	pci_config_write(s->r.bus.pci, DEVFN, off, val, size);
}

/* A vCPU that reprograms the device. */
static void *mover(void *arg)
{
	struct stress *s = arg;
	unsigned seed = 1;

	for (int i = 0; i < ROUNDS / 10; i++) {
		config(s, 0x10, 0xd000 + (unsigned)rand_r(&seed) % 4 * 32, 4);
		config(s, 0x14, 0xe0000000 + (unsigned)rand_r(&seed) % 4 * 4096, 4);
		config(s, 0x04, rand_r(&seed) % 8 ? 7 : 0x404, 2);
	}
	config(s, 0x14, 0xe0000000, 4);
	config(s, 0x04, 7, 2);
	return NULL;
}

/* A vCPU that uses it, wherever it is. */
static void *user(void *arg)
{
	struct stress *s = arg;
	unsigned seed = 2;

	while (!s->stop) {
		uint64_t bar = 0xe0000000 + (unsigned)rand_r(&seed) % 4 * 4096;

		mem_read(&s->r.mem, bar + (unsigned)rand_r(&seed) % 0x800, 4);
		mem_write(&s->r.mem, bar + 0x80c + (unsigned)rand_r(&seed) % VECTORS * 16, rand_r(&seed) & 1, 4);
		mem_read(&s->r.mem, bar + 0xc00, 8);
		ports_read(s->r.bus.ports, (uint16_t)(0xd000 + (unsigned)rand_r(&seed) % 128), 1);
		pci_config_read(s->r.bus.pci, DEVFN, 0x06, 2);
	}
	return NULL;
}

/* An I/O thread of the device. */
static void *notifier(void *arg)
{
	struct stress *s = arg;
	unsigned seed = 3;

	for (int i = 0; i < ROUNDS; i++) {
		unsigned v = (unsigned)rand_r(&seed) % VECTORS;

		s->notified[v]++;
		pci_msix_notify(&s->toy->pci, v);
		pci_set_intx(&s->toy->pci, rand_r(&seed) & 1);
	}
	return NULL;
}

static void test_stress(void **state)
{
	struct stress *s = calloc(1, sizeof(*s));
	pthread_t t[4];
	unsigned cap;

	rig_init(&s->r, 1);
	for (int i = 0; i < 24; i++)
		s->r.bus.gsi[i] = (struct irq){stress_gsi, s, i};
	s->r.bus.msi = &stress_msi_ops;
	s->r.bus.msi_opaque = s;
	rig_dev(&s->r, &i440fx_ops, NULL);
	rig_dev(&s->r, &piix3_ops, NULL);
	s->toy = container_of(rig_dev(&s->r, &toy_ops, NULL), struct toy, pci.dev);
	for (unsigned i = 0; i < 4; i++)
		pci_config_write(s->r.bus.pci, 8, 0x60 + i, 11, 1);
	cap = pci_config_read(s->r.bus.pci, DEVFN, 0x34, 1);
	config(s, 0x14, 0xe0000000, 4);
	config(s, 0x04, 7, 2);
	for (unsigned v = 0; v < VECTORS; v++)
		mem_write(&s->r.mem, 0xe0000808 + v * 16, v, 4);
	config(s, cap + 2, 0x8000, 2);

	pthread_create(&t[0], NULL, mover, s);
	pthread_create(&t[1], NULL, user, s);
	pthread_create(&t[2], NULL, user, s);
	pthread_create(&t[3], NULL, notifier, s);
	pthread_join(t[3], NULL);
	pthread_join(t[0], NULL);
	s->stop = true;
	pthread_join(t[1], NULL);
	pthread_join(t[2], NULL);

	/* What was masked comes out, nothing comes out twice, and nothing is left. */
	for (unsigned v = 0; v < VECTORS; v++)
		mem_write(&s->r.mem, 0xe000080c + v * 16, 0, 4);
	assert_int_equal(mem_read(&s->r.mem, 0xe0000c00, 8), 0);
	for (unsigned v = 0; v < VECTORS; v++) {
		unsigned before = s->sent[v];

		assert_true(before > 0 && before <= s->notified[v]);
		pci_msix_notify(&s->toy->pci, v);
		assert_int_equal(s->sent[v], before + 1);
	}
	pci_set_intx(&s->toy->pci, 1);
	assert_int_equal(s->level, 1);
	pci_set_intx(&s->toy->pci, 0);
	assert_int_equal(s->level, 0);
	assert_true(s->toy->accesses > 0);
	rig_fini(&s->r);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_stress)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
