#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every C file is as clang-format would write it; names those that are not.
cd "$1" || exit 1
mapfile -t files < <(find src tests guest -name '*.[ch]')
[ ${#files[@]} -gt 0 ] || { echo "no C files found"; exit 1; }
# Many files a process: starting it costs more than a file.
bad=$(printf '%s\0' "${files[@]}" | xargs -0 -n 50 -P 2 clang-format-14 --style=file --dry-run 2>&1 |
	sed -n 's/^\(.*\.[ch]\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
[ -z "$bad" ] || { echo "run clang-format-14 -i on:"; echo "$bad"; exit 1; }
