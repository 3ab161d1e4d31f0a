#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# block.sh TARGET SECONDS [LIBFUZZER FLAG...]: coverage-guided fuzzing of the block layer with ASan and UBSan.
# TARGET: qed, qcow2, raw (image files), qcow2-ops (repair, snapshots, resize, amend of one), nbd, iscsi (a server's answers). The corpus is kept in build/fuzz/TARGET.
set -eu
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=$1 seconds=$2
shift 2
out=$top/build/fuzz
corpus=$out/$target
mkdir -p "$corpus"
case $target in
qed | qcow2 | raw) source=fuzz_image.c define=-DFORMAT="\"$target\"" ;;
qcow2-ops) source=fuzz_qcow2.c define=-DFORMAT=0 ;;
nbd | iscsi) source=fuzz_store.c define=-DSCHEME="\"$target\"" ;;
*) echo "targets: qed qcow2 qcow2-ops raw nbd iscsi" >&2; exit 1 ;;
esac
mapfile -t files < <(cd "$top" && ls src/base/*.c src/io/*.c src/block/*.c)
(cd "$top" && clang-14 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -fno-strict-aliasing \
	-D_GNU_SOURCE -DKELVIN_SANITIZE=1 -DKELVIN_VERSION='"fuzz"' "$define" -std=gnu17 -Isrc "${files[@]}" "tests/fuzz/$source" \
	-o "$out/fuzz-$target" $(pkg-config --libs liburing liburcu-bp jansson zlib libzstd) -lm -ldl -lpthread)
# Seeds: small images of each kind, whose metadata is all within the first kilobytes.
if [ -z "$(ls "$corpus")" ] && command -v qemu-img >/dev/null; then
	case $target in
	qed)
		qemu-img create -q -f qed -o cluster_size=4096,table_size=2 "$corpus/empty" 1M
		cp "$corpus/empty" "$corpus/used"
		qemu-io -f qed -c 'write -P 1 0 8k' -c 'write -z 64k 8k' -c 'write -P 2 512k 4k' "$corpus/used" >/dev/null
		cp "$corpus/used" "$corpus/dirty"
		printf '\2' | dd of="$corpus/dirty" bs=1 seek=16 conv=notrunc status=none
		;;
	qcow2)
		for o in cluster_size=512 cluster_size=512,refcount_bits=1 compat=0.10,cluster_size=512 \
			cluster_size=4k,lazy_refcounts=on cluster_size=16k,extended_l2=on; do
			qemu-img create -q -f qcow2 -o $o "$corpus/$o" 1M
			qemu-io -f qcow2 -c 'write -P 1 0 4k' -c 'write -P 2 512k 1k' "$corpus/$o" >/dev/null
		done
		;;
	qcow2-ops)
		# The last 16 bytes of an input are the operations.
		for o in cluster_size=512 cluster_size=4k cluster_size=16k,extended_l2=on cluster_size=4k,lazy_refcounts=on \
			compat=0.10,cluster_size=4k compression_type=zstd,cluster_size=4k; do
			qemu-img create -q -f qcow2 -o $o "$corpus/$o" 200k
			qemu-io -f qcow2 -c 'write -P 1 0 20k' -c 'write -z 32k 16k' "$corpus/$o" >/dev/null
			qemu-img snapshot -c f "$corpus/$o"
			qemu-io -f qcow2 -c 'write -P 2 4k 8k' "$corpus/$o" >/dev/null
			qemu-img convert -c -O qcow2 -o $o "$corpus/$o" "$corpus/$o,c"
			printf '\011\020\001\200\002\000\003\201\004\100\005\001\006\011\001\002' >>"$corpus/$o"
			printf '\001\020\021\200\002\000\003\200\014\100\005\360\006\377\007\003' >>"$corpus/$o,c"
		done
		;;
	nbd) printf '\2hello' >"$corpus/a"; printf '\1\0\0\0' >"$corpus/b"; head -c 600 /dev/zero >"$corpus/c" ;;
	iscsi) head -c 200 /dev/zero >"$corpus/a"; printf '\0\43\207\0\0' >"$corpus/b" ;;
	esac
fi
# libiscsi and libnbd keep a little after a failed login; what is ours is looked for in the image targets.
case $target in nbd | iscsi) set -- -detect_leaks=0 "$@" ;; esac
cd "$out"
exec "./fuzz-$target" -max_total_time="$seconds" -max_len=70000 -timeout=60 -rss_limit_mb=1500 -artifact_prefix="$out/$target-" "$@" "$corpus"
