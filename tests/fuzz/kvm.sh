#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# kvm.sh GUEST: fuzz.py with the KVM engine in the rig, with a seed that is told.
#
# A run takes half a minute, and more than a minute on a busy host. One in ten was once seen to end at a limit of 80 s for
# all of it; 30 runs on a host with a load of 20, without that limit, took 38 to 73 s and none stood still. If one does, watched.sh
# shows in the emulated machine what waits for what; if even that says nothing, the emulated machine itself stands still.
# Such a run is repeated once; what fuzz.py finds is never repeated.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for seed in $((RANDOM * 32768 + RANDOM)) $((RANDOM * 32768 + RANDOM)); do
	echo "seed $seed"
	"$here/../kvm-rig" -t 500 "$here/watched.sh" 240 "$here/fuzz.py" "$1" kvm 15 "$seed"
	status=$?
	[ $status -ne 124 ] && exit $status
	echo "the run with seed $seed stood still" >&2
done
exit 1
