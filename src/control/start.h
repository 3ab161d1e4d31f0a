/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From a parsed command line to a running machine, and back. */
#ifndef KELVIN_CONTROL_START_H
#define KELVIN_CONTROL_START_H

#include "control/cmdline.h"

/* Build and run the machine; returns the process's exit status. Errors are printed. */
int start_run(struct cmdline *c);

#endif
