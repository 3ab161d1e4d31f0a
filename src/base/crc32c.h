/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CRC-32C (Castagnoli; RFC 3720, appendix B.4): of nothing it is 0, and parts can be chained. Any thread. */
#ifndef KELVIN_BASE_CRC32C_H
#define KELVIN_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t len);

#endif
