# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots a guest in a monitor and talks to it: what the boot tests share.

The guest's init (guest/init-test) runs a shell command per line of the kernel option-less file /commands (an extra
initrd) and reports on its second serial port as lines "KEY VALUE...". The console is kept for failure messages.
"""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.environ.get("KELVIN_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kelvin")
KELVIN = os.environ.get("KELVIN") or os.path.join(TOP, "build", "kelvin")


class GuestFailed(Exception):
    """The guest did not do what it should; the text holds the end of its console."""


def prepare(flavour="cloud", modules=()):
    """Fetch Debian's kernel and make the test initramfs. Returns (bzImage, ELF, initramfs)."""
    # The set of modules is part of the name: the archives are kept from run to run.
    name = "-".join(["initramfs-test", flavour, *modules]) + ".cpio"
    script = (
        f'top={TOP}; . "$top/tools/setup.sh"; . "$top/tools/guest.sh"; '
        f'guest_initramfs {flavour} "$cache/{name}" "$top/guest/init-test" '
        f'{" ".join(modules or ("virtio_pci", "virtio_blk", "virtio_console", "virtio-rng", "ext4"))} >&2; '
        'echo "$kernel"; echo "$kernel_elf"; echo "$cache/' + name + '"'
    )
    out = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True, text=True).stdout.split("\n")
    return out[0], out[1], out[2]


def rootfs(kind=""):
    """The image of the Debian root file system; kind "soak" has more in it."""
    script = f'top={TOP}; . "$top/tools/setup.sh"; . "$top/tools/guest.sh"; guest_rootfs {kind} >&2; echo "$rootfs"'
    return subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def initrd_with(folder, files, name="extra.cpio"):
    """A cpio archive with files {path: (text, mode)}."""
    tree = tempfile.mkdtemp(dir=folder)
    for path, (text, mode) in files.items():
        full = os.path.join(tree, path.lstrip("/"))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(full, mode)
    out = os.path.join(folder, name)
    with open(out, "wb") as f:
        names = subprocess.run(["find", "."], cwd=tree, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], cwd=tree, input=names, stdout=f, check=True)
    shutil.rmtree(tree)
    return out


def scratch():
    """A folder that is removed when the test ends."""
    folder = tempfile.mkdtemp(prefix="kelvin-test.")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Guest:
    """One run. Use as a context manager; the process and its files are gone afterwards."""

    def __init__(self, kernel, initrds, commands="", args=(), smp=1, mem="256M", accel="soft", append="", monitor=None):
        self.dir = tempfile.mkdtemp(prefix="kelvin-test.")
        self.console = os.path.join(self.dir, "console")
        self.report = os.path.join(self.dir, "report")
        self.stats = os.path.join(self.dir, "stats.json")
        self.qmp = os.path.join(self.dir, "qmp")
        initrds = list(initrds) + [initrd_with(self.dir, {"/commands": (commands + "\n", 0o755)})]
        program = monitor or KELVIN
        self.argv = [program]
        ours = os.path.basename(program) == "kelvin"
        if ours:
            self.argv.append("run")
        else:
            joined = os.path.join(self.dir, "initrd")
            with open(joined, "wb") as out:
                for part in initrds:
                    with open(part, "rb") as f:
                        shutil.copyfileobj(f, out)
            initrds = [joined]
        if accel:
            self.argv += ["-accel", accel]
        self.argv += ["-M", "pc", "-m", str(mem), "-smp", str(smp), "-nodefaults", "-no-reboot", "-display", "none",
                      "-chardev", f"file,id=con,path={self.console}", "-serial", "chardev:con",
                      "-chardev", f"file,id=rep,path={self.report}", "-serial", "chardev:rep",
                      "-qmp", f"unix:{self.qmp},server=on,wait=off"]
        if kernel: # else the firmware starts what the disks hold
            self.argv += ["-kernel", kernel, "-initrd", ",".join(initrds), "-append", f"console=ttyS0 panic=-1 {append}".strip()]
        if ours:
            self.argv += ["-stats", self.stats]
        self.argv += list(args)
        self.process = None
        self.started = None

    def __enter__(self):
        self.started = time.monotonic()
        self.errors = open(os.path.join(self.dir, "stderr"), "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.errors.close()
        shutil.rmtree(self.dir)

    def read(self, name):
        try:
            with open(name, encoding="utf-8", errors="replace") as f:
                return f.read().replace("\r", "")
        except OSError:
            return ""

    def fail(self, why):
        """Raise with what a person needs to see."""
        raise GuestFailed(
            f"{why}\n--- command: {' '.join(self.argv)}\n--- console ends:\n{self.read(self.console)[-3000:]}\n"
            f"--- report:\n{self.read(self.report)[-1000:]}\n--- monitor said:\n{self.read(os.path.join(self.dir, 'stderr'))[-1500:]}"
        )

    def reports(self):
        """The guest's report as {key: value}; a key seen twice keeps the last."""
        return dict(line.split(" ", 1) for line in self.read(self.report).splitlines() if " " in line)

    def wait_report(self, key, timeout):
        """Wait until the guest has reported key; its value."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            got = self.reports()
            if key in got:
                return got[key]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        got = self.reports()
        if key in got:
            return got[key]
        return self.fail(f"no '{key}' from the guest within {timeout} s")

    def wait(self, timeout, status=0):
        """Wait for the monitor's end and check its status; returns the reports."""
        try:
            got = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.fail(f"still running after {timeout} s")
        if got != status:
            self.fail(f"the monitor's status is {got}, not {status}")
        return self.reports()


def expect(condition, guest, why):
    """A check on a guest that shows its console when it fails."""
    if not condition:
        guest.fail(why)


def run_test(function):
    """Run a test function; a failure is one readable block and status 1."""
    try:
        function()
    except GuestFailed as failure:
        print(failure)
        sys.exit(1)
