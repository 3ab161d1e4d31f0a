/* SPDX-License-Identifier: GPL-2.0-or-later */
/* TCP end points by name, for character devices and migration. Any thread; looking up a name may take its time. */
#ifndef KELVIN_IO_TCP_H
#define KELVIN_IO_TCP_H

#include <stdbool.h>

/* Is it a number that a port can have? Names of services are for tcp_open to judge. */
bool tcp_port_ok(const char *port);
/*
 * A socket connected to host and port, or with `server` listening there; host NULL: this host, of a server any of its
 * addresses. `family`: AF_UNSPEC, AF_INET, AF_INET6. The caller's descriptor, or -errno of the last address tried;
 * *lookup is getaddrinfo's error where there is no address to try, else 0.
 */
int tcp_open(const char *host, const char *port, int family, bool server, int *lookup);

#endif
