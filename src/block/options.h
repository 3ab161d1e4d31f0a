/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by options.c, blockdev.c and block.c: images described by options. Main thread only. */
#ifndef KELVIN_BLOCK_OPTIONS_H
#define KELVIN_BLOCK_OPTIONS_H

#include "block/block.h"

struct block_node *block_open_opts(struct opts *o, const struct block_open *defaults, struct loop *l, struct err *err);
bool block_is_protocol(const char *driver);

/* ---- blockdev.c ---- */
/* The options of a -blockdev with a protocol driver; NULL: none of that name. */
struct opts *block_described_node(const char *name);
/* An opened node nobody uses; the caller owns it from now on. NULL and err. */
struct block_node *block_take_node(const char *name, struct err *err);

#endif
