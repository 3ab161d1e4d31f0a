#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The verbs of kelvin img that change or copy images: results judged by qemu-img. $1: the kelvin program.
set -u
kelvin=$(realpath "$1")
command -v qemu-img >/dev/null || exit 77
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
img() { "$kelvin" img "$@"; }
ok() { "$@" >log 2>&1 || { echo "FAILED ($?): $*"; tail -3 log; failed=1; }; }
fails() { local want=$1; shift; "$@" >log 2>&1; local rc=$?; [ $rc = "$want" ] || { echo "exit status $rc, not $want: $*"; failed=1; }; }
says() { local want=$1; shift; "$@" >log 2>&1; grep -qF -- "$want" log || { echo "does not say '$want': $*"; cat log; failed=1; }; }
alike() { img "$@" 2>&1 | sed 's/^kelvin: img [a-z]*: //' >ours; qemu-img "$@" 2>&1 | sed 's/^qemu-img: //' >theirs; cmp -s ours theirs || { echo "differs: $*"; diff ours theirs | head; failed=1; }; }

truncate -s 24M a.raw
head -c 5M /dev/urandom | dd of=a.raw bs=1M seek=3 conv=notrunc status=none
head -c 700k /dev/urandom | dd of=a.raw bs=1k seek=17000 conv=notrunc status=none

# convert: every way gives the same bytes.
for format in raw qcow2 qed; do
	ok img convert -O $format a.raw b.$format
	ok qemu-img compare -f raw -F $format a.raw b.$format
	for flags in "-m 1" "-W -m 16" "-S 0" "-S 64k" "-t none -T none" "-t writethrough -T directsync" "-C" "-r 100M"; do
		ok img convert $flags -f $format -O raw b.$format c.raw
		ok cmp a.raw c.raw
	done
done
# -C: the host copies; nothing but what is data, and the program sees none of it. (No leak check: it cannot work under strace.)
for format in raw qcow2; do
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 \
		ok strace -f -e trace=copy_file_range -o calls "$kelvin" img convert -C -f $format -O raw b.$format c.raw
	grep -q 'copy_file_range.*= [1-9]' calls || { echo "convert -C from $format does not let the host copy"; failed=1; }
	ok cmp a.raw c.raw
done
ok img convert -C -n -f raw -O raw a.raw c.raw
ok img convert -C -f raw -O qcow2 a.raw c.qcow2
ok qemu-img compare -f raw -F qcow2 a.raw c.qcow2
ok img convert -f qcow2 -O raw b.qcow2 c.raw
[ "$(stat -c %b c.raw)" -lt 16000 ] || { echo "c.raw is not sparse"; failed=1; }
ok img convert -S 0 -f raw -O raw a.raw c.raw
[ "$(stat -c %b c.raw)" -ge 49152 ] || { echo "-S 0 leaves holes"; failed=1; }
ok img convert -f raw -O qcow2 a.raw a.raw two.qcow2
cat a.raw a.raw >two.raw
ok qemu-img compare -f raw -F qcow2 two.raw two.qcow2
head -c 24M /dev/zero | tr '\0' '\377' >full.raw
cp full.raw old.raw
ok img convert -n -f raw -O raw a.raw old.raw
ok cmp a.raw old.raw
fails 1 img convert -n -f raw -O raw two.raw old.raw
fails 1 img convert -f raw -O raw a.raw --target-is-zero x.raw
says '(100.00/100%)' img convert -p -f raw -O qcow2 a.raw b.qcow2
[ "$(img convert -p -f raw -O qcow2 a.raw b.qcow2 | tr '\r' '\n' | wc -l)" -gt 3 ] || { echo "no progress"; failed=1; }
# An overlay that stays one.
ok qemu-img create -q -f qcow2 -b b.qcow2 -F qcow2 o.qcow2
ok qemu-io -c 'write -P 7 5M 1M' -c 'write -z 4M 64k' -c 'write -P 1 20M 512' o.qcow2
ok img convert -O qcow2 -B b.qcow2 -F qcow2 o.qcow2 p.qcow2
ok qemu-img compare o.qcow2 p.qcow2
ok qemu-img check p.qcow2
[ "$(stat -c %s p.qcow2)" -lt 3000000 ] || { echo "-B copies the backing file"; failed=1; }

# Names by options.
ok img compare --image-opts driver=qcow2,file.driver=file,file.filename=b.qcow2 driver=raw,file.filename=a.raw
ok img compare 'json:{"driver":"qcow2","file":{"driver":"file","filename":"b.qcow2"}}' 'json:{"driver":"raw","file":{"driver":"file","filename":"a.raw"}}'
ok img compare 'json:{"driver":"qcow2","file":{"driver":"file","filename":"o.qcow2"},"backing":{"driver":"raw","file":{"driver":"file","filename":"a.raw"}}}' o.qcow2
fails 1 img info --image-opts driver=qcow2,file.filename=b.qcow2,nonsense=1

# resize
for format in raw qcow2 qed; do
	ok img convert -O $format a.raw r.$format
	says 'Image resized.' img resize -f $format r.$format +8M
	says '33554432 bytes' qemu-img info r.$format
	fails 1 img resize -f $format r.$format -1M
	fails 1 img resize -f $format r.$format 8X
	fails 1 img resize -f $format --shrink r.$format -64M
done
ok img resize -f raw --shrink r.raw -8M
ok cmp a.raw r.raw
ok img resize -f raw --preallocation=falloc r.raw +4M
fails 1 img resize -f raw --shrink --preallocation=full r.raw 1M

# rebase: what is seen does not change.
head -c 20M /dev/urandom >new.raw
dd if=a.raw of=new.raw bs=1M skip=3 seek=3 count=3 conv=notrunc status=none
for format in qcow2 qed; do
	ok qemu-img create -q -f $format -b a.raw -F raw o.$format
	ok qemu-io -f $format -c 'write -P 7 5M 1M' -c 'write -z 4M 64k' o.$format
	ok qemu-img convert -O raw o.$format want.raw
	ok img rebase -p -b new.raw -F raw o.$format
	ok qemu-img compare -f raw want.raw o.$format
	ok qemu-img check o.$format
	says 'backing file: new.raw' qemu-img info o.$format
	ok img rebase -b '' o.$format
	ok qemu-img compare -f raw want.raw o.$format
	ok img rebase -u -b a.raw -F raw o.$format
	says 'backing file: a.raw' qemu-img info o.$format
	fails 1 img rebase -b missing.raw -F raw o.$format
done

# commit, to the next layer and to a lower one
layers()
{
	cp a.raw base.raw
	ok qemu-img create -q -f qcow2 -b base.raw -F raw mid.qcow2
	ok qemu-img create -q -f qcow2 -b mid.qcow2 -F qcow2 top.qcow2 30M
	ok qemu-io -c 'write -P 3 1M 2M' -c 'write -z 5M 1M' mid.qcow2
	ok qemu-io -c 'write -P 4 2M 2M' -c 'write -P 5 29M 1M' -c 'write -z 16M 700k' top.qcow2
	ok qemu-img convert -O raw top.qcow2 want.raw
}
layers
says 'Image committed.' img commit -d top.qcow2
ok qemu-img compare -f raw want.raw mid.qcow2
ok qemu-img check mid.qcow2
layers
ok img commit -p -b base.raw top.qcow2
ok qemu-img compare -f raw -F raw want.raw base.raw
layers
ok img commit -q top.qcow2
ok qemu-img compare -f raw want.raw top.qcow2
ok qemu-img check top.qcow2
fails 1 img commit -f raw base.raw

# measure and dd
for o in cluster_size=64k cluster_size=2M,refcount_bits=64 cluster_size=512,refcount_bits=1 extended_l2=on preallocation=full; do
	for what in "-f raw a.raw" "--size 1G" "--size 512" "--size 3000G"; do
		alike measure -O qcow2 -o $o $what
	done
done
alike measure -O raw o.qcow2
alike measure --output=json -O qcow2 --size 7G
ok img dd -f raw -O qcow2 bs=1M count=9 if=a.raw of=d.qcow2
ok qemu-img dd -f raw -O raw bs=1M count=9 if=a.raw of=d.raw
ok qemu-img compare -f raw d.raw d.qcow2
ok img dd -f raw -O raw bs=1000 skip=3100 if=a.raw of=d.raw
cmp -s -n 22065824 d.raw <(tail -c +3100001 a.raw) || { echo "dd skip="; failed=1; }

# bench: the same first lines, and that it does what it says
for flags in "-c 200 -d 8" "-c 100 -w -s 8k -S 64k --pattern=5" "-c 64 -d 4 -w --flush-interval=16 -t none" \
	"-c 64 -d 4 -w --flush-interval=16 --no-drain -o 64k"; do
	qemu-img bench -f raw $flags old.raw | grep Sending >theirs
	img bench -f raw $flags old.raw | grep Sending >ours
	cmp -s ours theirs || { echo "differs: bench $flags"; diff ours theirs; failed=1; }
done
says 'Run completed in' img bench -f raw -c 10 -n -t none old.raw
# and the same requests, also past the end of the disk, where the step begins again
for flags in "-s 4k -S 1114112 -c 40" "-s 64k -S 1114112 -c 40" "-s 4k -S 16M -c 3" "-s 4k -S 20000256 -c 50"; do
	head -c 16M /dev/zero >step.raw
	cp step.raw step2.raw
	ok img bench -f raw -w --pattern=66 $flags step.raw
	ok qemu-img bench -f raw -w --pattern=66 $flags step2.raw
	cmp -s step.raw step2.raw || { echo "other requests than qemu-img's: bench $flags"; failed=1; }
done

# Parts of clusters never used before are written without the zeros around them; with cache=none the file is made longer in
# advance, and cut when it is closed.
for cache in none writeback; do
	ok qemu-img create -q -f qcow2 part.qcow2 64M
	ok img bench -f qcow2 -t $cache -w -c 500 -d 16 -s 4k -S 69632 --pattern=7 part.qcow2
	ok qemu-img check part.qcow2
	[ "$(stat -c %s part.qcow2)" -le 34000000 ] || { echo "the room made in advance was left: $(stat -c %s part.qcow2)"; failed=1; }
	head -c 64M /dev/zero >part.raw
	ok qemu-img bench -f raw -w -c 500 -d 16 -s 4k -S 69632 --pattern=7 part.raw
	ok qemu-img compare -f raw -F qcow2 part.raw part.qcow2
done
truncate -s 1M z.raw
ok img bench -f raw -w -c 256 -s 4k --pattern=65 z.raw
cmp -s z.raw <(head -c 1M /dev/zero | tr '\0' A) || { echo "bench wrote something else"; failed=1; }
exit $failed
