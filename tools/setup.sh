# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced by ./try and ./check: install what is missing, build, find the cache.
# Needs $top (the checkout). Says what it does on stderr; nothing here prints on stdout.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# Where downloads and built guests live: outside git, rebuilt when missing.
cache=${KELVIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kelvin}

# Debian packages by purpose. docs/dependencies.md says why each is there.
packages_build="gcc meson ninja-build pkg-config libzydis-dev liburing-dev liburcu-dev libjansson-dev libcmocka-dev zlib1g-dev libzstd-dev libnbd-dev libiscsi-dev libgsl-dev libyaml-dev libisal-dev libdeflate0"
packages_guest="mmdebstrap e2fsprogs busybox-static cpio kmod dpkg xz-utils zstd python3"
packages_check="clang-14 clang-format-14 libclang-rt-14-dev cppcheck qemu-system-x86 qemu-utils qemu-block-extra nbdkit tgt gnutls-bin acpica-tools strace seabios grub-common grub-pc-bin"

# setup_packages PACKAGE... : install those that are missing. Without root: print the one command and stop.
setup_packages()
{
	local p missing=()
	for p in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
	done
	[ ${#missing[@]} -eq 0 ] && return 0
	if [ "$(id -u)" -ne 0 ]; then
		say "these Debian packages are missing; install them with this command, then run it again:"
		printf '    sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' "${missing[*]}" >&2
		exit 1
	fi
	say "installing with apt: ${missing[*]}"
	DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 || die "apt-get update failed (is there a network?)"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$top/build-apt.log" 2>&1 </dev/null || {
		tail -20 "$top/build-apt.log" >&2
		die "apt-get install failed; the whole log is in build-apt.log"
	}
	rm -f "$top/build-apt.log"
}

# setup_build [DIR [MESON OPTION...]] : configure once, build. The program is DIR/kelvin.
setup_build()
{
	local dir=${1:-build} log
	[ $# -gt 0 ] && shift
	mkdir -p "$top/$dir" || exit 1
	log=$top/$dir/setup.log
	if [ ! -f "$top/$dir/build.ninja" ]; then
		say "configuring $dir"
		(cd "$top" && meson setup "$dir" "$@") >"$log" 2>&1 || { tail -20 "$log" >&2; die "meson setup failed, see $dir/setup.log"; }
	fi
	ninja -C "$top/$dir" >"$log" 2>&1 || { grep -E 'error|warning|FAILED' "$log" | head -20 >&2; die "the build failed, see $dir/setup.log"; }
}
