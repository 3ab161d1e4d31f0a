#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""compute.py ACCEL: gcc, python3 and perl do the same work in a Debian guest and on the host; the results are equal.

gcc compiles and runs a generated program of some thousand lines (integers, doubles, strings, sorting); python3 and perl
hash and sort data of their own. Every line that starts with RESULT must be the same on both."""
import os
import subprocess
import sys

import guest

SCRIPT = r"""
set -e
cd "$(mktemp -d)"
cat > gen.py <<'PY'
import random
random.seed(12)
print("#include <stdio.h>\n#include <stdint.h>\n#include <string.h>\n#include <stdlib.h>\n#include <math.h>")
ops = ["+", "-", "*", "^", "&", "|"]
for i in range(150):
    print("static uint64_t f%d(uint64_t a, uint64_t b)\n{" % i)
    for j in range(6):
        print("\ta = (a %s (b %s %dull));" % (random.choice(ops), random.choice(["+", "^"]), random.getrandbits(60)))
        print("\tb = (b << %d) | (b >> %d);" % ((k := random.randint(1, 63)), 64 - k))
    print("\tif (a & 1)\n\t\tb += a / ((b >> 40) + 1);\n\treturn a ^ b;\n}")
for i in range(80):
    print("static double g%d(double x)\n{\n\treturn sqrt(fabs(x * %.17g + %.17g)) / (%.17g + x * x);\n}" % (i, random.random(), random.random(), 1 + random.random()))
print("static int cmp(const void *a, const void *b)\n{\n\tuint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;\n\treturn (x > y) - (x < y);\n}")
print("int main(void)\n{\n\tstatic uint64_t v[20000];\n\tuint64_t h = 1, b = 2;\n\tdouble d = 0.5;")
print("\tfor (int r = 0; r < 200; r++) {")
for i in range(150):
    print("\t\th = f%d(h, b); b += h;" % i)
for i in range(80):
    print("\t\td = g%d(d);" % i)
print("\t}\n\tfor (int i = 0; i < 20000; i++)\n\t\tv[i] = h = f7(h, i);\n\tqsort(v, 20000, 8, cmp);")
print("\tfor (int i = 0; i < 20000; i++)\n\t\th = h * 31 + v[i];")
print('\tchar s[64];\n\tsnprintf(s, sizeof s, "%.17g", d);\n\tprintf("RESULT c %llx %s %zu\\n", (unsigned long long)h, s, strlen(s));\n\treturn 0;\n}')
PY
python3 gen.py > big.c
echo "RESULT lines $(wc -l < big.c)"
for opt in -O1 "-O2 -mavx2"; do gcc $opt -ffp-contract=off -o big big.c -lm && ./big; done
python3 -c '
import hashlib, random, zlib
random.seed(7)
data = [random.getrandbits(64) for _ in range(60000)]
data.sort()
text = ",".join(map(str, data)).encode()
print("RESULT python", hashlib.sha256(text).hexdigest(), hashlib.md5(text).hexdigest(), zlib.crc32(text), len(zlib.compress(text)))
print("RESULT python", sum(x ** 3 % 1000003 for x in data), repr(sum(x / 7.0 for x in data)), 3 ** 5000 % 10 ** 40)
'
perl -e '
use Digest::SHA qw(sha1_hex sha512_hex);
my ($x, @v) = (12345);
for (1 .. 50000) { $x = ($x * 1103515245 + 12345) % 2147483648; push @v, $x; }
my $t = join " ", sort { $a <=> $b } @v;
my %h; $h{$_ % 997} += $_ for @v;
print "RESULT perl ", sha1_hex($t), " ", sha512_hex(join ",", map { "$_=$h{$_}" } sort keys %h), "\n";
my $n = () = $t =~ /1[0-9]*7 /g;
print "RESULT perl $n\n";
'
"""


def results(text):
    return [line for line in text.replace("\r", "").splitlines() if line.startswith("RESULT")]


def main():
    host = subprocess.run(["bash", "-c", SCRIPT], stdout=subprocess.PIPE, check=True, text=True).stdout
    command = [os.path.join(guest.TOP, "try"), "--accel", sys.argv[1], "--smp", "2"]
    if "KELVIN" in os.environ:
        command += ["--vmm", os.environ["KELVIN"]]
    run = subprocess.run(command + ["--", "bash", "-c", SCRIPT], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         check=False, text=True, timeout=900)
    want, got = results(host), results(run.stdout)
    if run.returncode or got != want:
        print(run.stdout[-4000:])
        raise guest.GuestFailed(f"status {run.returncode}; the host says\n" + "\n".join(want) + "\nthe guest says\n" + "\n".join(got))
    print(f"{len(want)} results equal the host's; the C program has {want[0].split()[-1]} lines")


if __name__ == "__main__":
    guest.run_test(main)
