#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
r"""extract-elf.py BZIMAGE OUT: write the ELF kernel packed inside a Linux bzImage.

The boot protocol's header (Documentation/arch/x86/boot.rst of Linux) gives the payload's place: setup_sects at 0x1f1,
payload_offset and payload_length at 0x248. The payload is compressed with one of several programs; its last four bytes
are the unpacked size.
"""
import lzma
import struct
import subprocess
import sys
import zlib


def unpack(payload):
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run(["zstd", "-dcq"], input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
    if payload.startswith(b"\x02!L\x18"):
        return subprocess.run(["lz4", "-dc"], input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
    sys.exit("extract-elf.py: unknown compression, magic " + payload[:6].hex())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as f:
        image = f.read()
    if image[0x202:0x206] != b"HdrS":
        sys.exit(f"extract-elf.py: '{sys.argv[1]}' is not a Linux bzImage")
    start = ((image[0x1F1] or 4) + 1) * 512 + struct.unpack_from("<I", image, 0x248)[0]
    elf = unpack(image[start : start + struct.unpack_from("<I", image, 0x24C)[0]])
    if elf[:4] != b"\x7fELF":
        sys.exit(f"extract-elf.py: no ELF kernel inside '{sys.argv[1]}'")
    with open(sys.argv[2], "wb") as f:
        f.write(elf)


main()
