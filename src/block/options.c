// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Images described by options, as -blockdev, --image-opts and "json:" file names
 * do: a format driver over a protocol driver. Both become one struct block_open,
 * the protocol's options a file name or URL. Names are QEMU's. Main thread only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/driver.h"
#include "block/image.h"
#include "block/options.h"

/* ---- cache and aio by name ----------------------------------------------------- */

static const struct {
	const char *name;
	bool writeback, direct, no_flush;
} cache_table[] = {
    {"writeback", true, false, false},	   {"none", true, true, false},	       {"off", true, true, false},
    {"writethrough", false, false, false}, {"directsync", false, true, false}, {"unsafe", true, false, true},
};

int block_set_cache(struct block_open *o, const char *name, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(cache_table); i++)
		if (strcmp(cache_table[i].name, name) == 0) {
			o->writeback = cache_table[i].writeback;
			o->direct = cache_table[i].direct;
			o->no_flush = cache_table[i].no_flush;
			return 0;
		}
	return err_set(err, -EINVAL, "invalid cache option '%s' (none, writeback, writethrough, directsync or unsafe)",
		       name);
}

int block_set_aio(struct block_open *o, const char *name, struct err *err)
{
	static const struct {
		const char *name;
		enum aio_engine engine;
	} table[] = {
	    {"auto", AIO_AUTO},	  {"io_uring", AIO_URING}, {"threads", AIO_THREADS},
	    {"native", AIO_AUTO}, {"sync", AIO_SYNC},
	};
	size_t i = 0;

	while (i < ARRAY_SIZE(table) && strcmp(table[i].name, name) != 0)
		i++;
	if (i == ARRAY_SIZE(table))
		return err_set(err, -EINVAL, "Invalid aio option '%s' (io_uring, threads or native)", name);
	/* Linux AIO is what QEMU means by native; io_uring does all it did. */
	if (strcmp(name, "native") == 0 && !o->direct)
		return err_set(err, -EINVAL,
			       "aio=native was specified, but it requires cache.direct=on, which was not specified");
	o->aio = table[i].engine;
	return 0;
}

/* ---- protocols ------------------------------------------------------------------- */

/* Options of protocol drivers that make up the name; `prefix` is "" or "file.". */
struct proto_names {
	struct opts *o;
	const char *prefix;
	bool missing; /* set by need() */
};

static const char *get(const struct proto_names *p, const char *key)
{
	char full[80];

	snprintf(full, sizeof(full), "%s%s", p->prefix, key);
	return opts_get(p->o, full);
}

/* The same under any of two names. */
static const char *get2(const struct proto_names *p, const char *key, const char *other)
{
	const char *v = get(p, key);

	return v ? v : get(p, other);
}

static char *make_file(const struct proto_names *p, struct err *err)
{
	const char *name = get(p, "filename");
	char *out = NULL;

	if (!name)
		err_set(err, -EINVAL, "the driver needs filename=");
	else if (asprintf(&out, "file:%s", name) < 0) /* never a protocol of its own */
		out = NULL;
	return out;
}

static char *make_nbd(const struct proto_names *p, struct err *err)
{
	const char *path = get2(p, "path", "server.path"), *host = get2(p, "host", "server.host");
	const char *port = get2(p, "port", "server.port"), *export = get(p, "export");
	const char *tls = get(p, "tls-creds"), *type = get(p, "server.type");
	char *out = NULL;
	int n;

	(void)type;
	if (tls) {
		err_set(err, -ENOTSUP, "nbd: tls-creds=%s is not implemented; use a URL nbds://HOST/EXPORT", tls);
		return NULL;
	}
	if (path)
		n = asprintf(&out, "nbd+unix:///%s?socket=%s", export ? export : "", path);
	else if (host)
		n = asprintf(&out, strchr(host, ':') ? "nbd://[%s]:%s/%s" : "nbd://%s:%s/%s", host,
			     port ? port : "10809", export ? export : "");
	else
		n = err_set(err, -EINVAL, "nbd: one of path and host must be specified");
	return n < 0 ? NULL : out;
}

static char *make_iscsi(const struct proto_names *p, struct err *err)
{
	const char *portal = get(p, "portal"), *target = get(p, "target"), *lun = get(p, "lun");
	const char *user = get(p, "user"), *password = get(p, "password"), *name = get(p, "initiator-name");
	const char *transport = get(p, "transport");
	char *out = NULL;

	if (!portal || !target) {
		err_set(err, -EINVAL, "iscsi: portal= and target= are needed");
		return NULL;
	}
	if (transport && strcmp(transport, "tcp") != 0) {
		err_set(err, -ENOTSUP, "iscsi: transport '%s' is not implemented (tcp is)", transport);
		return NULL;
	}
	if (asprintf(&out, "iscsi://%s%s%s%s%s/%s/%s%s%s", user ? user : "", password ? "%" : "",
		     password ? password : "", user ? "@" : "", portal, target, lun ? lun : "0",
		     name ? "?initiator-name=" : "", name ? name : "") < 0)
		return NULL;
	return out;
}

static char *make_null(const struct proto_names *p, struct err *err)
{
	const char *size = get(p, "size"), *zeroes = get(p, "read-zeroes");
	char *out = NULL;

	if (asprintf(&out, "null-co://?size=%s&read-zeroes=%s", size ? size : "1G", zeroes ? zeroes : "off") < 0)
		return NULL;
	return out;
}

static const struct {
	const char *driver;
	char *(*make)(const struct proto_names *p, struct err *err);
} protocols[] = {
    {"file", make_file},   {"host_device", make_file}, {"host_cdrom", make_file}, {"nbd", make_nbd},
    {"iscsi", make_iscsi}, {"null-co", make_null},     {"null-aio", make_null},
};

bool block_is_protocol(const char *driver)
{
	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
		if (strcmp(protocols[i].driver, driver) == 0)
			return true;
	return false;
}

/* ---- the keys of one level ------------------------------------------------------ */

static int set_bool(struct opts *o, const char *prefix, const char *key, bool *out, struct err *err)
{
	char full[80];
	const char *v;

	snprintf(full, sizeof(full), "%s%s", prefix, key);
	v = opts_get(o, full);
	if (!v)
		return 0;
	*out = strcmp(v, "on") == 0 || strcmp(v, "true") == 0 || strcmp(v, "yes") == 0;
	if (!*out && strcmp(v, "off") != 0 && strcmp(v, "false") != 0 && strcmp(v, "no") != 0)
		return err_set(err, -EINVAL, "Parameter '%s' expects 'on' or 'off'", full);
	return 0;
}

/* What any driver takes, format or protocol. */
static int take_common(struct opts *o, const char *prefix, struct block_open *b, struct err *err)
{
	const struct proto_names p = {o, prefix, false};
	const char *v;
	bool auto_ro = false;
	int ret = set_bool(o, prefix, "read-only", &b->read_only, err);

	if (!ret)
		ret = set_bool(o, prefix, "auto-read-only", &auto_ro, err);
	if (!ret)
		ret = set_bool(o, prefix, "cache.direct", &b->direct, err);
	if (!ret)
		ret = set_bool(o, prefix, "cache.no-flush", &b->no_flush, err);
	if (!ret)
		ret = set_bool(o, prefix, "force", &b->force, err);
	if (!ret && (v = get(&p, "locking")))
		b->locking = strcmp(v, "off") != 0;
	if (!ret && (v = get(&p, "discard")))
		b->discard_unmap = strcmp(v, "unmap") == 0 || strcmp(v, "on") == 0;
	if (!ret && (v = get(&p, "detect-zeroes")))
		b->detect_zeroes = strcmp(v, "unmap") == 0 ? BLOCK_ZEROES_UNMAP
				   : strcmp(v, "on") == 0  ? BLOCK_ZEROES_ON
							   : BLOCK_ZEROES_OFF;
	if (!ret && (v = get(&p, "aio")))
		ret = block_set_aio(b, v, err);
	get(&p, "node-name");
	return ret;
}

static int take_size(struct opts *o, const char *key, uint64_t *out, struct err *err)
{
	const char *v = opts_get(o, key);

	if (v && text_parse_size(v, 1, out))
		return err_set(err, -EINVAL, "Parameter '%s' expects a size, not '%s'", key, v);
	return 0;
}

static int take_qcow2(struct opts *o, struct block_open *b, struct err *err)
{
	const char *v;
	bool lazy = false;
	int ret = take_size(o, "l2-cache-size", &b->l2_cache_size, err);

	if (!ret)
		ret = take_size(o, "refcount-cache-size", &b->refcount_cache_size, err);
	if (!ret)
		ret = take_size(o, "cache-size", &b->cache_size, err);
	if (!ret)
		ret = take_size(o, "l2-cache-entry-size", &b->l2_cache_entry_size, err);
	if (!ret && opts_get(o, "lazy-refcounts")) {
		ret = set_bool(o, "", "lazy-refcounts", &lazy, err);
		b->lazy_refcounts = lazy ? 1 : -1;
	}
	if (!ret && (v = opts_get(o, "cache-clean-interval")))
		b->cache_clean_interval = (unsigned)strtoul(v, NULL, 10);
	if (!ret && (v = opts_get(o, "data-file.filename")))
		b->data_file = v;
	return ret;
}

/* ---- opening ------------------------------------------------------------------------ */

/* The file under the format: its own options, or those of an earlier node. */
static int take_file(struct opts *o, const char *driver, struct block_open *b, char **name, struct err *err)
{
	struct proto_names p = {o, "file.", false};
	const char *file = opts_get(o, "file"), *proto;

	if (block_is_protocol(driver)) {
		p.prefix = "";
		proto = driver;
	} else if (file) {
		p.o = block_described_node(file);
		p.prefix = "";
		if (!p.o)
			return err_set(err, -ENOENT, "Cannot find device='' nor node-name='%s'", file);
		proto = opts_get(p.o, "driver");
	} else {
		proto = opts_get(o, "file.driver");
		if (!proto)
			proto = "file";
	}
	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
		if (strcmp(protocols[i].driver, proto) == 0) {
			int ret = take_common(p.o, p.prefix, b, err);
			if (ret)
				return ret;
			*name = protocols[i].make(&p, err);
			return *name ? 0 : err->code ? err->code : -ENOMEM;
		}
	return err_set(err, -EINVAL, "Unknown driver '%s' for a file (file, host_device, nbd, iscsi, null-co)", proto);
}

/* backing=null, backing=NODE or backing.driver=...: another backing file than the header's. */
static struct block_node *open_other_backing(struct opts *o, const struct block_open *b, struct loop *l,
					     struct err *err)
{
	const char *node = opts_get(o, "backing");
	struct opts sub = {0};
	struct block_open lower = *b;
	struct block_node *n = NULL;

	if (node)
		return block_take_node(node, err);
	for (size_t i = 0; i < o->n; i++)
		if (strncmp(o->v[i].key, "backing.", 8) == 0) {
			o->v[i].used = true;
			opts_add(&sub, o->v[i].key + 8, o->v[i].value);
		}
	lower.read_only = true;
	lower.chain_depth++;
	lower.no_backing = false;
	lower.backing = NULL;
	if (lower.chain_depth < BLOCK_MAX_CHAIN)
		n = block_open_opts(&sub, &lower, l, err);
	else
		err_set(err, -ELOOP, "more than %u backing files", BLOCK_MAX_CHAIN);
	opts_free(&sub);
	return n;
}

static bool has_other_backing(const struct opts *o, bool *none)
{
	bool found = false;

	for (size_t i = 0; i < o->n; i++) {
		if (strcmp(o->v[i].key, "backing") == 0) {
			found = true;
			*none = o->v[i].value[0] == 0 || strcmp(o->v[i].value, "null") == 0;
			o->v[i].used = true;
		} else if (strncmp(o->v[i].key, "backing.", 8) == 0) {
			found = true;
		}
	}
	return found;
}

static int check_all_used(const struct opts *o, const char *driver, struct err *err)
{
	for (size_t i = 0; i < o->n; i++)
		if (!o->v[i].used)
			return err_set(err, -EINVAL, "Block format '%s' does not support the option '%s'", driver,
				       o->v[i].key);
	return 0;
}

struct block_node *block_open_opts(struct opts *o, const struct block_open *defaults, struct loop *l, struct err *err)
{
	const char *driver = opts_get(o, "driver");
	struct block_open b = *defaults;
	struct block_node *n = NULL, *backing = NULL;
	bool none = false, other = has_other_backing(o, &none);
	char *name = NULL;
	int ret;

	/* As for a file name: what is no protocol's option is a format to be probed. */
	if (!driver && (opts_get(o, "filename") || opts_get(o, "file.filename") || opts_get(o, "file.driver")))
		driver = opts_get(o, "filename") ? "file" : "";
	if (!driver) {
		err_set(err, -EINVAL, "Must specify either driver or file");
		return NULL;
	}
	b.format = block_is_protocol(driver) ? "raw" : driver[0] ? driver : NULL;
	ret = take_file(o, driver, &b, &name, err);
	if (!ret)
		ret = take_common(o, "", &b, err);
	if (!ret)
		ret = take_qcow2(o, &b, err);
	if (!ret && other && !none) {
		backing = open_other_backing(o, &b, l, err);
		ret = backing ? 0 : -EIO;
	}
	b.no_backing = b.no_backing || none;
	b.backing = backing ? &backing : NULL;
	b.filename = name;
	if (!ret)
		ret = check_all_used(o, driver, err);
	if (!ret)
		n = block_open(&b, l, err);
	if (n && backing) {
		err_set(err, -EINVAL, "driver '%s' has no backing file to replace", driver);
		block_close(n);
		n = NULL;
	}
	block_close(backing); /* nobody took it */
	free(name);
	return n;
}

struct block_node *block_open_text(const char *text, const struct block_open *o, struct loop *l, struct err *err)
{
	struct block_node *n = NULL;
	struct opts opts;

	if (opts_parse(text, NULL, &opts, err) == 0) {
		n = block_open_opts(&opts, o, l, err);
		opts_free(&opts);
	}
	return n;
}
