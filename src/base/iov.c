/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What requests do with arrays of buffers. Stateless; no locks. */
#include "base/iov.h"

#include <string.h>
#include "base/util.h"

size_t iov_read(const struct iovec *iov, int n, uint64_t skip, void *buf, size_t len)
{
	size_t done = 0;

	for (int i = 0; i < n && done < len; i++) {
		size_t c;
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		c = MIN(len - done, iov[i].iov_len - (size_t)skip);
		memcpy((uint8_t *)buf + done, (uint8_t *)iov[i].iov_base + skip, c);
		done += c;
		skip = 0;
	}
	return done;
}

size_t iov_write(const struct iovec *iov, int n, uint64_t skip, const void *buf, size_t len)
{
	size_t done = 0;

	for (int i = 0; i < n && done < len; i++) {
		size_t c;
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		c = MIN(len - done, iov[i].iov_len - (size_t)skip);
		memcpy((uint8_t *)iov[i].iov_base + skip, (const uint8_t *)buf + done, c);
		done += c;
		skip = 0;
	}
	return done;
}

struct iovec *iov_skip(struct iovec *iov, int *n, uint64_t skip)
{
	while (*n && skip >= iov->iov_len) {
		skip -= iov->iov_len;
		iov++;
		(*n)--;
	}
	if (*n) {
		iov->iov_base = (uint8_t *)iov->iov_base + skip;
		iov->iov_len -= (size_t)skip;
	}
	return iov;
}

void iov_zero(const struct iovec *iov, int n, uint64_t skip)
{
	for (int i = 0; i < n; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		memset((uint8_t *)iov[i].iov_base + skip, 0, iov[i].iov_len - (size_t)skip);
		skip = 0;
	}
}

int iov_cut(struct iovec *out, const struct iovec *iov, int niov, uint64_t skip, uint64_t len)
{
	int n = 0;

	for (int i = 0; i < niov && len; i++) {
		size_t c;
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		c = (size_t)MIN(len, iov[i].iov_len - skip);
		out[n++] = (struct iovec){(uint8_t *)iov[i].iov_base + skip, c};
		len -= c;
		skip = 0;
	}
	return n;
}
