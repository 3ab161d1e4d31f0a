/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Arrays of buffers (struct iovec). Lengths and `skip` are bytes; any thread, on arrays of its own. */
#ifndef KELVIN_BASE_IOV_H
#define KELVIN_BASE_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Copy between a buffer and the array from byte `skip` of it; returns bytes copied, fewer where the array ends. */
size_t iov_read(const struct iovec *iov, int n, uint64_t skip, void *buf, size_t len);
size_t iov_write(const struct iovec *iov, int n, uint64_t skip, const void *buf, size_t len);
/* Zeros from byte `skip` to the end. */
void iov_zero(const struct iovec *iov, int n, uint64_t skip);
/* Drop `skip` bytes from the front, in place: returns the first entry left and its count in *n. */
struct iovec *iov_skip(struct iovec *iov, int *n, uint64_t skip);
/* Bytes [skip, skip + len) as entries of out (room for niov; may be iov itself); returns their number. */
int iov_cut(struct iovec *out, const struct iovec *iov, int niov, uint64_t skip, uint64_t len);

#endif
