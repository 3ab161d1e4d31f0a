/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The firmware configuration device: numbered items and named files that the
 * guest reads. Everything is added before the machine starts; data is copied.
 */
#ifndef KELVIN_HW_PC_FW_CFG_H
#define KELVIN_HW_PC_FW_CFG_H

#include "bus/dev.h"

/* Keys with a fixed meaning, as QEMU's firmware interface numbers them. */
enum fw_cfg_key {
	FW_CFG_SIGNATURE = 0x00,
	FW_CFG_ID = 0x01,
	FW_CFG_UUID = 0x02,
	FW_CFG_RAM_SIZE = 0x03,
	FW_CFG_NOGRAPHIC = 0x04,
	FW_CFG_NB_CPUS = 0x05,
	FW_CFG_BOOT_MENU = 0x0e,
	FW_CFG_MAX_CPUS = 0x0f,
	FW_CFG_FILE_DIR = 0x19,
	FW_CFG_FILE_FIRST = 0x20,
};

struct fw_cfg;
/* Set (or replace) an item. 0 or -ENOMEM, -ENOSPC with err. */
int fw_cfg_set(struct fw_cfg *f, uint16_t key, const void *data, size_t len, struct err *err);
int fw_cfg_set_u16(struct fw_cfg *f, uint16_t key, uint16_t v, struct err *err);
int fw_cfg_set_u64(struct fw_cfg *f, uint16_t key, uint64_t v, struct err *err);
/* A named file, at most 55 characters. -EEXIST when there is one of that name. */
int fw_cfg_add_file(struct fw_cfg *f, const char *name, const void *data, size_t len, struct err *err);
/* -fw_cfg [name=]NAME,string=TEXT or ,file=PATH; the type is its keys. */
extern const struct type fw_cfg_option_type;
int fw_cfg_add_option(struct fw_cfg *f, const char *text, struct err *err);
struct fw_cfg *fw_cfg_of(struct dev *d); /* the dev is a fw_cfg_ops one */

#endif
