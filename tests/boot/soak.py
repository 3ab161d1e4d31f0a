#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""soak.py ACCEL [SECONDS]: Debian with 4 vCPUs runs gcc, python3, perl, node, java and a program that churns mappings, all at
once and again and again for SECONDS (3600) of host time; each result must be the one that the same programs of the same image
give on the host, natively. Nothing may crash, hang, or end with another status."""
import os
import re
import shlex
import subprocess
import sys
import tempfile

import compute
import guest

HERE = os.path.dirname(os.path.abspath(__file__))

# Each job is a shell function; what it prints in lines RESULT is compared.
JOBS = r"""
job_compute() { bash compute.sh; }
job_churn() { [ -x churn ] || gcc -O2 -pthread -o churn churn.c; ./churn; }
job_node() { node job.js; }
job_java() { java -Xmx256m Job.java; }
"""

# $1: seconds. One round after another; in a round all jobs run at once.
DRIVER = JOBS + r"""
end=$(($(date +%s) + $1)) round=0
: >all
while :; do
	round=$((round + 1))
	for job in compute churn node java; do
		(job_$job >out.$job 2>err.$job; status=$?; [ $status -eq 0 ] || { echo "FAIL $job $status"; tail -n 5 err.$job; } >bad.$job) &
	done
	wait
	cat bad.* 2>/dev/null && { dmesg | tail -n 20; free -m; exit 1; }
	grep -h ^RESULT out.* >>all
	[ "$(date +%s)" -lt $end ] || break
done
echo "ROUNDS $round"
sort all | uniq -c | sed 's/^ *\([0-9]*\) RESULT/COUNT \1 RESULT/'
dmesg 2>/dev/null | grep -E "BUG|WARNING|Oops|segfault|traps:|lockup|stall" | sed 's/^/KERNEL /'
exit 0
"""


def script(seconds):
    """A shell script that unpacks the programs and runs the driver."""
    files = {"compute.sh": compute.SCRIPT, "driver.sh": DRIVER}
    for name in ("churn.c", "job.js", "Job.java"):
        with open(os.path.join(HERE, "soak", name), encoding="utf-8") as f:
            files[name] = f.read()
    text = "set -e\ncd \"$(mktemp -d)\"\n"
    for name, content in files.items():
        text += f"cat >{name} <<'END-OF-{name}'\n{content}\nEND-OF-{name}\n"
    return text + f"bash driver.sh {seconds}\n"


def native(rootfs):
    """One round on the host, with the image's own programs and libraries."""
    with tempfile.TemporaryDirectory(dir=guest.CACHE, prefix="tree.") as tree:
        subprocess.run(["debugfs", "-R", f"rdump / {tree}", rootfs], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        enter = ('mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/tmp" && '
                 'exec chroot "$0" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp /bin/bash -c "$1"')
        run = subprocess.run(["unshare", "--map-root-user", "--mount", "--pid", "--fork", "bash", "-c", enter, tree, script(0)],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=900)
    if run.returncode or "ROUNDS 1" not in run.stdout:
        raise guest.GuestFailed("the programs do not run on the host:\n" + run.stdout[-2000:])
    return counts(run.stdout)


def counts(text):
    return {m[2]: int(m[1]) for m in re.finditer(r"^COUNT (\d+) (RESULT .*?)\r?$", text, re.M)}


def main():
    accel, seconds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3600
    want = native(guest.rootfs("soak"))
    command = [os.path.join(guest.TOP, "try"), "--guest", "soak", "--accel", accel, "--smp", "4", "--mem", "2G"]
    if "KELVIN" in os.environ:
        command += ["--vmm", os.environ["KELVIN"]]
    run = subprocess.run(command + shlex.split(os.environ.get("SOAK_TRY", "")) + ["--", "bash", "-c", script(seconds)], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=2 * seconds + 1800)
    rounds = re.search(r"^ROUNDS (\d+)", run.stdout, re.M)
    # The line that gives this option names stalls too.
    bad = re.search(r"^(FAIL |KERNEL (?!.*(ommand line:|stall warnings timeout set)))", run.stdout, re.M)
    if bad:
        raise guest.GuestFailed(f"status {run.returncode}; the guest says\n" + run.stdout[bad.start():][:3000])
    if run.returncode or not rounds:
        raise guest.GuestFailed(f"status {run.returncode}; it ends\n" + run.stdout[-5000:])
    got = counts(run.stdout)
    if set(got) != set(want) or any(got[line] != int(rounds[1]) * want[line] for line in want):
        raise guest.GuestFailed("results differ; the host's:\n" + "\n".join(sorted(want)) + "\nthe guest's:\n" + "\n".join(f"{n} x {line}" for line, n in sorted(got.items())))
    print(f"{rounds[1]} rounds of {len(want)} results each, all as on the host")


if __name__ == "__main__":
    guest.run_test(main)
