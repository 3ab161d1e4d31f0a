#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# qcow2.sh SECONDS [CORPUS]: fuzz the qcow2 driver with libFuzzer, ASan and UBSan, for as long as you like. New inputs are
# kept in CORPUS (default: a folder in build-fuzz); what breaks is left there as crash-*. Seeds are made with qemu-img.
set -eu
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
seconds=${1:?usage: qcow2.sh SECONDS [CORPUS]}
build=$top/build-fuzz
corpus=${2:-$build/corpus-qcow2}
[ -f "$build/build.ninja" ] || CC=clang-14 meson setup "$build" "$top" -Dc_args=-fsanitize=fuzzer-no-link -Db_sanitize=address,undefined -Db_lundef=false >/dev/null
ninja -C "$build" tests/fuzz/fuzz_qcow2 >/dev/null
mkdir -p "$corpus"
cd "$corpus"
i=0
for o in cluster_size=512 cluster_size=4k cluster_size=64k compat=0.10,cluster_size=4k refcount_bits=1,cluster_size=512 \
	extended_l2=on,cluster_size=16k lazy_refcounts=on,cluster_size=4k compression_type=zstd,cluster_size=4k; do
	i=$((i + 1))
	[ -f seed$i ] && continue
	qemu-img create -q -f qcow2 -o $o seed$i 200k
	qemu-io -c 'write -P 1 0 20k' -c 'write -z 32k 16k' seed$i >/dev/null
	qemu-img snapshot -c f seed$i
	qemu-io -c 'write -P 2 4k 8k' seed$i >/dev/null
	printf '\011\020\001\200\002\000\003\201\004\100\005\001\006\011\001\002' >>seed$i
	qemu-img create -q -f qcow2 -o $o c$i 64k
	qemu-img convert -c -O qcow2 -o $o seed$i c$i 2>/dev/null || true
	printf '\001\020\021\200\002\000\003\200\014\100\005\360\006\377\007\003' >>c$i
done
exec nice "$build/tests/fuzz/fuzz_qcow2" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=300000 -print_final_stats=1 .
