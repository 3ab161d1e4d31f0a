#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# status.sh ACCEL: ./try's exit status is the guest command's.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
"$top/try" --accel "$1" ${KELVIN:+--vmm "$KELVIN"} -- sh -c 'exit 37' </dev/null
rc=$?
[ $rc -eq 37 ] || { echo "FAILED: status $rc, not 37"; exit 1; }
