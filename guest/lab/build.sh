# SPDX-License-Identifier: GPL-2.0-or-later
# build: busybox from Debian's source package, whose build works like the kernel's; the sources are on the disk.
export LAB_TITLE="building busybox"
make_fs
tar xf "$LAB_DIR/source.tar" -C "$dir"
cd "$dir"/busybox-*
make "$P_config" >/dev/null 2>&1
drop_caches
# shellcheck disable=SC2086
$lab phase build sh -c 'jobs=$1; shift; make -j"$jobs" "$@" >/dev/null 2>/tmp/lab-build.log || { tail -5 /tmp/lab-build.log; exit 1; }; sync' \
	- "$P_jobs" $P_goals
