#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# NBD (nbdkit) and iSCSI (tgt) as stores of images. $1: the kelvin program. $2: nbd or iscsi.
set -u
kelvin=$(realpath "$1")
command -v qemu-img >/dev/null && command -v nbdkit >/dev/null && command -v tgtd >/dev/null || exit 77
dir=$(mktemp -d) || exit 1
servers=()
cleanup()
{
	[ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null
	[ -z "${control-}" ] || tgtadm -C "$control" --op delete --mode system 2>/dev/null
	wait
	rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir" || exit 1
failed=0
img() { timeout 120 "$kelvin" img "$@"; }
ok() { "$@" >log 2>&1 || { echo "FAILED ($?): $*"; tail -3 log; failed=1; }; }
fails() { local want=$1; shift; "$@" >log 2>&1; local rc=$?; [ $rc = "$want" ] || { echo "exit status $rc, not $want: $*"; tail -3 log; failed=1; }; }
says() { local want=$1; shift; "$@" >log 2>&1; grep -qF -- "$want" log || { echo "does not say '$want': $*"; cat log; failed=1; }; }

truncate -s 24M a.raw
head -c 5M /dev/urandom | dd of=a.raw bs=1M seek=3 conv=notrunc status=none
head -c 700k /dev/urandom | dd of=a.raw bs=1k seek=17000 conv=notrunc status=none

# What every store can do; $1: its URL, of 24M, which may hold anything.
exercise()
{
	ok img convert -f raw -O raw a.raw "$1"
	ok img compare -f raw -F raw a.raw "$1"
	ok qemu-img compare -f raw -F raw a.raw "$1"
	ok img convert -f raw -O qcow2 "$1" q.qcow2
	ok qemu-img compare -f raw -F qcow2 a.raw q.qcow2
	says '24 MiB (25165824 bytes)' img info -f raw "$1"
	says 'disk size: unavailable' img info -f raw "$1"
	ok img bench -f raw -c 500 -d 32 -s 12k -S 20k -w --pattern=1 --flush-interval=64 "$1"
	ok img bench -f raw -c 500 -d 32 --random -t none "$1"
	# Odd offsets and lengths, also under servers with blocks.
	ok img bench -f raw -c 300 -d 1 -s 1000 -S 1500 -o 100 -w --pattern=9 "$1"
	ok img dd -f raw -O raw bs=1500 count=300 if="$1" of=odd.raw
	[ "$(od -An -tx1 -j 1600 -N 4 odd.raw)" = " 09 09 09 09" ] || { echo "odd writes: $1"; failed=1; }
	ok img convert -n -f raw -O raw a.raw "$1"
	ok img compare -f raw -F raw a.raw "$1"
	fails 1 img resize -f raw "$1" 48M
	truncate -s 30M big.raw
	fails 1 img convert -f raw -O raw big.raw "$1"
	# A format on it.
	ok img convert -f raw -O qcow2 a.raw q.qcow2
	truncate -s 24M q.qcow2
	ok img convert -n -f raw -O raw q.qcow2 "$1"
	ok img compare -f qcow2 -F raw "$1" a.raw
	says 'file format: qcow2' img info "$1"
}

# serve SOCKET ARGUMENT...
serve()
{
	local socket=$1
	shift
	rm -f "$socket"
	nbdkit -f -U "$socket" "$@" 2>>nbdkit.log &
	servers+=($!)
	for _ in $(seq 600); do [ -S "$socket" ] && return; sleep 0.1; done
	echo "nbdkit did not start: $*"
	exit 1
}

test_nbd()
{
	head -c 24M /dev/urandom >store
	serve s1 file store
	exercise "nbd+unix:///?socket=$dir/s1"
	ok img compare -f qcow2 -F raw "nbd:unix:$dir/s1" a.raw
	ok img info "json:{\"driver\":\"raw\",\"file\":{\"driver\":\"nbd\",\"server\":{\"type\":\"unix\",\"path\":\"$dir/s1\"}}}"
	ok img info --image-opts "driver=nbd,path=$dir/s1"
	mkdir many
	cp a.raw many/one
	truncate -s 1M many/two
	serve s2 -r file dir=many
	ok img compare -f raw -F raw "nbd+unix:///one?socket=$dir/s2" a.raw
	says '1 MiB' img info -f raw "nbd:unix:$dir/s2:exportname=two"
	fails 1 img info -f raw "nbd+unix:///three?socket=$dir/s2"
	says 'only reading' img bench -f raw -w -c 1 "nbd+unix:///one?socket=$dir/s2"
	# Servers with limits.
	serve s3 --filter=blocksize-policy memory 24M blocksize-minimum=4096 blocksize-maximum=256k blocksize-error-policy=error
	exercise "nbd+unix:///?socket=$dir/s3"
	serve s4 --filter=nozero memory 24M
	ok img convert -f raw -O raw a.raw "nbd+unix:///?socket=$dir/s4"
	# Errors, and a server that dies under load, end; nothing hangs.
	serve s5 --filter=error memory 24M error=ENOSPC error-pwrite-rate=100%
	says 'No space left on device' img convert -f raw -O raw a.raw "nbd+unix:///?socket=$dir/s5"
	serve s6 --filter=delay memory 24M rdelay=5ms
	local victim=$!
	img bench -f raw -c 1000000 "nbd+unix:///?socket=$dir/s6" >bench.log 2>&1 &
	local bench=$!
	sleep 0.5
	kill -9 $victim
	fails 1 wait $bench
	fails 1 img info -f raw "nbd+unix:///?socket=$dir/s6"
	fails 1 img info -f raw "nbd+unix:///?socket=$dir/nosuch"
	# TLS with keys known to both.
	if command -v psktool >/dev/null; then
		psktool -u alice -p keys.psk >/dev/null 2>&1
		serve s7 --tls=require --tls-psk=keys.psk file a.raw
		ok img compare -f raw -F raw "nbds+unix://alice@/?socket=$dir/s7&tls-psk-file=$dir/keys.psk" a.raw
		fails 1 img info -f raw "nbd+unix:///?socket=$dir/s7"
	fi
}

test_iscsi()
{
	local port=$((20000 + $$ % 20000)) target=iqn.2026-01.test:kelvin
	control=$((100 + $$ % 30000))
	head -c 24M /dev/urandom >store
	truncate -s 24M store4k
	tgtd -f -C $control --iscsi portal=127.0.0.1:$port >tgtd.log 2>&1 &
	local daemon=$!
	servers+=($daemon)
	adm() { tgtadm -C $control --lld iscsi "$@"; }
	for _ in $(seq 600); do adm --mode target --op show >/dev/null 2>&1 && break; sleep 0.1; done
	adm --mode target --op new --tid 1 -T $target || { echo "tgtd did not start"; cat tgtd.log; exit 77; }
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
	adm --mode logicalunit --op new --tid 1 --lun 2 -b "$dir/store4k" --blocksize 4096
	adm --mode logicalunit --op update --tid 1 --lun 2 --params thin_provisioning=1
	adm --mode target --op bind --tid 1 -I ALL
	exercise "iscsi://127.0.0.1:$port/$target/1"
	exercise "iscsi://127.0.0.1:$port/$target/2"
	ok img info --image-opts "driver=iscsi,transport=tcp,portal=127.0.0.1:$port,target=$target,lun=1"
	fails 1 img info -f raw "iscsi://127.0.0.1:$port/$target/7"
	fails 1 img info -f raw "iscsi://127.0.0.1:$port/$target.not/1"
	fails 1 img info -f raw "iscsi://nonsense"
	fails 1 img info -f raw "iscsi://127.0.0.1:1/$target/1" # nobody listens: the first cause is told, in one line
	grep -q 'Connection refused' log && [ "$(wc -l <log)" = 1 ] || { echo "not the cause: $(cat log)"; failed=1; }
	# Only some initiators, then only with a password.
	adm --mode target --op unbind --tid 1 -I ALL
	adm --mode target --op bind --tid 1 --initiator-name iqn.2026-01.test:me
	fails 1 img info -f raw "iscsi://127.0.0.1:$port/$target/1"
	ok img info -f raw "iscsi://127.0.0.1:$port/$target/1?initiator-name=iqn.2026-01.test%3ame"
	adm --mode target --op unbind --tid 1 --initiator-name iqn.2026-01.test:me
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode account --op new --user bob --password secret-secret
	adm --mode account --op bind --tid 1 --user bob
	fails 1 img info -f raw "iscsi://127.0.0.1:$port/$target/1"
	fails 1 img info -f raw "iscsi://bob%wrong-wrong@127.0.0.1:$port/$target/1"
	ok img info -f raw "iscsi://bob%secret-secret@127.0.0.1:$port/$target/1"
	# A target that dies under load ends it.
	img bench -f raw -c 100000000 "iscsi://bob%secret-secret@127.0.0.1:$port/$target/1" >bench.log 2>&1 &
	local bench=$!
	sleep 1
	kill -9 $daemon
	fails 1 wait $bench
	fails 1 img info -f raw "iscsi://bob%secret-secret@127.0.0.1:$port/$target/1"
}

test_"$2"
exit $failed
