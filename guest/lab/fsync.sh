# SPDX-License-Identifier: GPL-2.0-or-later
# fsync: how long 4 KiB take to be safe on the disk.
export LAB_TITLE="making 4 KiB safe"
make_fs
$lab fsync fsync "$dir/log" "$P_count"
