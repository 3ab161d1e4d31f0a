/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The board "pc": i440FX and PIIX3 with the usual ISA devices, as QEMU's machine
 * of that name. With -kernel there is no firmware: the board does what a BIOS does
 * before it hands over (addresses of BARs, interrupt routes, tables, MTRRs) and then
 * starts the kernel directly. Without it SeaBIOS runs (firmware.c).
 *
 * Guest-physical memory:
 *	0          RAM up to 3 GB (max-ram-below-4g)
 *	  e0000    ACPI tables     f0000    SMBIOS tables     fc000    MP table
 *	c0000000   PCI memory window, to fec00000; IOAPIC, HPET and LAPIC above
 *	100000000  the rest of RAM, then the 64-bit PCI window
 *
 * Everything here runs in the main loop's thread with the vCPUs stopped, except the
 * callbacks of struct cpu_host (vCPU threads), which only forward to the chips.
 */
#include <errno.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/util.h"
#include "bus/pci.h"
#include "cpu/chips.h"
#include "hw/ide/ide.h"
#include "hw/pc/acpi_pm.h"
#include "hw/pc/devices.h"
#include "hw/pc/fw_cfg.h"
#include "hw/pc/irqchip.h"
#include "machine/acpi.h"
#include "machine/boot.h"
#include "machine/firmware.h"
#include "machine/mptable.h"
#include "machine/smbios.h"
#include "machine/vm_int.h"

#define PC_LOW_MAX	(3 * GIB)
#define PC_PCI_END	0xfec00000ull
#define PC_IO_BASE	0xc000
#define PC_EBDA		0x9fc00ull
#define PC_EBDA_SIZE	0x400ull
#define PC_ACPI_BASE	0xe0000ull
#define PC_SMBIOS_BASE	0xf0000ull
#define PC_MP_BASE	0xfc000ull
#define PC_BIOS_END	0x100000ull
#define PC_KVM_PAGES	0xfffbc000ull /* the KVM engine's on Intel hosts */
#define PC_ROM_BASE	0xfffc0000ull
#define PC_MEM64_SIZE	(32 * GIB)
#define PC_MIN_RAM	(4 * MIB)
#define PC_SERIAL_PORTS 4
#define PIIX3_DEVFN	8
#define PIIX3_PIRQRC	0x60
#define PIIX3_IDE_DEVFN 9
#define PIIX3_IDETIM	0x40 /* a word per channel; bit 15: decode its ports */

/* The board's instance: properties first, then what it made. */
struct pc {
	char *accel; /* -M pc,accel=: read by vm_create */
	bool acpi, hpet, i8042, smbios;
	uint64_t max_below_4g;
	int default_scsi; /* what -drive if=scsi hangs on: read by the command line */

	uint64_t low_size, high_size; /* bytes of RAM below and above 4 GB */
	uint64_t mem64_base, mem64_end;
	struct irqchip *chip; /* NULL when the engine has its own */
	struct dev *pm, *rtc, *hpet_dev, *fpu_error;
	struct boot_file kernel, rom, *initrd;
	bool described, started; /* firmware: fw_cfg has its files; this is not the first start */
	unsigned ninitrd;	 /* opened so far */
};

static const char *const scsi_adapters[] = {"lsi", "virtio", NULL};

static const struct prop pc_props[] = {
    {.name = "accel",
     .kind = PROP_STR,
     .offset = offsetof(struct pc, accel),
     .help = "CPU engines to try in turn, as -accel: kvm:soft"},
    {.name = "acpi",
     .kind = PROP_BOOL,
     .offset = offsetof(struct pc, acpi),
     .def = "on",
     .help = "describe the machine by ACPI tables"},
    {.name = "hpet",
     .kind = PROP_BOOL,
     .offset = offsetof(struct pc, hpet),
     .def = "on",
     .help = "high precision event timers"},
    {.name = "i8042",
     .kind = PROP_BOOL,
     .offset = offsetof(struct pc, i8042),
     .def = "on",
     .help = "PS/2 keyboard controller"},
    {.name = "smbios",
     .kind = PROP_BOOL,
     .offset = offsetof(struct pc, smbios),
     .def = "on",
     .help = "describe the machine by SMBIOS tables"},
    {.name = "max-ram-below-4g",
     .kind = PROP_SIZE,
     .offset = offsetof(struct pc, max_below_4g),
     .def = "3G",
     .help = "RAM below the PCI window, at most 3G"},
    {.name = "default-scsi",
     .kind = PROP_ENUM,
     .offset = offsetof(struct pc, default_scsi),
     .def = "lsi",
     .values = scsi_adapters,
     .help = "adapter of -drive if=scsi: lsi (53C895A) or virtio (virtio-scsi-pci)"},
    {.name = NULL},
};

static struct pc *pc_of(struct vm *vm)
{
	return vm_board(vm);
}

/* ---- interrupts without an in-kernel irqchip ----------------------------- */

static int pc_intr_ack(void *opaque, unsigned cpu)
{
	return irqchip_intr_ack(pc_of(opaque)->chip, cpu);
}

static bool pc_intr_pending(void *opaque, unsigned cpu)
{
	return irqchip_intr_pending(pc_of(opaque)->chip, cpu);
}

static uint64_t pc_tpr_get(void *opaque, unsigned cpu)
{
	return irqchip_tpr_get(pc_of(opaque)->chip, cpu);
}

static void pc_tpr_set(void *opaque, unsigned cpu, uint64_t cr8)
{
	irqchip_tpr_set(pc_of(opaque)->chip, cpu, cr8);
}

static int pc_msr_read(void *opaque, unsigned cpu, uint32_t msr, uint64_t *val)
{
	return irqchip_msr_read(pc_of(opaque)->chip, cpu, msr, val);
}

static int pc_msr_write(void *opaque, unsigned cpu, uint32_t msr, uint64_t val)
{
	return irqchip_msr_write(pc_of(opaque)->chip, cpu, msr, val);
}

static void pc_lapic_reset(void *opaque, unsigned cpu, bool init)
{
	irqchip_lapic_reset(pc_of(opaque)->chip, cpu, init);
}

static uint64_t pc_timer_deadline(void *opaque, unsigned cpu)
{
	return irqchip_timer_deadline(pc_of(opaque)->chip, cpu);
}

static void pc_timer_poll(void *opaque, unsigned cpu)
{
	irqchip_timer_poll(pc_of(opaque)->chip, cpu);
}

static bool pc_x87_error(void *opaque, unsigned cpu, bool error)
{
	return fpu_error_signal(pc_of(opaque)->fpu_error, cpu, error);
}

static void pc_thread_start(struct vm *vm, unsigned index)
{
	irqchip_bind_thread(pc_of(vm)->chip, index);
}

/* APIC IDs of all vCPUs; the caller frees. */
static uint32_t *pc_apic_ids(struct vm *vm)
{
	uint32_t *ids = calloc(vm->cfg->cpus, sizeof(*ids));

	for (unsigned i = 0; ids && i < vm->cfg->cpus; i++)
		ids[i] = vm_apic_id(vm->cfg, i);
	return ids;
}

static int pc_create_irqchip(struct vm *vm, struct err *err)
{
	struct pc *pc = pc_of(vm);
	unsigned ncpus = vm->cfg->cpus;
	uint32_t *ids = pc_apic_ids(vm);

	if (!ids)
		return err_set(err, -ENOMEM, "out of memory for %u CPUs", ncpus);
	pc->chip = irqchip_create(&vm->bus, ncpus, ids, err);
	free(ids);
	if (!pc->chip)
		return err_set(err, -ENOMEM, "cannot make the interrupt controllers");
	for (int i = 0; i < IRQCHIP_GSIS; i++)
		vm->bus.gsi[i] = (struct irq){irqchip_set_gsi, pc->chip, i};
	vm->bus.msi = &irqchip_msi_ops;
	vm->bus.msi_opaque = pc->chip;
	for (unsigned i = 0; i < ncpus; i++)
		irqchip_set_vcpu(pc->chip, i, vm->accel->vcpu[i]);
	vm->host.intr_ack = pc_intr_ack;
	vm->host.intr_pending = pc_intr_pending;
	vm->host.tpr_get = pc_tpr_get;
	vm->host.tpr_set = pc_tpr_set;
	vm->host.apic_msr_read = pc_msr_read;
	vm->host.apic_msr_write = pc_msr_write;
	vm->host.lapic_reset = pc_lapic_reset;
	vm->host.timer_deadline = pc_timer_deadline;
	vm->host.timer_poll = pc_timer_poll;
	vm->host.x87_error = pc_x87_error;
	vm->vcpu_thread_start = pc_thread_start;
	return 0;
}

/* ---- creation ------------------------------------------------------------ */

static int pc_add_ram(struct vm *vm, struct err *err)
{
	struct pc *pc = pc_of(vm);
	uint64_t size = ALIGN_DOWN(vm->cfg->ram_size, PAGE_SIZE);
	struct ram_config ram = vm->cfg->ram;
	int r;

	/* With a path the user says who shares it; the host merges pages of private memory only. */
	ram.share |= vm->accel->wants_shared_ram && !ram.path && !ram.merge;

	if (size < PC_MIN_RAM)
		return err_set(err, -EINVAL, "-m: the pc board needs at least %llu MiB", PC_MIN_RAM / MIB);
	if (pc->max_below_4g < PC_MIN_RAM || pc->max_below_4g > PC_LOW_MAX || pc->max_below_4g % MIB)
		return err_set(err, -EINVAL, "-M pc: max-ram-below-4g must be whole MiB between %llu MiB and 3 GiB",
			       PC_MIN_RAM / MIB);
	pc->low_size = MIN(size, pc->max_below_4g);
	pc->high_size = size - pc->low_size;
	r = mem_add_ram(&vm->mem, "pc.ram", 0, pc->low_size, &ram, false, err);
	if (!r && pc->high_size)
		r = mem_add_ram(&vm->mem, "pc.ram.high", 4 * GIB, pc->high_size, &ram, false, err);
	if (!r && !vm->cfg->kernel)
		r = firmware_map(&vm->mem, &pc->rom, err);
	/* The 64-bit window follows RAM, if the CPU can address it. */
	pc->mem64_base = ALIGN_UP(4 * GIB + pc->high_size, GIB);
	pc->mem64_end = pc->mem64_base + PC_MEM64_SIZE;
	if (vm->model.phys_bits < 37 || pc->mem64_end > BIT(MIN(vm->model.phys_bits, 52u)))
		pc->mem64_base = pc->mem64_end = 0;
	return r;
}

/* A board device with up to one property set. */
static struct dev *pc_add(struct vm *vm, const struct dev_ops *ops, const char *prop, const char *value,
			  struct err *err)
{
	struct dev *d = dev_new_ops(&vm->bus, ops, err);

	if (d && ((prop && value && dev_set(d, prop, value, err)) || dev_realize(d, err))) {
		dev_destroy(d);
		return NULL;
	}
	return d;
}

static int pc_add_serial(struct vm *vm, struct err *err)
{
	for (unsigned i = 0; i < PC_SERIAL_PORTS; i++) {
		char index[2] = {(char)('0' + i), 0};
		struct dev *d;

		if (!vm->cfg->serial[i])
			continue;
		d = dev_new_ops(&vm->bus, &serial_dev_ops, err);
		if (!d)
			return -ENOMEM;
		if (dev_set(d, "index", index, err) || dev_set(d, "chardev", vm->cfg->serial[i], err) ||
		    dev_realize(d, err)) {
			dev_destroy(d);
			return -EINVAL;
		}
	}
	return 0;
}

/* The KVM engine's 8254 shares ISA interrupt 0 with the HPET. */
static void pc_hpet_legacy(void *opaque, bool legacy)
{
	struct accel *a = ((struct vm *)opaque)->accel;

	if (a->ops->irqchip && a->ops->irqchip->pit_legacy)
		a->ops->irqchip->pit_legacy(a, legacy);
}

static int pc_add_devices(struct vm *vm, struct err *err)
{
	struct pc *pc = pc_of(vm);
	struct bus *bus = &vm->bus;

	if (!pc_add(vm, &i440fx_ops, NULL, NULL, err) || !pc_add(vm, &piix3_ops, NULL, NULL, err) ||
	    !pc_add(vm, &piix3_ide_ops, NULL, NULL, err))
		return -EIO;
	pc->pm = pc_add(vm, &acpi_pm_ops, NULL, NULL, err);
	if (!pc->pm || !pc_add(vm, &fw_cfg_ops, NULL, NULL, err))
		return -EIO;
	/* The KVM engine has its own 8254. */
	if (pc->chip && !pc_add(vm, &pit_dev_ops, NULL, NULL, err))
		return -EIO;
	pc->rtc = pc_add(vm, &rtc_dev_ops, "base", vm->cfg->rtc_base, err);
	if (!pc->rtc || !pc_add(vm, &port92_dev_ops, NULL, NULL, err))
		return -EIO;
	pc->fpu_error = pc_add(vm, &fpu_error_dev_ops, NULL, NULL, err);
	if (!pc->fpu_error)
		return -EIO;
	if (pc->i8042 && !pc_add(vm, &i8042_dev_ops, NULL, NULL, err))
		return -EIO;
	if (pc->hpet && !vm->cfg->no_hpet) {
		pc->hpet_dev = pc_add(vm, &hpet_dev_ops, NULL, NULL, err);
		if (!pc->hpet_dev)
			return -EIO;
		hpet_set_legacy_hook(pc->hpet_dev, pc_hpet_legacy, vm);
	}
	pci_bus_set_windows(bus->pci, PC_IO_BASE, PC_LOW_MAX, PC_PCI_END, pc->mem64_base, pc->mem64_end);
	return pc_add_serial(vm, err);
}

static int pc_fill_fw_cfg(struct vm *vm, struct err *err)
{
	struct fw_cfg *f = vm->bus.fw_cfg;
	const struct vm_config *cfg = vm->cfg;
	static const uint8_t no_uuid[16];
	int r = fw_cfg_set(f, FW_CFG_UUID, cfg->have_uuid ? cfg->uuid_bytes : no_uuid, 16, err);

	if (!r)
		r = fw_cfg_set_u64(f, FW_CFG_RAM_SIZE, cfg->ram_size, err);
	if (!r)
		r = fw_cfg_set_u16(f, FW_CFG_NOGRAPHIC, 1, err);
	if (!r)
		r = fw_cfg_set_u16(f, FW_CFG_NB_CPUS, (uint16_t)cfg->cpus, err);
	if (!r)
		r = fw_cfg_set_u16(f, FW_CFG_MAX_CPUS, (uint16_t)cfg->cpus, err);
	for (unsigned i = 0; i < cfg->nfw_cfg && !r; i++)
		r = fw_cfg_add_option(f, cfg->fw_cfg[i], err);
	return r;
}

static int pc_open_files(struct vm *vm, struct err *err)
{
	struct pc *pc = pc_of(vm);
	const struct vm_config *cfg = vm->cfg;
	int r;

	if (!cfg->kernel && cfg->ninitrd)
		return err_set(err, -EINVAL, "-initrd needs -kernel");
	if (!cfg->kernel && cfg->append)
		return err_set(err, -EINVAL, "-append needs -kernel");
	if (cfg->dtb)
		return err_set(err, -EINVAL, "-dtb: the pc board is described by ACPI and takes no device tree");
	if (cfg->kernel && cfg->bios)
		return err_set(err, -EINVAL, "-bios: with -kernel the kernel starts without firmware");
	r = cfg->kernel ? boot_file_open(&pc->kernel, "kernel", cfg->kernel, cfg->ram_size, err)
			: firmware_open(&pc->rom, cfg->bios, err);
	if (r || !cfg->kernel)
		return r;
	pc->initrd = calloc(cfg->ninitrd ? cfg->ninitrd : 1, sizeof(*pc->initrd));
	if (!pc->initrd)
		return err_set(err, -ENOMEM, "out of memory for -initrd");
	while (pc->ninitrd < cfg->ninitrd && !r) {
		r = boot_file_open(&pc->initrd[pc->ninitrd], "initrd", cfg->initrd[pc->ninitrd], cfg->ram_size, err);
		pc->ninitrd += !r;
	}
	return r;
}

static void pc_powerdown(struct vm *vm)
{
	acpi_pm_power_button(pc_of(vm)->pm);
}

static int pc_create(struct vm *vm, struct err *err)
{
	int r = pc_open_files(vm, err);

	if (!r)
		r = pc_add_ram(vm, err);
	if (!r && !vm->accel->ops->irqchip)
		r = pc_create_irqchip(vm, err);
	if (!r)
		r = pc_add_devices(vm, err);
	if (!r)
		r = pc_fill_fw_cfg(vm, err);
	vm->powerdown = pc_powerdown;
	return r;
}

static void pc_destroy(struct vm *vm)
{
	struct pc *pc = pc_of(vm);

	boot_file_close(&pc->kernel);
	boot_file_close(&pc->rom);
	for (unsigned i = 0; i < pc->ninitrd; i++)
		boot_file_close(&pc->initrd[i]);
	free(pc->initrd);
	pc->initrd = NULL;
	pc->ninitrd = 0;
	if (pc->chip)
		irqchip_destroy(pc->chip);
	pc->chip = NULL;
}

static void pc_reset(struct vm *vm)
{
	if (pc_of(vm)->chip)
		irqchip_reset(pc_of(vm)->chip);
}

static struct dev *pc_pit(struct vm *vm)
{
	for (struct dev *d = vm->bus.devices; d; d = d->next)
		if (d->ops == &pit_dev_ops)
			return d;
	return NULL;
}

static void pc_chips_save(struct vm *vm, struct chips *c)
{
	irqchip_save(pc_of(vm)->chip, c);
	pit_chip_save(pc_pit(vm), &c->pit);
}

static void pc_chips_load(struct vm *vm, const struct chips *c)
{
	irqchip_load(pc_of(vm)->chip, c);
	pit_chip_load(pc_pit(vm), &c->pit);
}

/* ---- before the hand-over: what firmware would do ------------------------ */

static const uint8_t pc_pirq_irq[4] = {10, 10, 11, 11};

/* What is in CMOS when the machine is switched on. */
static void pc_fill_cmos(struct vm *vm)
{
	struct pc *pc = pc_of(vm);

	rtc_set_memory(pc->rtc, pc->low_size, pc->high_size);
	rtc_set_cmos(pc->rtc, 0x14, 0x02 | (pc->i8042 ? 0x04 : 0)); /* equipment: FPU, keyboard */
	rtc_set_cmos(pc->rtc, 0x5f, (uint8_t)(vm->cfg->cpus - 1));
}

static void pc_post_chipset(struct vm *vm)
{
	struct pci_bus *pci = vm->bus.pci;

	for (unsigned i = 0; i < ARRAY_SIZE(pc_pirq_irq); i++)
		pci_config_write(pci, PIIX3_DEVFN, PIIX3_PIRQRC + i, pc_pirq_irq[i], 1);
	pci_config_write(pci, ACPI_PM_DEVFN, ACPI_PM_CONFIG_BASE, ACPI_PM_BASE | 1, 4);
	pci_config_write(pci, ACPI_PM_DEVFN, ACPI_PM_CONFIG_MISC, 1, 1);
	pci_config_write(pci, PIIX3_IDE_DEVFN, PIIX3_IDETIM, 0x80008000u, 4);
	pci_bus_place_bars(pci);
	pc_fill_cmos(vm);
}

/* BIOS data area: where the EBDA is and how much memory lies below it. */
static int pc_post_bda(struct vm *vm, struct err *err)
{
	uint16_t segment = PC_EBDA >> 4, kib = PC_EBDA / KIB;
	uint8_t ebda_kib = PC_EBDA_SIZE / KIB;

	if (dma_write(&vm->mem, 0x40e, &segment, 2) || dma_write(&vm->mem, 0x413, &kib, 2) ||
	    dma_write(&vm->mem, PC_EBDA, &ebda_kib, 1))
		return err_set(err, -EIO, "cannot write the BIOS data area");
	return 0;
}

/* Memory types on every CPU: write-back, with the hole below 4 GB uncached. */
#define MTRR_WB		 6ull
#define MTRR_DEF_ENABLE	 (BIT(11) | BIT(10)) /* MTRRs and fixed ranges */
#define MTRR_MASK_VALID	 BIT(11)
#define MTRR_FIXED_16K_A 2 /* index of the range a0000..bffff */
#define MTRR_FIXED_COUNT 11

static int pc_post_mtrr(struct vm *vm, struct err *err)
{
	unsigned bits = MIN(MAX(vm->model.phys_bits, 36u), 52u);
	const struct accel_ops *ops = vm->accel->ops;

	for (unsigned i = 0; i < vm->cfg->cpus; i++) {
		struct vcpu *v = vm->accel->vcpu[i];
		struct cpu_state s;
		int r = ops->get_state(v, &s);

		if (r)
			return err_set_errno(err, r, "cannot read the state of CPU %u", i);
		s.mtrr_def = MTRR_DEF_ENABLE | MTRR_WB;
		for (unsigned f = 0; f < MTRR_FIXED_COUNT; f++)
			s.mtrr_fixed[f] = f == MTRR_FIXED_16K_A ? 0 : MTRR_WB * 0x0101010101010101ull;
		s.mtrr_phys[0] = PC_LOW_MAX; /* type 0: uncached */
		s.mtrr_phys[1] = (BIT(bits) - 1) & ~(4 * GIB - PC_LOW_MAX - 1);
		s.mtrr_phys[1] |= MTRR_MASK_VALID;
		r = ops->set_state(v, &s);
		if (r)
			return err_set_errno(err, r, "cannot set the memory types of CPU %u", i);
	}
	return 0;
}

/* A device's numeric property as it is after realize. */
static uint32_t pc_dev_number(const struct dev *d, const char *prop)
{
	char *text = type_get(&d->ops->type, d, prop);
	uint32_t v = text ? (uint32_t)strtoul(text, NULL, 0) : 0;

	free(text);
	return v;
}

/* What -device or -serial added on the ISA side. */
static void pc_describe_isa(struct vm *vm, struct acpi_config *c)
{
	for (const struct dev *d = vm->bus.devices; d; d = d->next) {
		if (d->ops == &pvpanic_dev_ops) {
			c->pvpanic = true;
			c->pvpanic_port = (uint16_t)pc_dev_number(d, "ioport");
		} else if (d->ops == &serial_dev_ops) {
			uint32_t index = pc_dev_number(d, "index");

			if (index < PC_SERIAL_PORTS)
				c->com[index] = true;
		}
	}
}

static void pc_find_vga(void *arg, struct pci_dev *d)
{
	*(bool *)arg |= d->class_code >> 8 == 0x0300;
}

static int pc_write_image(struct vm *vm, uint64_t gpa, uint8_t *image, size_t len, const char *what, struct err *err)
{
	int r = dma_write(&vm->mem, gpa, image, len);

	free(image);
	return r ? err_set(err, r, "cannot write the %s tables", what) : 0;
}

/* The tables at guest address `base`; *rsdp is the root pointer's, 0 when there are none. */
static int pc_post_acpi(struct vm *vm, uint64_t base, uint64_t room, uint64_t *rsdp, struct err *err)
{
	struct pc *pc = pc_of(vm);
	struct acpi_config c = {
	    .ncpus = vm->cfg->cpus,
	    .hpet = pc->hpet_dev,
	    .i8042 = pc->i8042,
	    .rtc = true,
	    .pci_mem_base = PC_LOW_MAX,
	    .pci_mem_end = PC_PCI_END,
	    .pci_mem64_base = pc->mem64_base,
	    .pci_mem64_end = pc->mem64_end,
	};
	uint32_t *ids = pc_apic_ids(vm);
	uint8_t *image;
	size_t len;
	int r;

	*rsdp = 0;
	if (!ids)
		return err_set(err, -ENOMEM, "out of memory for the ACPI tables");
	c.apic_id = ids;
	pc_describe_isa(vm, &c);
	pci_walk(vm->bus.pci, pc_find_vga, &c.vga);
	r = acpi_build(&c, base, room, &image, &len, rsdp, err);
	free(ids);
	return r ? r : pc_write_image(vm, base, image, len, "ACPI", err);
}

static int pc_post_mptable(struct vm *vm, struct err *err)
{
	uint32_t *ids = pc_apic_ids(vm), leaf1[4];
	struct mptable_config c = {.ncpus = vm->cfg->cpus, .apic_id = ids, .pirq_irq = pc_pirq_irq};
	uint8_t *image;
	size_t len;
	int r;

	if (!ids)
		return err_set(err, -ENOMEM, "out of memory for the MP table");
	cpu_model_cpuid(&vm->model, ids[0], 0, 1, 0, 1, 0, leaf1);
	c.signature = leaf1[0];
	c.features = leaf1[3];
	r = mptable_build(&c, PC_MP_BASE, PC_BIOS_END - PC_MP_BASE, &image, &len, err);
	free(ids);
	return r ? r : pc_write_image(vm, PC_MP_BASE, image, len, "MP", err);
}

static int pc_build_smbios(struct vm *vm, uint8_t **image, size_t *len, struct err *err)
{
	const struct vm_config *cfg = vm->cfg;
	struct pc *pc = pc_of(vm);
	struct smbios_config c = {
	    .uuid = cfg->have_uuid ? cfg->uuid_bytes : NULL,
	    .ram_size = pc->low_size + pc->high_size,
	    .low_end = pc->low_size,
	    .ncpus = cfg->cpus,
	    .sockets = cfg->sockets,
	    .cores = cfg->cores,
	    .threads = cfg->threads,
	    .cpu_version = vm->model.name,
	    .option = cfg->smbios,
	    .noption = cfg->nsmbios,
	};

	return smbios_build(&c, PC_SMBIOS_BASE, PC_MP_BASE - PC_SMBIOS_BASE, image, len, err);
}

static int pc_post_smbios(struct vm *vm, struct err *err)
{
	uint8_t *image;
	size_t len;
	int r = pc_build_smbios(vm, &image, &len, err);

	return r ? r : pc_write_image(vm, PC_SMBIOS_BASE, image, len, "SMBIOS", err);
}

static void pc_e820_add(struct boot_env *env, uint64_t addr, uint64_t end, uint32_t type)
{
	BUG_ON(env->ne820 == BOOT_E820_MAX);
	if (end > addr)
		env->e820[env->ne820++] = (struct boot_e820){addr, end - addr, type};
}

static void pc_fill_e820(const struct pc *pc, struct boot_env *env)
{
	pc_e820_add(env, 0, PC_EBDA, E820_RAM);
	pc_e820_add(env, PC_EBDA, PC_EBDA + PC_EBDA_SIZE, E820_RESERVED);
	pc_e820_add(env, PC_ACPI_BASE, PC_BIOS_END, E820_RESERVED);
	pc_e820_add(env, PC_BIOS_END, pc->low_size, E820_RAM);
	pc_e820_add(env, PC_KVM_PAGES, PC_ROM_BASE, E820_RESERVED);
	pc_e820_add(env, PC_ROM_BASE, 4 * GIB, E820_RESERVED);
	pc_e820_add(env, 4 * GIB, 4 * GIB + pc->high_size, E820_RAM);
}

static int pc_load_kernel(struct vm *vm, uint64_t rsdp, struct err *err)
{
	struct pc *pc = pc_of(vm);
	struct vcpu *bsp = vm->accel->vcpu[0];
	struct boot_env env = {
	    .mem = &vm->mem,
	    .low_end = pc->low_size,
	    .rsdp = rsdp,
	    .cmdline = vm->cfg->append,
	    .kernel = &pc->kernel,
	    .initrd = pc->initrd,
	    .ninitrd = pc->ninitrd,
	};
	struct cpu_state s;
	int r = vm->accel->ops->get_state(bsp, &s);

	if (r)
		return err_set_errno(err, r, "cannot read the state of CPU 0");
	pc_fill_e820(pc, &env);
	r = boot_load(&env, &s, err);
	if (r)
		return r;
	r = vm->accel->ops->set_state(bsp, &s);
	return r ? err_set_errno(err, r, "cannot set the state of CPU 0") : 0;
}

/* ---- with firmware: it finds the machine as it is after a reset ----------- */

static int pc_describe_to_firmware(struct vm *vm, uint64_t tables, const struct firmware_boot *boot, struct err *err)
{
	struct pc *pc = pc_of(vm);
	uint8_t rsdp[36], *smbios = NULL;
	struct firmware_config c = {
	    .bus = &vm->bus,
	    .low_size = pc->low_size,
	    .high_size = pc->high_size,
	    .tables = tables,
	    .hole = PC_KVM_PAGES,
	    .hole_end = PC_ROM_BASE,
	    .boot = boot,
	    .serial_console = vm->cfg->serial[0],
	};
	int r = 0;

	if (tables && dma_read(&vm->mem, tables, rsdp, sizeof(rsdp)))
		return err_set(err, -EIO, "cannot read the ACPI tables");
	c.rsdp = tables ? rsdp : NULL;
	if (pc->smbios)
		r = pc_build_smbios(vm, &smbios, &c.smbios_len, err);
	c.smbios = smbios;
	if (!r)
		r = firmware_describe(&c, err);
	free(smbios);
	pc->described = !r;
	return r;
}

static int pc_load_firmware(struct vm *vm, struct err *err)
{
	struct pc *pc = pc_of(vm);
	const uint64_t tables = ALIGN_DOWN(pc->low_size - FIRMWARE_TABLES_SIZE, PAGE_SIZE);
	const bool acpi = pc->acpi && !vm->cfg->no_acpi;
	struct firmware_boot boot;
	uint8_t order, order3;
	uint64_t rsdp = 0;
	int r = firmware_parse_boot(vm->cfg->boot, !pc->started, &boot, err);

	if (r)
		return r;
	pc_fill_cmos(vm);
	firmware_cmos_order(&boot, &order, &order3);
	rtc_set_cmos(pc->rtc, 0x3d, order);
	rtc_set_cmos(pc->rtc, 0x38, order3);
	r = firmware_shadow(&vm->mem, &pc->rom, err);
	if (!r && acpi)
		r = pc_post_acpi(vm, tables, FIRMWARE_TABLES_SIZE, &rsdp, err);
	if (!r && !pc->described)
		r = pc_describe_to_firmware(vm, rsdp, &boot, err);
	pc->started = true;
	return r;
}

static int pc_load(struct vm *vm, struct err *err)
{
	struct pc *pc = pc_of(vm);
	uint64_t rsdp = 0;
	int r;

	if (!vm->cfg->kernel)
		return pc_load_firmware(vm, err);
	r = pc_post_bda(vm, err);

	pc_post_chipset(vm);
	if (!r)
		r = pc_post_mtrr(vm, err);
	if (!r && pc->acpi && !vm->cfg->no_acpi)
		r = pc_post_acpi(vm, PC_ACPI_BASE, PC_SMBIOS_BASE - PC_ACPI_BASE, &rsdp, err);
	if (!r)
		r = pc_post_mptable(vm, err);
	if (!r && pc->smbios)
		r = pc_post_smbios(vm, err);
	if (!r)
		r = pc_load_kernel(vm, rsdp, err);
	return r;
}

static const char *const pc_aliases[] = {"pc-i440fx-7.2", NULL};

static const struct board_ops pc_board_ops = {
    .type = {.name = "pc", .about = "PC with i440FX and PIIX3 (1996)", .size = sizeof(struct pc), .props = pc_props},
    .aliases = pc_aliases,
    .max_cpus = 255,
    .create = pc_create,
    .reset = pc_reset,
    .load = pc_load,
    .chips_save = pc_chips_save,
    .chips_load = pc_chips_load,
    .destroy = pc_destroy,
};

const struct board_ops *const board_table[] = {&pc_board_ops, &none_board_ops, NULL};
