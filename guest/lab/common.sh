# SPDX-License-Identifier: GPL-2.0-or-later
# In front of every workload script, in the guest and on the host. The job's settings are variables: LAB_SIDE (guest,
# host), LAB_DIR (these files), LAB_DISK (host: the file that stands for the disk), LAB_SCRATCH (host: a folder),
# LAB_ROOT (1: the programs of the root image are needed), P_NAME for each parameter of the workload.
set -e
lab="$LAB_DIR/lab-agent"
die() { echo "$*"; exit 1; }

# The disk that may be written, and the root image (read-only), by what the kernel says of them. In an image that
# booted by itself (LAB_BOOTED) its own disk is not meant.
find_disks()
{
	rootdev= LAB_DISK= bootdev=
	[ -z "$LAB_BOOTED" ] || bootdev=$(awk '$2 == "/" { sub("^/dev/", "", $1); sub("[0-9]*$", "", $1); print $1; exit }' /proc/mounts)
	for try in $(seq 400); do
		for d in /sys/block/vd* /sys/block/sd* /sys/block/hd*; do
			[ -e "$d/size" ] && [ "$(cat "$d/size")" -gt 0 ] || continue
			[ "${d##*/}" != "$bootdev" ] || continue
			if [ "$(cat "$d/ro")" = 1 ]; then rootdev=/dev/${d##*/}; else LAB_DISK=/dev/${d##*/}; fi
		done
		[ -n "$LAB_WANT_DISK" ] && [ -z "$LAB_DISK" ] || { [ -n "$LAB_ROOT" ] && [ -z "$rootdev" ]; } || break
		sleep 0.05
	done
	[ -z "$LAB_WANT_DISK" ] || [ -n "$LAB_DISK" ] || die "the guest's kernel found no disk to measure: it has no driver for this bus, or the disk did not answer"
	[ -z "$LAB_ROOT" ] || [ -n "$rootdev" ] || die "the guest's kernel found no root image"
	export LAB_DISK
}

# Guest: the root image, read-only, under a memory file system, becomes /. The script goes on in it.
enter_root()
{
	mkdir -p /lower /upper /new
	# The whole disk, or the first of its partitions that has programs.
	found=
	for part in "$rootdev" "$rootdev"?*; do
		mount -t ext4 -o ro,noload "$part" /lower 2>/dev/null || continue
		[ -e /lower/bin/sh ] && found=1 && break
		umount /lower
	done
	[ -n "$found" ] || die "no ext4 file system with programs is on the root image $rootdev"
	mount -t tmpfs upper /upper
	mkdir -p /upper/data /upper/work
	mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work overlay /new || die "overlay cannot be mounted"
	for dir in proc sys dev tmp; do mount --bind /$dir /new/$dir; done
	mkdir -p /new/lab
	mount --bind /lab /new/lab
	export LAB_ENTERED=1
	exec chroot /new /bin/sh /tmp/job
}

# Guest settings: what is written below the disk's queue folder.
tune_disk()
{
	queue=/sys/block/${LAB_DISK##*/}/queue
	if [ -n "$G_scheduler" ]; then
		echo "$G_scheduler" >"$queue/scheduler" || die "the guest's kernel has no I/O scheduler '$G_scheduler'"
	fi
	if [ -n "$G_rotational" ]; then echo "$G_rotational" >"$queue/rotational"; fi
}

# A file system on the disk, mounted; on the host the scratch folder is used as it is. Sets dir.
make_fs()
{
	if [ "$LAB_SIDE" = host ]; then
		dir=$LAB_SCRATCH
		rm -rf "${dir:?}"/*
	else
		dir=/tmp/fs
		mkdir -p $dir
		mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$LAB_DISK"
		mount -t ext4 "$LAB_DISK" $dir
	fi
}

drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true; }

if [ "$LAB_SIDE" = guest ] && [ -z "$LAB_ENTERED" ]; then
	find_disks
	if [ -n "$LAB_DISK" ]; then tune_disk; fi
	if [ -n "$LAB_ROOT" ] && [ -z "$LAB_BOOTED" ]; then enter_root; fi
fi
