// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The human monitor's "info" subjects. They only read: the machine may run; a
 * vCPU's registers are read while it is held outside the guest (vm_with_vcpu).
 */
#include "control/info.h"
#include "control/balloon.h"
#include "control/migrate.h"
#include "control/savevm.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "block/block.h"
#include "bus/pci.h"
#include "chr/chr.h"
#include "cpu/state.h"

void info_status(struct vm *vm, const char *args, struct textbuf *out)
{
	enum vm_run_state s = vm_state(vm);

	if (s == VM_RUNNING || s == VM_PAUSED)
		textbuf_printf(out, "VM status: %s\n", vm_state_name(s));
	else
		textbuf_printf(out, "VM status: paused (%s)\n", vm_state_name(s));
}

static void info_version(struct vm *vm, const char *args, struct textbuf *out)
{
	textbuf_printf(out, "7.2.0 (kelvin " KELVIN_VERSION ")\n");
}

static void info_name(struct vm *vm, const char *args, struct textbuf *out)
{
	if (vm_config_of(vm)->name)
		textbuf_printf(out, "%s\n", vm_config_of(vm)->name);
}

static void info_uuid(struct vm *vm, const char *args, struct textbuf *out)
{
	const struct vm_config *c = vm_config_of(vm);

	textbuf_printf(out, "%s\n", c->have_uuid ? c->uuid : "00000000-0000-0000-0000-000000000000");
}

static void info_kvm(struct vm *vm, const char *args, struct textbuf *out)
{
	bool on = !strcmp(vm_accel(vm)->ops->type.name, "kvm");

	textbuf_printf(out, "kvm support: %s\n", on ? "enabled" : "disabled");
}

static void info_accel(struct vm *vm, const char *args, struct textbuf *out)
{
	textbuf_printf(out, "%s\n", vm_accel_reason(vm));
}

static void info_cpus(struct vm *vm, const char *args, struct textbuf *out)
{
	struct accel *a = vm_accel(vm);

	for (unsigned i = 0; i < a->cfg.ncpus; i++)
		textbuf_printf(out, "%c CPU #%u: apic_id=%" PRIu32 "%s\n", i ? ' ' : '*', i, a->vcpu[i]->apic_id,
			       atomic_load(&a->vcpu[i]->halted) ? " (halted)" : "");
}

/* ---- registers ------------------------------------------------------------------- */

static void print_segment(struct textbuf *out, const char *name, const struct cpu_segment *s)
{
	textbuf_printf(out, "%-3s=%04x %016" PRIx64 " %08" PRIx32 " type=%x s=%d dpl=%u p=%d l=%d db=%d g=%d\n", name,
		       s->sel, s->base, s->limit, s->type, s->s, s->dpl, s->present, s->l, s->db, s->g);
}

static void print_flags(struct textbuf *out, uint64_t rflags)
{
	static const struct {
		uint64_t bit;
		char letter;
	} flags[] = {{FLAG_DF, 'D'}, {FLAG_OF, 'O'}, {FLAG_SF, 'S'}, {FLAG_ZF, 'Z'},
		     {FLAG_AF, 'A'}, {FLAG_PF, 'P'}, {FLAG_CF, 'C'}};
	char text[ARRAY_SIZE(flags) + 1] = "";

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		text[i] = rflags & flags[i].bit ? flags[i].letter : '-';
	textbuf_printf(out, "RFL=%08" PRIx64 " [%s]", rflags, text);
}

struct registers_arg {
	struct textbuf *out;
	unsigned cpu;
};

static void print_registers(struct vcpu *v, void *arg)
{
	static const char *const gpr[] = {"RAX", "RBX", "RCX", "RDX", "RSI", "RDI", "RBP", "RSP",
					  "R8 ", "R9 ", "R10", "R11", "R12", "R13", "R14", "R15"};
	static const uint8_t order[] = {R_RAX, R_RBX, R_RCX, R_RDX, R_RSI, R_RDI, R_RBP, R_RSP,
					R_R8,  R_R9,  R_R10, R_R11, R_R12, R_R13, R_R14, R_R15};
	static const char *const seg[] = {[S_ES] = "ES", [S_CS] = "CS", [S_SS] = "SS",	  [S_DS] = "DS",
					  [S_FS] = "FS", [S_GS] = "GS", [S_LDTR] = "LDT", [S_TR] = "TR"};
	static const char *const mp[] = {"running", "halted", "waiting for INIT", "waiting for SIPI"};
	struct registers_arg *r = arg;
	struct textbuf *out = r->out;
	struct cpu_state *s = aligned_alloc(64, ALIGN_UP(sizeof(*s), 64));

	if (!s || v->accel->ops->get_state(v, s)) {
		textbuf_printf(out, "CPU#%u: its state cannot be read\n", r->cpu);
		free(s);
		return;
	}
	textbuf_printf(out, "CPU#%u\n", r->cpu);
	for (unsigned i = 0; i < 16; i++)
		textbuf_printf(out, "%s=%016" PRIx64 "%s", gpr[i], s->gpr[order[i]], i % 4 == 3 ? "\n" : " ");
	textbuf_printf(out, "RIP=%016" PRIx64 " ", s->rip);
	print_flags(out, s->rflags);
	textbuf_printf(out, " CPL=%u %s\n", s->seg[S_SS].dpl, mp[s->mp_state & 3]);
	for (unsigned i = 0; i < S_COUNT; i++)
		print_segment(out, seg[i], &s->seg[i]);
	textbuf_printf(out, "GDT= %016" PRIx64 " %08x\nIDT= %016" PRIx64 " %08x\n", s->gdtr.base, s->gdtr.limit,
		       s->idtr.base, s->idtr.limit);
	textbuf_printf(out,
		       "CR0=%08" PRIx64 " CR2=%016" PRIx64 " CR3=%016" PRIx64 " CR4=%08" PRIx64 " CR8=%" PRIx64 "\n",
		       s->cr0, s->cr2, s->cr3, s->cr4, s->cr8);
	textbuf_printf(out, "EFER=%016" PRIx64 " XCR0=%016" PRIx64 "\n", s->efer, s->xcr0);
	free(s);
}

/* "info registers": CPU 0; with -a all of them; with a number that one. */
static void info_registers(struct vm *vm, const char *args, struct textbuf *out)
{
	unsigned n = vm_accel(vm)->cfg.ncpus, from = 0, to = n ? 1 : 0;
	char *end;

	if (!strcmp(args, "-a")) {
		to = n;
	} else if (*args) {
		unsigned long i = strtoul(args, &end, 10);
		if (*end || i >= n) {
			textbuf_printf(out, "there is no CPU '%.40s' (there are %u; -a: all)\n", args, n);
			return;
		}
		from = (unsigned)i;
		to = from + 1;
	}
	for (unsigned i = from; i < to; i++) {
		struct registers_arg arg = {out, i};
		vm_with_vcpu(vm, i, print_registers, &arg);
	}
}

/* ---- address spaces and devices ------------------------------------------------------ */

static void print_range(void *arg, uint64_t addr, uint64_t size, const struct ram_block *ram,
			const struct mem_region *region)
{
	textbuf_printf(arg, "  %016" PRIx64 "-%016" PRIx64 " %s %s\n", addr, addr + size - 1,
		       !ram	       ? "i/o"
		       : ram->readonly ? "rom"
				       : "ram",
		       ram			? ram->name
		       : region && region->name ? region->name
						: "?");
}

static void print_ports(void *arg, uint16_t base, const struct mem_region *r)
{
	textbuf_printf(arg, "  %04x-%04x %s\n", base, (unsigned)(base + r->size - 1), r->name ? r->name : "?");
}

static void info_mtree(struct vm *vm, const char *args, struct textbuf *out)
{
	struct bus *bus = vm_bus(vm);

	textbuf_printf(out, "memory\n");
	mem_walk(bus->mem, print_range, out);
	textbuf_printf(out, "I/O ports\n");
	ports_walk(bus->ports, print_ports, out);
}

static void info_qtree(struct vm *vm, const char *args, struct textbuf *out)
{
	for (struct dev *d = vm_bus(vm)->devices; d; d = d->next) {
		const struct type *t = &d->ops->type;
		textbuf_printf(out, "dev: %s, id \"%s\"\n", t->name, d->id ? d->id : "");
		const struct prop *p;
		for (size_t i = 0; (p = type_prop_at(t, i)); i++) {
			char *value = p->alias_of ? NULL : type_get(t, d, p->name);
			if (value)
				textbuf_printf(out, "  %s = %s\n", p->name, value);
			free(value);
		}
	}
}

static void print_pci(void *arg, struct pci_dev *d)
{
	static const char *const kinds[] = {[PCI_BAR_NONE] = "",
					    [PCI_BAR_IO] = "I/O",
					    [PCI_BAR_MEM32] = "32 bit memory",
					    [PCI_BAR_MEM64] = "64 bit memory"};
	struct textbuf *out = arg;

	textbuf_printf(out, "  Bus  0, device %3d, function %d:\n    %s: class %06" PRIx32 ", PCI device %04x:%04x\n",
		       d->devfn >> 3, d->devfn & 7, d->dev.ops->type.name, d->class_code, d->vendor, d->device);
	if (d->subsys_vendor)
		textbuf_printf(out, "      PCI subsystem %04x:%04x\n", d->subsys_vendor, d->subsys_id);
	if (d->intx_pin)
		textbuf_printf(out, "      IRQ %u, pin %c\n", d->config[0x3c], 'A' + d->intx_pin - 1);
	for (int i = 0; i < PCI_BAR_COUNT; i++) {
		const struct pci_bar *b = &d->bar[i];
		if (b->kind != PCI_BAR_NONE && b->region.size)
			textbuf_printf(out, "      BAR%d: %s at 0x%" PRIx64 " [0x%" PRIx64 "]%s\n", i, kinds[b->kind],
				       b->region.addr, b->region.addr + b->region.size - 1,
				       b->region.mapped ? "" : " (not mapped)");
	}
	textbuf_printf(out, "      id \"%s\"\n", d->dev.id ? d->dev.id : "");
}

static void info_pci(struct vm *vm, const char *args, struct textbuf *out)
{
	if (vm_bus(vm)->pci)
		pci_walk(vm_bus(vm)->pci, print_pci, out);
	else
		textbuf_printf(out, "there is no PCI bus\n");
}

static void info_chardev(struct vm *vm, const char *args, struct textbuf *out)
{
	struct chr *c;

	for (size_t i = 0; (c = chr_at(i)); i++)
		textbuf_printf(out, "%s: filename=%s%s\n", chr_id(c),
			       chr_connected(c) ? "" : "disconnected:", chr_describe(c));
}

static void info_block(struct vm *vm, const char *args, struct textbuf *out)
{
	struct drive *d;

	for (size_t i = 0; (d = drive_at(i)); i++) {
		const struct drive_media_ops *m = d->media;
		if (!d->node)
			textbuf_printf(out, "%s: [not inserted]\n", d->id);
		else
			textbuf_printf(out, "%s: %s (%s%s)\n    %" PRIu64 " bytes, %s%s\n", d->id,
				       block_filename(d->node), block_format(d->node),
				       block_read_only(d->node) ? ", read-only" : "", block_size(d->node),
				       block_aio_name(d->node), d->claimed ? "" : ", not used");
		if (m)
			textbuf_printf(out, "    Removable device: %slocked, tray %s\n",
				       m->locked(d->media_opaque) ? "" : "not ",
				       m->tray_open(d->media_opaque) ? "open" : "closed");
	}
}

const struct info_subject info_table[] = {
    {"accel", "which CPU engine runs, and why", info_accel},
    {"balloon", "memory the guest has", info_balloon},
    {"block", "disks", info_block},
    {"chardev", "character devices", info_chardev},
    {"cpus", "virtual CPUs", info_cpus},
    {"kvm", "whether KVM is used", info_kvm},
    {"migrate", "the machine being saved or loaded", info_migrate},
    {"mtree", "memory and port regions", info_mtree},
    {"name", "the machine's name", info_name},
    {"pci", "PCI devices", info_pci},
    {"qtree", "devices and their properties", info_qtree},
    {"registers", "a CPU's registers: [-a | CPU]", info_registers},
    {"snapshots", "what savevm has saved", info_snapshots},
    {"status", "running or paused, and why", info_status},
    {"uuid", "the machine's UUID", info_uuid},
    {"version", "the program's version", info_version},
    {NULL, NULL, NULL},
};
