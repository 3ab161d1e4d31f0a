#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# debian.sh ACCEL SMP MEM [COMMAND...]: ./try boots Debian (systemd on ext4 over virtio-blk, multi-user, power-off by ACPI);
# its demonstration, or COMMAND, ends with status 0.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
accel=$1 smp=$2 mem=$3
shift 3
args=(--accel "$accel" --smp "$smp" --mem "$mem")
[ -n "${KELVIN:-}" ] && args+=(--vmm "$KELVIN")
[ $# -gt 0 ] && args+=(-- "$@")
out=$("$top/try" "${args[@]}" </dev/null 2>&1)
rc=$?
echo "$out"
[ $rc -eq 0 ] || { echo "FAILED: ./try ended with $rc"; exit 1; }
grep -q "Debian is up (multi-user)" <<<"$out" || { echo "FAILED: Debian did not reach multi-user"; exit 1; }
if [ $# -eq 0 ]; then
	grep -q "PID 1 is systemd" <<<"$out" && grep -q "read back: the same" <<<"$out" && grep -q "Fibonacci number is right" <<<"$out" &&
		grep -q "^CPUs      $smp:" <<<"$out" && grep -q "root      /dev/vda ext4" <<<"$out" || { echo "FAILED: the demonstration is incomplete"; exit 1; }
fi
exit 0
