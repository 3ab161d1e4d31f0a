#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every C file is as clang-format would write it.
cd "$1" || exit 1
mapfile -t files < <(find src tests guest -name '*.[ch]')
[ ${#files[@]} -gt 0 ] || { echo "no C files found"; exit 1; }
clang-format-14 --style=file --dry-run --Werror "${files[@]}" 2>&1 | grep -E 'error' | cut -d: -f1 | sort | uniq -c | head -20
[ "${PIPESTATUS[0]}" -eq 0 ]
