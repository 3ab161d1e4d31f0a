# SPDX-License-Identifier: GPL-2.0-or-later
# idle: nothing happens for a while; the lab looks at the CPU time the monitor uses (metric idle:cpu).
export LAB_TITLE="doing nothing"
sleep 1
$lab phase idle sleep "$P_seconds"
