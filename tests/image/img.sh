#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# kelvin img against qemu-img: what one makes the other reads, checks and describes alike. $1: the kelvin program.
set -u
kelvin=$(realpath "$1")
command -v qemu-img >/dev/null || exit 77
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
ok() { "$@" >log 2>&1 || { echo "FAILED ($?): $*"; tail -3 log; failed=1; }; }
fails() { local want=$1; shift; "$@" >log 2>&1; local rc=$?; [ $rc = "$want" ] || { echo "exit status $rc, not $want: $*"; failed=1; }; }

same()
{
	"$kelvin" img "$@" >ours 2>&1
	qemu-img "$@" >theirs 2>&1
	sed -i '/^Child node/,$d; /^ *bitmaps/d' theirs
	cmp -s ours theirs || { echo "differs: $*"; diff ours theirs | head -8; failed=1; }
}
same_json()
{
	"$kelvin" img "$@" >ours 2>&1
	qemu-img "$@" >theirs 2>&1
	python3 -c 'import json; assert json.load(open("ours")) == json.load(open("theirs"))' 2>/dev/null ||
		{ echo "differs: $*"; diff ours theirs | head -20; failed=1; }
}

# Every create option: qemu-img finds nothing wrong, and can write to it.
for o in compat=0.10 compat=1.1 cluster_size=512 cluster_size=2M refcount_bits=1 refcount_bits=64 lazy_refcounts=on \
	compression_type=zstd cluster_size=512,refcount_bits=64; do
	for size in 0 512 3M 10G; do
		[ $size = 10G ] && [ "${o#*cluster_size=512}" != "$o" ] && size=1G
		ok "$kelvin" img create -q -f qcow2 -o $o c.qcow2 $size
		ok qemu-img check c.qcow2
	done
	ok qemu-io -c 'write -P 5 1M 1M' c.qcow2
	ok qemu-img check c.qcow2
done
fails 1 "$kelvin" img create -f qcow2 -o cluster_size=300 c.qcow2 1M
fails 1 "$kelvin" img create -f qcow2 -b x.raw c.qcow2 1M
fails 1 "$kelvin" img create -f vmdk c.vmdk 1M
# Help, asked where one is, is no error.
for verb in create convert check; do
	ok "$kelvin" img $verb --help
	grep -q "^usage: kelvin img $verb " log || { echo "no usage: img $verb --help"; failed=1; }
done
ok "$kelvin" bench run disk-bus --help
grep -q -- --quick log || { echo "no usage: bench run --help"; failed=1; }

# QED, made by either side.
for o in cluster_size=4k,table_size=2 cluster_size=64k,table_size=4 cluster_size=1M,table_size=16 cluster_size=4M,table_size=2; do
	for maker in qemu-img "$kelvin img"; do
		ok $maker create -q -f qed -o $o c.qed 20M
		ok qemu-io -c 'write -P 5 1M 1M' -c 'write -z 8M 64k' c.qed
		ok qemu-img check c.qed
		ok "$kelvin" img convert -O raw c.qed c.raw
		ok qemu-img compare -f qed -F raw c.qed c.raw
		ok "$kelvin" img convert -O qed -o $o c.raw d.qed
		ok qemu-img check d.qed
		ok qemu-img compare -f qed -F qed c.qed d.qed
		same info c.qed
		same_json info --output=json d.qed
		same_json map --output=json c.qed
	done
done
fails 1 "$kelvin" img create -f qed -o cluster_size=2k c.qed 1M
fails 1 "$kelvin" img create -f qed -o table_size=3 c.qed 1M

# Conversions, both ways; overlays in another folder.
head -c 1500000 /dev/urandom >r.raw; truncate -s 4M r.raw; head -c 300000 "$kelvin" >>r.raw; truncate -s 5M r.raw
ok qemu-img convert -c -f raw -O qcow2 r.raw q.qcow2
ok "$kelvin" img convert -f qcow2 -O raw q.qcow2 b.raw
ok cmp r.raw b.raw
ok "$kelvin" img convert -f raw -O qcow2 r.raw k.qcow2
ok qemu-img check k.qcow2
ok qemu-img compare -f raw -F qcow2 r.raw k.qcow2
ok "$kelvin" img compare -f qcow2 -F qcow2 q.qcow2 k.qcow2
mkdir sub
ok "$kelvin" img create -q -f qcow2 -b ../q.qcow2 -F qcow2 sub/o.qcow2
ok qemu-img check sub/o.qcow2
ok qemu-io -c 'write -P 1 1M 64k' -c 'write -z 2M 64k' sub/o.qcow2
ok "$kelvin" img convert -O raw sub/o.qcow2 o.raw
ok qemu-img compare -f raw o.raw sub/o.qcow2
fails 1 "$kelvin" img compare q.qcow2 sub/o.qcow2
fails 2 "$kelvin" img compare q.qcow2 nosuch
ln -s "$kelvin" qemu-img
ok ./qemu-img compare -q -f raw -F raw r.raw b.raw
ok cp r.raw r2.raw
fails 1 "$kelvin" img convert -U -O qcow2 r.raw r.raw
ok cmp r.raw r2.raw
fails 1 "$kelvin" img convert -c r.raw x.qcow2
ok "$kelvin" img check k.qcow2

# The same words as qemu-img.
for f in q.qcow2 k.qcow2 r.raw sub/o.qcow2 c.qcow2; do
	same info $f
	same_json info --output=json $f
	same_json map --output=json $f
done
same map k.qcow2
same info --backing-chain sub/o.qcow2
ok "$kelvin" img snapshot -c first k.qcow2
same info k.qcow2
same snapshot -l k.qcow2
same_json info --output=json k.qcow2
ok "$kelvin" img convert -l first -O raw k.qcow2 s.raw
ok cmp r.raw s.raw
# A snapshot that says its L1 table has 2^32 entries costs no memory.
ok cp k.qcow2 h.qcow2
ok python3 -c 'import struct; f = open("h.qcow2", "r+b"); f.seek(64); o = struct.unpack(">Q", f.read(8))[0]; f.seek(o + 8); f.write(b"\377" * 4)'
case $kelvin in */build*) if ! ldd "$kelvin" | grep -q -E 'asan|tsan'; then (ulimit -v 700000; ok "$kelvin" img snapshot -c second h.qcow2; exit $failed) || failed=1; fi ;; esac
exit $failed
