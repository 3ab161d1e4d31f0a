// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Compressed clusters: a raw deflate stream (type 0) or a zstd frame (type 1)
 * that ends when a cluster is full; what follows in the last sector is not ours.
 */
#include <errno.h>
#include <zlib.h>
#include <zstd.h>

#include "block/qcow2.h"

static int inflate_zlib(const uint8_t *in, size_t in_len, uint8_t *out, size_t out_len)
{
	z_stream z = {0};
	int ret;

	/* Any window size: -15 reads streams made with smaller ones. */
	if (inflateInit2(&z, -15) != Z_OK)
		return -ENOMEM;
	z.next_in = (Bytef *)in;
	z.avail_in = (uInt)in_len;
	z.next_out = out;
	z.avail_out = (uInt)out_len;
	ret = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	/* Z_BUF_ERROR: the output is full before the stream's end was seen. */
	return (ret == Z_STREAM_END || ret == Z_BUF_ERROR) && z.avail_out == 0 ? 0 : -EIO;
}

static int inflate_zstd(const uint8_t *in, size_t in_len, uint8_t *out, size_t out_len)
{
	ZSTD_inBuffer i = {in, in_len, 0};
	ZSTD_outBuffer o = {out, out_len, 0};
	ZSTD_DCtx *d = ZSTD_createDCtx();
	int ret = 0;

	if (!d)
		return -ENOMEM;
	while (o.pos < o.size && !ret) {
		size_t before = o.pos + i.pos, n = ZSTD_decompressStream(d, &o, &i);
		if (ZSTD_isError(n) || o.pos + i.pos == before)
			ret = -EIO;
	}
	ZSTD_freeDCtx(d);
	return ret;
}

int qcow2_inflate(uint32_t type, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_len)
{
	return type ? inflate_zstd(in, in_len, out, out_len) : inflate_zlib(in, in_len, out, out_len);
}
