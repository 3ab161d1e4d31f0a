#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# watched.sh SECONDS COMMAND...: run COMMAND. If it has not ended after SECONDS, show what every thread of it waits for and whether
# it moves (state, CPU time twice, system call, kernel stack), KVM's counters and the kernel's messages; end it; status 124.
set -u
limit=$1
shift
"$@" &
command=$!
for ((i = 0; i < limit; i++)); do
	sleep 1
	kill -0 $command 2>/dev/null || { wait $command; exit; }
done

# All processes below $1.
below() { local p; for p in $(cat /proc/"$1"/task/*/children 2>/dev/null); do echo "$p"; below "$p"; done; }

threads()
{
	for t in /proc/"$1"/task/*; do
		echo "  $(<"$t/comm") $(cut -d' ' -f3,14,15 "$t/stat") $(grep -h ctxt "$t/status" | tr -s '\t\n' ' ')"
	done
}

{
	echo "--- not done after $limit s; uptime $(</proc/uptime), load $(</proc/loadavg)"
	for p in $command $(below $command); do
		echo "process $p: $(tr '\0' ' ' </proc/"$p"/cmdline | cut -c1-200)"
		echo " state, user and system ticks, switches, twice:"
		threads "$p"
		sleep 3
		threads "$p"
		for t in /proc/"$p"/task/*; do
			echo " $t waits in $(<"$t/wchan"), system call $(<"$t/syscall")"
			cat "$t/stack"
		done
	done
	mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
	grep -s . /sys/kernel/debug/kvm/*
	dmesg | tail -n 20
} 2>/dev/null
kill -KILL $(below $command) $command
wait $command 2>/dev/null
exit 124
