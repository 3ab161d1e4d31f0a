# SPDX-License-Identifier: GPL-2.0-or-later
# cpu: the programs of guest/bench, one after the other.
for program in $P_programs; do
	$lab bench "$program"
done
