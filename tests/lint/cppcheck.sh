#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# cppcheck finds nothing in the sources. What is suppressed, and why, is in cppcheck.suppress.
cd "$1" || exit 1
exec cppcheck --quiet --std=c11 --language=c -j2 --enable=warning,portability --inline-suppr --error-exitcode=1 \
	--suppressions-list=tests/lint/cppcheck.suppress -DKELVIN_VERSION='""' -D__x86_64__ -I src src
