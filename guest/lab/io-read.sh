# SPDX-License-Identifier: GPL-2.0-or-later
# io-read: read every file of a source tree, nothing of it cached on this side.
make_fs
for i in $(seq "$P_copies"); do mkdir "$dir/$i" && tar xf "$LAB_DIR/source.tar" -C "$dir/$i"; done
drop_caches
LAB_TITLE="reading every file" $lab phase read-files sh -c 'find "$1" -type f -exec cat {} + >/dev/null' - "$dir"
if [ "$P_again" = 1 ]; then LAB_TITLE="reading every file again" $lab phase read-again sh -c 'find "$1" -type f -exec cat {} + >/dev/null' - "$dir"; fi
