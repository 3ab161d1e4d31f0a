# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced after setup.sh: Debian's kernels, an initramfs, and a Debian root file system, cached in $cache.
# Every file appears under its final name only when it is complete.

# apt_i386 GET|CACHE ARGUMENT... : apt-get or apt-cache for Debian's i386 packages, with its own lists beside the system's,
# so that the system needs no foreign architecture. Run in the folder for downloads.
apt_i386()
{
	local tool=apt-$1 dir=$cache/apt-i386
	shift
	mkdir -p "$dir/lists/partial" "$dir/archives/partial" && : >"$dir/status" || exit 1
	"$tool" -o APT::Architecture=i386 -o APT::Architectures::=i386 -o Dir::State::Lists="$dir/lists" \
		-o Dir::State::status="$dir/status" -o Dir::Cache="$dir" "$@"
}

# guest_i686 : Debian's 32-bit kernel and a 32-bit busybox. Sets kernel, kernel_modules and busybox.
guest_i686()
{
	local pkg dir=$cache/kernel-i686 tmp
	if [ ! -f "$dir/done" ]; then
		mkdir -p "$cache" || exit 1
		tmp=$(mktemp -d "$cache/kernel.XXXXXX") || exit 1
		# Sources of other vendors may have no i386: what counts is that the package is found.
		apt_i386 get update -qq >"$tmp/log" 2>&1
		pkg=$(apt_i386 cache depends linux-image-686-pae 2>>"$tmp/log" | awk '/Depends: linux-image/ {print $2; exit}')
		[ -n "$pkg" ] || { tail -5 "$tmp/log" >&2; rm -rf "$tmp"; die "apt finds no linux-image-686-pae for i386"; }
		say "downloading Debian's kernel $pkg and busybox for i386"
		(cd "$tmp" && apt_i386 get download -qq "$pkg" busybox-static 2>>log) >&2 || { tail -5 "$tmp/log" >&2; rm -rf "$tmp"; die "downloading $pkg failed"; }
		for pkg in "$tmp"/*.deb; do
			dpkg-deb -x "$pkg" "$tmp/root" || { rm -rf "$tmp"; die "unpacking ${pkg##*/} failed"; }
		done
		rm -f "$tmp"/*.deb
		depmod -b "$tmp/root" "$(ls "$tmp/root/lib/modules")" || { rm -rf "$tmp"; die "depmod failed for the 32-bit kernel"; }
		ln "$tmp"/root/boot/vmlinuz-* "$tmp/vmlinuz"
		touch "$tmp/done"
		chmod 755 "$tmp"
		rm -rf "$dir"
		mv "$tmp" "$dir" || exit 1
	fi
	kernel=$dir/vmlinuz
	kernel_elf=
	kernel_modules=$(echo "$dir"/root/lib/modules/*)
	busybox=$dir/root/bin/busybox
}

# guest_own_kernel : the kernel KELVIN_LAB_KERNEL with the modules in KELVIN_LAB_MODULES (else /lib/modules/VERSION, from a
# name that ends in -VERSION).
guest_own_kernel()
{
	local name=${KELVIN_LAB_KERNEL##*/}
	kernel=$KELVIN_LAB_KERNEL
	kernel_elf=$kernel
	kernel_modules=${KELVIN_LAB_MODULES:-/lib/modules/${name#*-}}
	busybox=/bin/busybox
	[ -e "$kernel_modules/modules.dep" ] || die "no modules of '$kernel' in '$kernel_modules' (guest.modules names the folder that has modules.dep)"
}

# guest_memtest : Debian's memtest86+. Sets memtest32 and memtest64, images for -kernel.
guest_memtest()
{
	local dir=$cache/memtest tmp
	if [ ! -f "$dir/memtest86+x64.bin" ]; then
		mkdir -p "$cache" || exit 1
		tmp=$(mktemp -d "$cache/memtest.XXXXXX") || exit 1
		(cd "$tmp" && apt-get download -qq memtest86+ 2>log) >&2 || { tail -5 "$tmp/log" >&2; rm -rf "$tmp"; die "downloading memtest86+ failed"; }
		dpkg-deb -x "$tmp"/*.deb "$tmp/root" && chmod 755 "$tmp/root/boot" || { rm -rf "$tmp"; die "unpacking memtest86+ failed"; }
		rm -rf "$dir"
		mv "$tmp/root/boot" "$dir" || exit 1
		rm -rf "$tmp"
	fi
	memtest32=$dir/memtest86+ia32.bin
	memtest64=$dir/memtest86+x64.bin
}

# guest_kernel cloud|full|i686 : unpack Debian's kernel package. Sets kernel (vmlinuz), kernel_modules (its
# /lib/modules/VERSION), and the busybox that runs on it.
guest_kernel()
{
	local flavour=$1 meta pkg dir=$cache/kernel-$1 tmp
	busybox=/bin/busybox
	case $flavour in
	cloud) meta=linux-image-cloud-amd64 ;;
	full) meta=linux-image-amd64 ;;
	i686) guest_i686; return ;;
	own) guest_own_kernel; return ;;
	*) die "no kernel flavour '$flavour' (cloud, full, i686)" ;;
	esac
	if [ ! -f "$dir/done" ]; then
		mkdir -p "$cache" || exit 1
		tmp=$(mktemp -d "$cache/kernel.XXXXXX") || exit 1
		pkg=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image/ {print $2; exit}')
		if [ -z "$pkg" ] && [ "$(id -u)" -eq 0 ]; then
			apt-get update -qq >&2
			pkg=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image/ {print $2; exit}')
		fi
		[ -n "$pkg" ] || { rm -rf "$tmp"; die "apt knows no $meta (run: apt-get update)"; }
		say "downloading Debian's kernel $pkg"
		(cd "$tmp" && apt-get download -qq "$pkg" 2>"$tmp/log") >&2 || { cat "$tmp/log" >&2; rm -rf "$tmp"; die "downloading $pkg failed"; }
		dpkg-deb -x "$tmp"/*.deb "$tmp/root" && rm -f "$tmp"/*.deb || { rm -rf "$tmp"; die "unpacking $pkg failed"; }
		depmod -b "$tmp/root" "$(ls "$tmp/root/lib/modules")" || { rm -rf "$tmp"; die "depmod failed for $pkg"; }
		ln "$tmp"/root/boot/vmlinuz-* "$tmp/vmlinuz"
		python3 "$top/tools/extract-elf.py" "$tmp/vmlinuz" "$tmp/vmlinux" || { rm -rf "$tmp"; die "unpacking the ELF kernel of $pkg failed"; }
		touch "$tmp/done"
		chmod 755 "$tmp"
		rm -rf "$dir"
		mv "$tmp" "$dir" || exit 1
	fi
	kernel=$dir/vmlinuz
	kernel_elf=$dir/vmlinux
	kernel_modules=$(echo "$dir"/root/lib/modules/*)
}

# guest_initramfs FLAVOUR OUT INIT MODULE... : busybox, the modules with what they need (loaded by INIT in the order
# of /modules/order), and INIT as /init.
# sync: on the rig's shared folder the name would be there before the bytes.
guest_initramfs()
{
	local flavour=$1 out=$2 init=$3 tmp m f
	shift 3
	guest_kernel "$flavour"
	[ "$out" -nt "$init" ] && [ "$out" -nt "$kernel" ] && [ "$out" -nt "$top/tools/guest.sh" ] && return 0
	tmp=$(mktemp -d "$cache/initramfs.XXXXXX") || exit 1
	mkdir -p "$tmp"/{bin,dev,proc,sys,tmp,run,root,modules}
	cp "$busybox" "$tmp/bin/busybox"
	for f in $("$busybox" --list); do [ -e "$tmp/bin/$f" ] || ln -s busybox "$tmp/bin/$f"; done
	for m in "$@"; do
		modprobe -d "$(dirname "$(dirname "$(dirname "$kernel_modules")")")" -S "$(basename "$kernel_modules")" --show-depends "$m" 2>/dev/null |
			awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' | while read -r f; do
		cp "$f" "$tmp/modules/" && basename "$f"
	done >"$tmp/modules/order"
	cp "$init" "$tmp/init"
	chmod 755 "$tmp/init"
	(cd "$tmp" && find . | LC_ALL=C sort | cpio -o -H newc --quiet) >"$out.tmp.$$" && sync "$out.tmp.$$" && mv "$out.tmp.$$" "$out" || { rm -rf "$tmp" "$out.tmp.$$"; die "making $out failed"; }
	rm -rf "$tmp"
}

# guest_rootfs [soak] : a Debian 12 root file system (systemd, gcc, python3, perl; soak: node and java too) on ext4 in a
# raw image. Sets rootfs. The recipe's checksum is part of the name, so that a changed recipe makes a new image.
guest_rootfs()
{
	local sum tmp size=2G name=debian lists=("$top/guest/rootfs.packages")
	[ "${1:-}" = soak ] && name=soak size=4G lists+=("$top/guest/soak.packages")
	guest_kernel cloud
	sum=$( (cat "${lists[@]}" "$top"/guest/rootfs/*; basename "$kernel_modules") | sha256sum | cut -c1-12)
	rootfs=$cache/$name-$sum.img
	[ -f "$rootfs" ] && return 0
	rm -f "$cache/$name"-*.img
	tmp=$(mktemp -d "$cache/rootfs.XXXXXX") || exit 1
	chmod 755 "$tmp"
	say "making a Debian root file system (once; a few minutes)"
	truncate -s $size "$tmp/img"
	# Everything happens in hooks inside mmdebstrap's name space, so that it works without root too.
	mmdebstrap --variant=minbase --include="$(grep -hv '^#' "${lists[@]}" | tr '\n' ',' | sed 's/,*$//')" \
		--essential-hook='mkdir -p "$1/usr/share/man/man1"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook="$top/guest/rootfs/customize \"\$1\" \"$top/guest/rootfs\" \"$kernel_modules\"" \
		--customize-hook="$top/guest/rootfs/make-image \"\$1\" \"$tmp/img\"" \
		bookworm /dev/null 2> >(tee "$tmp/log" | grep --line-buffered -E '^I: (download|extract|install|running apt)|^E:' | sed -u 's/^/    /' >&2) || {
		tail -20 "$tmp/log" >&2
		rm -rf "$tmp"
		die "making the root file system failed"
	}
	mv "$tmp/img" "$rootfs" && rm -rf "$tmp"
}
