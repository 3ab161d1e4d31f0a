/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For fuzz targets whose inputs name files, sockets and hosts: a process that can reach none that matter. */
#ifndef KELVIN_TESTS_FUZZ_SANDBOX_H
#define KELVIN_TESTS_FUZZ_SANDBOX_H

/*
 * From now on all files are read-only but an empty folder in memory, which is the working folder, and the folder in
 * FUZZ_KEEP of the environment (for the fuzzer's own corpus); /dev is empty, and there is no network. Before threads
 * are made. Where the host allows none of that the process ends with status 77 (skipped).
 */
void sandbox_enter(void);

#endif
