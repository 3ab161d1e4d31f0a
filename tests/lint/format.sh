#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every C file is as clang-format would write it; names those that are not.
cd "$1" || exit 1
mapfile -t files < <(find src tests guest -name '*.[ch]')
[ ${#files[@]} -gt 0 ] || { echo "no C files found"; exit 1; }
bad=0
for file in "${files[@]}"; do
	clang-format-14 --style=file --dry-run --Werror "$file" >/dev/null 2>&1 || { echo "$file: run clang-format-14 -i on it"; bad=1; }
done
exit $bad
