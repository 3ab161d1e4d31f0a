#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# libfuzzer.sh TARGET SECONDS [LIBFUZZER FLAG...]: coverage-guided fuzzing with ASan and UBSan, in build-fuzz.
# TARGET: qed, qcow2, raw (image files), qcow2-ops (repair, snapshots, resize, amend of one), nbd, iscsi (a server's answers),
# scsi, lsi, ide, ahci, nvme (a guest's commands and registers), options (command lines), qmp (a monitor's client), machine (the
# whole board), cpu (code of any mode on the software CPU).
# The corpus is kept in corpus/TARGET of the folder that FUZZ_FOLDER names (else build-fuzz); it starts with tests/fuzz/seeds. What is
# found is in that folder, as TARGET-*. hours.py runs all targets in turn and keeps the sum of their CPU time.
# libfuzzer.sh build TARGET builds only. libfuzzer.sh seeds TARGET BYTES: the corpus made small, as lines for tests/fuzz/seeds/TARGET, on standard output.
set -eu
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$top/build-fuzz
[ "${1:-}" = build ] && { build_only=1; set -- "$2" 0; }
[ "${1:-}" = seeds ] && { pack=$3; set -- "$2" 0; }
[ $# -ge 2 ] || { sed -n '3,9s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 1; }
target=$1 seconds=$2
shift 2
folder=${FUZZ_FOLDER:-$out} longest=70000
corpus=$folder/corpus/$target
case $target in
qed | qcow2 | raw) program=fuzz_image ;;
qcow2-ops) program=fuzz_qcow2 ;;
nbd | iscsi) program=fuzz_store ;;
scsi | lsi | ide | ahci | nvme) program=fuzz_device longest=1000 ;;
options | qmp | machine | cpu) program=fuzz_$target longest=2000 ;;
*) echo "no target '$target' (see the head of ${BASH_SOURCE[0]})" >&2; exit 1 ;;
esac
if [ ! -f "$out/build.ninja" ]; then
	(cd "$top" && CC=clang-14 meson setup "$out" -Dfuzzers=true -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1) >&2
fi
ninja -C "$out" "tests/fuzz/$program" >&2
[ -z "${build_only:-}" ] || exit 0
mkdir -p "$corpus"
export FUZZ_TARGET=$target FUZZ_KEEP=$folder
program=$out/tests/fuzz/$program
if [ -n "${pack:-}" ]; then
	small=$(mktemp -d -p "$folder")
	"$program" -merge=1 -detect_leaks=0 "$small" "$corpus" >&2
	"$top/tests/fuzz/seeds.py" pack "$small" "$pack"
	rm -rf "$small"
	exit 0
fi
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
seeds=$top/tests/fuzz/seeds/$target
[ ! -f "$seeds" ] || "$top/tests/fuzz/seeds.py" unpack "$seeds" "$corpus"
[ ! -f "$seeds.dict" ] || set -- -dict="$seeds.dict" "$@"
# A machine (qmp, machine) is not all in memory that the leak detector knows; the test fuzz-qmp destroys it and looks then.
# nbd and iscsi: looking after each input that libiscsi left something of costs most of the time; the tests fuzz-nbd and fuzz-iscsi look.
case $target in nbd | iscsi | qmp | machine) set -- -detect_leaks=0 "$@"; export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS} ;; esac
exec "$program" -max_total_time="$seconds" -max_len=$longest -entropic=0 -timeout=180 -rss_limit_mb=1500 -artifact_prefix="$folder/$target-" "$@" "$corpus"
