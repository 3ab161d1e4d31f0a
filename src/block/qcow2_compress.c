// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Compressed clusters: a raw deflate stream with a window of 4 KiB (type 0) or a
 * zstd frame (type 1) that ends when a cluster is full; what follows in the last
 * sector is not ours. Any thread: what is kept between calls is the thread's.
 *
 * Deflating is ISA-L's work where it is installed (several times zlib's speed,
 * and it can keep to the short window, which libdeflate cannot), inflating
 * libdeflate's; both are loaded when first used, and zlib stands in for them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <isa-l/igzip_lib.h>
#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "base/util.h"
#include "block/qcow2.h"

#define WINDOW_BITS 12

static struct {
	pthread_once_t once;
	void (*isal_init)(struct isal_zstream *stream);
	int (*isal_deflate)(struct isal_zstream *stream);
	void *(*inflater_new)(void);
	int (*inflate)(void *d, const void *in, size_t in_len, void *out, size_t room, size_t *used, size_t *made);
} libs = {.once = PTHREAD_ONCE_INIT};

/* dlsym's void pointers are functions. */
static void find(void *lib, const char *name, void *out)
{
	void *f = lib ? dlsym(lib, name) : NULL;

	memcpy(out, &f, sizeof(f));
}

static void load_libs(void)
{
	void *isal = dlopen("libisal.so.2", RTLD_NOW | RTLD_LOCAL);
	void *deflate = dlopen("libdeflate.so.0", RTLD_NOW | RTLD_LOCAL);

	find(isal, "isal_deflate_stateless_init", &libs.isal_init);
	find(isal, "isal_deflate_stateless", &libs.isal_deflate);
	find(deflate, "libdeflate_alloc_decompressor", &libs.inflater_new);
	find(deflate, "libdeflate_deflate_decompress_ex", &libs.inflate);
}

/* ---- inflating ------------------------------------------------------------------ */

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

static int inflate_raw(const uint8_t *in, size_t in_len, uint8_t *out, size_t out_len)
{
	static __thread void *state;
	size_t used, made;

	pthread_once(&libs.once, load_libs);
	if (!state && libs.inflater_new && libs.inflate)
		state = libs.inflater_new();
	if (state && libs.inflate(state, in, in_len, out, out_len, &used, &made) == 0 && made == out_len)
		return 0;
	return inflate_zlib(in, in_len, out, out_len);
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
	return type ? inflate_zstd(in, in_len, out, out_len) : inflate_raw(in, in_len, out, out_len);
}

/* ---- deflating ------------------------------------------------------------------- */

static size_t deflate_zlib(const uint8_t *in, size_t len, uint8_t *out, size_t room)
{
	z_stream z = {0};
	size_t n = 0;

	if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -WINDOW_BITS, 9, Z_DEFAULT_STRATEGY) != Z_OK)
		return 0;
	z.next_in = (Bytef *)in;
	z.avail_in = (uInt)len;
	z.next_out = out;
	z.avail_out = (uInt)room;
	if (deflate(&z, Z_FINISH) == Z_STREAM_END)
		n = room - z.avail_out;
	deflateEnd(&z);
	return n;
}

static size_t deflate_isal(const uint8_t *in, size_t len, uint8_t *out, size_t room)
{
	static __thread uint8_t *level_buf;
	struct isal_zstream *z = calloc(1, sizeof(*z));
	size_t n = 0;

	if (!level_buf)
		level_buf = malloc(ISAL_DEF_LVL2_LARGE);
	if (!z || !level_buf) {
		free(z);
		return 0;
	}
	libs.isal_init(z);
	z->level = 2;
	z->level_buf = level_buf;
	z->level_buf_size = ISAL_DEF_LVL2_LARGE;
	z->hist_bits = WINDOW_BITS;
	z->end_of_stream = 1;
	z->next_in = (uint8_t *)in;
	z->avail_in = (uint32_t)len;
	z->next_out = out;
	z->avail_out = (uint32_t)room;
	if (libs.isal_deflate(z) == COMP_OK && z->avail_in == 0)
		n = room - z->avail_out;
	free(z);
	return n;
}

static size_t deflate_zstd(const uint8_t *in, size_t len, uint8_t *out, size_t room)
{
	static __thread ZSTD_CCtx *c;
	size_t n;

	if (!c)
		c = ZSTD_createCCtx();
	n = c ? ZSTD_compressCCtx(c, out, room, in, len, ZSTD_CLEVEL_DEFAULT) : 0;
	return ZSTD_isError(n) ? 0 : n;
}

size_t qcow2_deflate(uint32_t type, const uint8_t *in, size_t len, uint8_t *out, size_t room)
{
	if (type)
		return deflate_zstd(in, len, out, room);
	pthread_once(&libs.once, load_libs);
	return libs.isal_init && libs.isal_deflate ? deflate_isal(in, len, out, room)
						   : deflate_zlib(in, len, out, room);
}
