# SPDX-License-Identifier: GPL-2.0-or-later
# fio: jobs KIND:BLOCKSIZE:DEPTH on the whole disk (host: on the file itself), bypassing the page cache of this side.
for job in $P_jobs; do
	kind=${job%%:*} rest=${job#*:}
	bs=${rest%%:*} depth=${rest##*:}
	case $kind in read | write) name=seq$kind ;; *) name=$kind ;; esac
	case $kind in
	read) LAB_TITLE="sequential reads" ;;
	write) LAB_TITLE="sequential writes" ;;
	randread) LAB_TITLE="random reads" ;;
	randwrite) LAB_TITLE="random writes" ;;
	*) LAB_TITLE=$kind ;;
	esac
	export LAB_TITLE="$LAB_TITLE of $bs, $depth at a time"
	drop_caches
	# fio itself is read from its disk now, not while it is measured.
	fio --name=warm --ioengine=null --rw="$kind" --size=64k >/dev/null
	$lab fio "$name-$bs-d$depth" --rw="$kind" --bs="$bs" --iodepth="$depth" --ioengine=libaio --direct="$P_direct" \
		--filename="$LAB_DISK" --size="$P_size" --runtime="$P_seconds" --time_based --randrepeat=0 --norandommap \
		--end_fsync=1
done
