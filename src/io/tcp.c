// SPDX-License-Identifier: GPL-2.0-or-later
/* Names to sockets by getaddrinfo (RFC 3493): the first address that works. No state. */
#include "io/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* getaddrinfo takes any number and drops its upper bits: 99999 would be 34463. */
bool tcp_port_ok(const char *port)
{
	size_t digits = strspn(port, "0123456789");

	return *port && (port[digits] || strtoul(port, NULL, 10) <= UINT16_MAX);
}

static int try_address(const struct addrinfo *a, bool server)
{
	int one = 1, ret;
	int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	ret = server ? bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1) : connect(fd, a->ai_addr, a->ai_addrlen);
	if (!ret)
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

int tcp_open(const char *host, const char *port, int family, bool server, int *lookup)
{
	const struct addrinfo hints = {
	    .ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = server ? AI_PASSIVE : 0};
	struct addrinfo *list = NULL;
	int ret = -ENOENT;

	*lookup = getaddrinfo(host, port, &hints, &list);
	if (*lookup)
		return ret;
	for (const struct addrinfo *a = list; a && ret < 0; a = a->ai_next)
		ret = try_address(a, server);
	freeaddrinfo(list);
	return ret;
}
