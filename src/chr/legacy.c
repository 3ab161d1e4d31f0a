// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The shorthands of -serial, -monitor and -qmp, translated to the options of
 * -chardev by a table of prefixes: one way to create a chardev.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "chr/chr_impl.h"

/* How the text after the prefix is to be read. */
enum legacy_form {
	LEGACY_WORD, /* nothing but options follows */
	LEGACY_PATH, /* PATH, whole: it may contain commas */
	LEGACY_UNIX, /* PATH[,options] */
	LEGACY_TCP,  /* [HOST]:PORT[,options] */
};

static const struct legacy_prefix {
	const char *prefix;
	enum legacy_form form;
	const char *backend, *extra_key, *extra_value;
} legacy_table[] = {
    {"stdio", LEGACY_WORD, "stdio", NULL, NULL}, {"pty", LEGACY_WORD, "pty", NULL, NULL},
    {"null", LEGACY_WORD, "null", NULL, NULL},	 {"file:", LEGACY_PATH, "file", NULL, NULL},
    {"pipe:", LEGACY_PATH, "pipe", NULL, NULL},	 {"unix:", LEGACY_UNIX, "socket", NULL, NULL},
    {"tcp:", LEGACY_TCP, "socket", NULL, NULL},	 {"telnet:", LEGACY_TCP, "socket", "telnet", "on"},
};

static int legacy_split_tcp(struct opts *o, const char *text, struct err *err)
{
	const char *colon = strrchr(text, ':');

	if (!colon || !colon[1])
		return err_set(err, -EINVAL, "'%s': expected HOST:PORT", text);
	/* [::1]:4444 is an IPv6 address in brackets. */
	size_t n = (size_t)(colon - text);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	char *host = strndup(text, n);
	int ret = host ? opts_add(o, "host", host) : -ENOMEM;
	free(host);
	if (!ret)
		ret = opts_add(o, "port", colon + 1);
	return ret ? err_set_errno(err, ret, "socket") : 0;
}

static int legacy_options(const struct legacy_prefix *p, const char *rest, struct opts *o, struct err *err)
{
	int ret = 0;

	*o = (struct opts){0};
	switch (p->form) {
	case LEGACY_PATH: ret = opts_add(o, "path", rest); break;
	case LEGACY_WORD: ret = *rest == ',' ? opts_parse(rest + 1, NULL, o, err) : 0; break;
	case LEGACY_UNIX:
		ret = opts_parse(rest, "path", o, err);
		free(o->head);
		o->head = NULL;
		break;
	case LEGACY_TCP: {
		struct opts addr;
		ret = opts_parse(rest, "addr", &addr, err);
		if (ret)
			break;
		ret = legacy_split_tcp(o, addr.head ? addr.head : "", err);
		for (size_t i = 1; i < addr.n && !ret; i++)
			ret = opts_add(o, addr.v[i].key, addr.v[i].value);
		opts_free(&addr);
		break;
	}
	}
	if (!ret && p->extra_key)
		ret = opts_add(o, p->extra_key, p->extra_value);
	if (!ret && !(o->head = strdup(p->backend)))
		ret = -ENOMEM;
	return ret ? err_set_errno(err, ret, "options") : 0;
}

static const struct legacy_prefix *legacy_find(const char *text, const char **rest)
{
	for (size_t i = 0; i < ARRAY_SIZE(legacy_table); i++) {
		const struct legacy_prefix *p = &legacy_table[i];
		size_t n = strlen(p->prefix);
		if (!strncmp(text, p->prefix, n) && (p->form != LEGACY_WORD || !text[n] || text[n] == ',')) {
			*rest = text + n;
			return p;
		}
	}
	return NULL;
}

static int legacy_no_backend(const char *text, struct err *err)
{
	const char *names[ARRAY_SIZE(legacy_table)];
	char word[32];

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(text, ":,"), text);
	if (!strcmp(word, "vc") || !strcmp(word, "udp") || !strcmp(word, "msmouse") || text[0] == '/' ||
	    !strcmp(word, "braille") || !strcmp(word, "websocket") || !strcmp(word, "tn3270"))
		return err_set(err, -ENOTSUP, "character backend '%s' does not exist in Kelvin yet", text);
	for (size_t i = 0; i < ARRAY_SIZE(legacy_table); i++)
		names[i] = legacy_table[i].prefix;
	const char *near = text_nearest(word, names, ARRAY_SIZE(names));
	return err_set(err, -EINVAL, "there is no character backend '%s'%s%s%s", text, near ? "; did you mean '" : "",
		       near ? near : "", near ? "'?" : "");
}

int chr_create_legacy(const char *text, const char *id, struct loop *l, struct chr **out, struct err *err)
{
	bool mux = false;
	const char *rest;
	struct opts o;

	*out = NULL;
	if (!strcmp(text, "none"))
		return 0;
	if (!strncmp(text, "chardev:", 8)) {
		*out = chr_find(text + 8);
		return *out ? 0 : err_set(err, -ENOENT, "there is no chardev '%s'", text + 8);
	}
	if (!strncmp(text, "mon:", 4)) {
		mux = true;
		text += 4;
	}
	const struct legacy_prefix *p = legacy_find(text, &rest);
	if (!p)
		return legacy_no_backend(text, err);
	int ret = legacy_options(p, rest, &o, err);
	if (!ret && mux)
		ret = opts_add(&o, "mux", "on");
	if (!ret && mux && !strcmp(p->backend, "stdio"))
		ret = opts_add(&o, "signal", "off"); /* Ctrl-c belongs to the guest */
	if (!ret) {
		*out = chr_create_opts(&o, id, l, err);
		ret = *out ? 0 : err && err->code ? err->code : -EINVAL;
	}
	opts_free(&o);
	return ret;
}
