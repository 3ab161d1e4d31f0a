/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Firmware configuration device, ports 0x510 (selector), 0x511 (data) and 0x514
 * (DMA address), as QEMU's "fw_cfg" specification describes it: items selected
 * by a 16-bit key, a directory of named files, and a DMA interface whose
 * request block lies in guest memory, big-endian.
 *
 * Locking: everything under dev.lock; the items do not change while a guest runs.
 */
#include "hw/pc/fw_cfg.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/util.h"
#include "hw/pc/devices.h"

#define FW_CFG_PORT	 0x510
#define FW_CFG_PORTS	 12
#define FW_CFG_DATA	 1
#define FW_CFG_DMA	 4
#define FW_CFG_FILES	 64
#define FW_CFG_ITEMS	 (FW_CFG_FILE_FIRST + FW_CFG_FILES)
#define FW_CFG_NAME_SIZE 56
#define FW_CFG_FILE_SIZE 64		   /* directory entry: size, select, reserved, name */
#define FW_CFG_KEY_MASK	 0xbfff		   /* without the bit for writing; bit 15: items of the architecture */
#define FW_CFG_VERSION	 (BIT(0) | BIT(1)) /* traditional and DMA interface */
#define FW_CFG_MAX_FILE	 (16 * MIB)

#define FW_CFG_DMA_ERROR  BIT(0)
#define FW_CFG_DMA_READ	  BIT(1)
#define FW_CFG_DMA_SKIP	  BIT(2)
#define FW_CFG_DMA_SELECT BIT(3)
#define FW_CFG_DMA_WRITE  BIT(4)

struct fw_cfg_item {
	uint8_t *data;
	uint32_t len;
};

struct fw_cfg {
	struct dev dev;
	struct mem_region ports;
	struct fw_cfg_item item[FW_CFG_ITEMS];
	char name[FW_CFG_FILES][FW_CFG_NAME_SIZE];
	unsigned nfiles;
	uint16_t key;
	uint32_t offset;
	uint64_t dma_addr;
};

struct fw_cfg *fw_cfg_of(struct dev *d)
{
	return container_of(d, struct fw_cfg, dev);
}

/* ---- items ------------------------------------------------------------- */

int fw_cfg_set(struct fw_cfg *f, uint16_t key, const void *data, size_t len, struct err *err)
{
	uint8_t *copy;

	BUG_ON(key >= FW_CFG_ITEMS || len > UINT32_MAX);
	copy = malloc(len ? len : 1);
	if (!copy)
		return err_set(err, -ENOMEM, "out of memory for the firmware configuration");
	memcpy(copy, data, len);
	pthread_mutex_lock(&f->dev.lock);
	free(f->item[key].data);
	f->item[key] = (struct fw_cfg_item){copy, (uint32_t)len};
	pthread_mutex_unlock(&f->dev.lock);
	return 0;
}

int fw_cfg_set_u16(struct fw_cfg *f, uint16_t key, uint16_t v, struct err *err)
{
	return fw_cfg_set(f, key, &v, sizeof(v), err);
}

int fw_cfg_set_u64(struct fw_cfg *f, uint16_t key, uint64_t v, struct err *err)
{
	return fw_cfg_set(f, key, &v, sizeof(v), err);
}

/* The directory: a big-endian count, then one entry per file. */
static int fw_cfg_update_dir(struct fw_cfg *f, struct err *err)
{
	uint8_t dir[4 + FW_CFG_FILES * FW_CFG_FILE_SIZE] = {0};

	st32be(dir, f->nfiles);
	for (unsigned i = 0; i < f->nfiles; i++) {
		uint8_t *e = dir + 4 + i * FW_CFG_FILE_SIZE;

		st32be(e, f->item[FW_CFG_FILE_FIRST + i].len);
		st16be(e + 4, (uint16_t)(FW_CFG_FILE_FIRST + i));
		memcpy(e + 8, f->name[i], FW_CFG_NAME_SIZE);
	}
	return fw_cfg_set(f, FW_CFG_FILE_DIR, dir, 4 + f->nfiles * FW_CFG_FILE_SIZE, err);
}

int fw_cfg_add_file(struct fw_cfg *f, const char *name, const void *data, size_t len, struct err *err)
{
	int r;

	if (!*name || strlen(name) >= FW_CFG_NAME_SIZE)
		return err_set(err, -EINVAL, "fw_cfg file \"%s\": the name must have 1 to %d characters", name,
			       FW_CFG_NAME_SIZE - 1);
	for (unsigned i = 0; i < f->nfiles; i++) {
		if (!strcmp(f->name[i], name))
			return err_set(err, -EEXIST, "fw_cfg file \"%s\" exists already", name);
	}
	if (f->nfiles == FW_CFG_FILES)
		return err_set(err, -ENOSPC, "fw_cfg file \"%s\": no room, %d files are the limit", name, FW_CFG_FILES);
	r = fw_cfg_set(f, (uint16_t)(FW_CFG_FILE_FIRST + f->nfiles), data, len, err);
	if (r)
		return r;
	snprintf(f->name[f->nfiles], FW_CFG_NAME_SIZE, "%s", name);
	f->nfiles++;
	return fw_cfg_update_dir(f, err);
}

static int fw_cfg_add_host_file(struct fw_cfg *f, const char *name, const char *path, struct err *err)
{
	FILE *in = fopen(path, "rbe");
	uint8_t *data = in ? malloc(FW_CFG_MAX_FILE + 1) : NULL;
	size_t n;
	int r;

	if (!in)
		return err_set_errno(err, -errno, "-fw_cfg: cannot open \"%s\"", path);
	n = data ? fread(data, 1, FW_CFG_MAX_FILE + 1, in) : 0;
	if (!data)
		r = err_set(err, -ENOMEM, "-fw_cfg: out of memory for \"%s\"", path);
	else if (ferror(in))
		r = err_set(err, -EIO, "-fw_cfg: cannot read \"%s\"", path);
	else if (n > FW_CFG_MAX_FILE)
		r = err_set(err, -EFBIG, "-fw_cfg: \"%s\" is larger than %llu MiB", path, FW_CFG_MAX_FILE / MIB);
	else
		r = fw_cfg_add_file(f, name, data, n, err);
	free(data);
	fclose(in);
	return r;
}

/* The keys of -fw_cfg. */
struct fw_cfg_option {
	char *name, *string, *file;
};
static const struct prop fw_cfg_option_props[] = {
    {.name = "name",
     .kind = PROP_STR,
     .offset = offsetof(struct fw_cfg_option, name),
     .help = "what the guest calls it: opt/..."},
    {.name = "string",
     .kind = PROP_STR,
     .offset = offsetof(struct fw_cfg_option, string),
     .help = "its contents, without a NUL"},
    {.name = "file",
     .kind = PROP_STR,
     .offset = offsetof(struct fw_cfg_option, file),
     .help = "a file with its contents"},
    {.name = NULL},
};
const struct type fw_cfg_option_type = {
    .name = "fw_cfg", .size = sizeof(struct fw_cfg_option), .props = fw_cfg_option_props};

static int fw_cfg_apply_option(struct fw_cfg *f, const struct fw_cfg_option *o, const char *text, struct err *err)
{
	if (!o->name || !o->string == !o->file)
		return err_set(err, -EINVAL, "-fw_cfg \"%s\": use name=NAME with either string=TEXT or file=PATH",
			       text);
	if (strncmp(o->name, "opt/", 4))
		log_warn("-fw_cfg \"%s\": names outside \"opt/\" belong to the firmware", o->name);
	if (o->string)
		return fw_cfg_add_file(f, o->name, o->string, strlen(o->string), err);
	return fw_cfg_add_host_file(f, o->name, o->file, err);
}

int fw_cfg_add_option(struct fw_cfg *f, const char *text, struct err *err)
{
	struct fw_cfg_option option = {0};
	struct opts o;
	int r = opts_parse(text, "name", &o, err);

	if (r)
		return r;
	r = type_set_opts(&fw_cfg_option_type, &option, &o, NULL, err);
	if (!r)
		r = opts_check_used(&o, &fw_cfg_option_type, err);
	if (!r)
		r = fw_cfg_apply_option(f, &option, text, err);
	opts_free(&o);
	type_props_free(&fw_cfg_option_type, &option);
	return r;
}

/* ---- guest side --------------------------------------------------------- */

static void fw_cfg_select(struct fw_cfg *f, uint16_t key)
{
	f->key = key & FW_CFG_KEY_MASK;
	f->offset = 0;
}

/* Bytes of the selected item that are left. */
static const uint8_t *fw_cfg_rest(const struct fw_cfg *f, uint32_t *left)
{
	const struct fw_cfg_item *i = f->key < FW_CFG_ITEMS ? &f->item[f->key] : NULL;

	*left = i && f->offset < i->len ? i->len - f->offset : 0;
	return *left ? i->data + f->offset : NULL;
}

static uint8_t fw_cfg_read_byte(struct fw_cfg *f)
{
	uint32_t left;
	const uint8_t *p = fw_cfg_rest(f, &left);

	if (!p)
		return 0;
	f->offset++;
	return *p;
}

/* Copy `len` bytes of the item to the guest; beyond its end there are zeroes. */
static int fw_cfg_dma_out(struct fw_cfg *f, uint64_t addr, uint32_t len)
{
	static const uint8_t zero[PAGE_SIZE];
	uint32_t left;
	const uint8_t *p = fw_cfg_rest(f, &left);
	uint32_t n = MIN(len, left);

	if (n && dma_write(f->dev.bus->mem, addr, p, n))
		return -EFAULT;
	f->offset += n;
	for (len -= n, addr += n; len; len -= n, addr += n) {
		n = MIN(len, (uint32_t)sizeof(zero));
		if (dma_write(f->dev.bus->mem, addr, zero, n))
			return -EFAULT;
	}
	return 0;
}

static void fw_cfg_dma(struct fw_cfg *f)
{
	struct mem_map *mem = f->dev.bus->mem;
	uint8_t request[16], result[4];
	uint32_t control, len, left, status = 0;
	uint64_t block = f->dma_addr;

	f->dma_addr = 0;
	if (dma_read(mem, block, request, sizeof(request))) {
		log_diag(LOG_GUEST_ERRORS, "fw_cfg: the DMA request at 0x%llx is not in RAM",
			 (unsigned long long)block);
		return;
	}
	control = ld32be(request);
	len = ld32be(request + 4);
	if (control & FW_CFG_DMA_SELECT)
		fw_cfg_select(f, (uint16_t)(control >> 16));
	if (control & FW_CFG_DMA_READ) {
		if (fw_cfg_dma_out(f, ld64be(request + 8), len))
			status = FW_CFG_DMA_ERROR;
	} else if (control & FW_CFG_DMA_WRITE) {
		status = FW_CFG_DMA_ERROR; /* no item is writable */
	} else if (control & FW_CFG_DMA_SKIP) {
		fw_cfg_rest(f, &left);
		f->offset += MIN(len, left);
	}
	st32be(result, status);
	dma_write(mem, block, result, sizeof(result));
}

static uint64_t fw_cfg_port_read(void *opaque, uint64_t off, unsigned size)
{
	static const uint8_t signature[8] = "QEMU CFG";
	struct fw_cfg *f = opaque;
	uint64_t val = 0;

	if (off < FW_CFG_DMA)
		return off <= FW_CFG_DATA && size == 1 ? fw_cfg_read_byte(f) : 0;
	for (unsigned i = 0; i < size && off - FW_CFG_DMA + i < sizeof(signature); i++)
		val |= (uint64_t)signature[off - FW_CFG_DMA + i] << (i * 8);
	return val;
}

static void fw_cfg_port_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct fw_cfg *f = opaque;

	if (off == 0 && size == 2) {
		fw_cfg_select(f, (uint16_t)val);
	} else if (off == FW_CFG_DMA && size == 4) {
		f->dma_addr = (uint64_t)__builtin_bswap32((uint32_t)val) << 32;
	} else if (off == FW_CFG_DMA + 4 && size == 4) {
		f->dma_addr |= __builtin_bswap32((uint32_t)val);
		fw_cfg_dma(f);
	}
}

static const struct region_ops fw_cfg_port_ops = {
    .read = fw_cfg_port_read,
    .write = fw_cfg_port_write,
    .min_size = 1,
    .max_size = 4,
};

static void fw_cfg_reset(struct dev *d)
{
	struct fw_cfg *f = fw_cfg_of(d);

	fw_cfg_select(f, 0);
	f->dma_addr = 0;
}

static void fw_cfg_unrealize(struct dev *d)
{
	struct fw_cfg *f = fw_cfg_of(d);

	ports_unmap(d->bus->ports, &f->ports);
	d->bus->fw_cfg = NULL;
	for (unsigned i = 0; i < FW_CFG_ITEMS; i++)
		free(f->item[i].data);
}

static int fw_cfg_realize(struct dev *d, struct err *err)
{
	struct fw_cfg *f = fw_cfg_of(d);
	uint8_t id[4];
	int r;

	st32le(id, FW_CFG_VERSION);
	r = fw_cfg_set(f, FW_CFG_SIGNATURE, "QEMU", 4, err);
	if (!r)
		r = fw_cfg_set(f, FW_CFG_ID, id, sizeof(id), err);
	if (!r)
		r = fw_cfg_update_dir(f, err);
	f->ports = (struct mem_region){
	    .name = "fw_cfg", .size = FW_CFG_PORTS, .ops = &fw_cfg_port_ops, .opaque = f, .lock = &d->lock};
	if (r) {
		fw_cfg_unrealize(d);
		return r;
	}
	ports_map(d->bus->ports, &f->ports, FW_CFG_PORT);
	d->bus->fw_cfg = f;
	return 0;
}

static const struct state_field fw_cfg_fields[] = {
    STATE_INT(struct fw_cfg, key), STATE_INT(struct fw_cfg, offset), STATE_INT(struct fw_cfg, dma_addr), {0}};
static const struct state fw_cfg_state = {.name = "fw_cfg", .version = 1, .min_version = 1, .fields = fw_cfg_fields};

const struct dev_ops fw_cfg_ops = {
    .type = {.name = "fw_cfg_io", .about = "firmware configuration device", .size = sizeof(struct fw_cfg)},
    .bus_kind = DEV_BUS_SYSTEM,
    .realize = fw_cfg_realize,
    .unrealize = fw_cfg_unrealize,
    .reset = fw_cfg_reset,
    .state = &fw_cfg_state,
};
