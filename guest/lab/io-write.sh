# SPDX-License-Identifier: GPL-2.0-or-later
# io-write: unpack a source tree, several times, and sync. The archive lies in memory: only writing is timed.
export LAB_TITLE="unpacking a source tree"
make_fs
cat "$LAB_DIR/source.tar" >/dev/null
$lab phase unpack sh -c 'for i in $(seq "$1"); do mkdir "$2/$i" && tar xf "$3" -C "$2/$i" || exit 1; done; sync' \
	- "$P_copies" "$dir" "$LAB_DIR/source.tar"
