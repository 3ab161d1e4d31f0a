#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""seeds.py unpack FILE FOLDER: each line of FILE, an input in hexadecimal or text behind "= ", becomes a file of FOLDER.
seeds.py pack FOLDER BYTES: FOLDER's inputs as such lines, the shortest first, as many as have BYTES together."""
import hashlib
import os
import sys


def unpack(name, folder):
    with open(name, encoding="utf-8") as f:
        for line in f:
            if line[0] in "#\n":
                continue
            data = line[2:-1].encode() if line.startswith("= ") else bytes.fromhex(line.strip())
            with open(os.path.join(folder, hashlib.sha1(data).hexdigest()), "wb") as out:
                out.write(data)


def pack(folder, limit):
    inputs = []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as f:
            inputs.append(f.read())
    used = 0
    for data in sorted(inputs, key=lambda d: (len(d), d)):
        used += len(data)
        if used > limit:
            break
        if data:
            text = data.isascii() and data.decode("ascii").isprintable()
            print("= " + data.decode("ascii") if text else data.hex())


if sys.argv[1:2] == ["unpack"] and len(sys.argv) == 4:
    unpack(sys.argv[2], sys.argv[3])
elif sys.argv[1:2] == ["pack"] and len(sys.argv) == 4:
    pack(sys.argv[2], int(sys.argv[3]))
else:
    sys.exit(__doc__)
