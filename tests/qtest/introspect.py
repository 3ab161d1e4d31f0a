#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What QMP tells about the program, held against Debian's QEMU: every command has QEMU's arguments and answers in QEMU's
shape, every answer has the shape our own schema says, and what is advertised works.

usage: introspect.py KELVIN        QEMU= in the environment leaves the peer out
"""
import glob
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile

KELVIN = [os.path.abspath(sys.argv[1]), "run"]
ENGINE = ["-accel", "qtest"]


class Qmp:
    def __init__(self, command, *options):
        self.process = subprocess.Popen([*command, "-S", "-display", "none", "-nodefaults", "-m", "64", "-qmp", "stdio",
                                         *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = []
        json.loads(self.process.stdout.readline())
        self.ok("qmp_capabilities")

    def ask(self, execute, **arguments):
        request = {"execute": execute, "arguments": {k.replace("_", "-"): v for k, v in arguments.items()}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        while True:
            line = self.process.stdout.readline()
            assert line, f"{execute}: the program is gone"
            reply = json.loads(line)
            if "event" not in reply:
                return reply
            self.events.append(reply)

    def ok(self, execute, **arguments):
        reply = self.ask(execute, **arguments)
        assert "return" in reply, (execute, reply)
        return reply["return"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(60)


class Schema:
    def __init__(self, entries):
        self.of = {}
        for e in entries:
            assert e["name"] not in self.of, f"{e['name']} twice"
            self.of[e["name"]] = e
        for e in entries:  # it is closed, and complete as a client expects it
            for ref in [e[k] for k in ("arg-type", "ret-type", "element-type") if k in e] + \
                    [m["type"] for m in e.get("members", []) if "type" in m]:
                assert ref in self.of, f"{e['name']}: type {ref} is not there"
            need = {"builtin": {"json-type"}, "enum": {"members", "values"}, "array": {"element-type"},
                    "object": {"members"}, "alternate": {"members"}, "command": {"arg-type", "ret-type"},
                    "event": {"arg-type"}}[e["meta-type"]]
            assert need <= set(e), e

    def names(self, meta):
        return {n for n, e in self.of.items() if e["meta-type"] == meta}

    def fits(self, name, value, where="return"):
        """Asserts that a value has the shape; variants' members are allowed."""
        e = self.of[name]
        meta = e["meta-type"]
        if meta == "builtin":
            kinds = {"string": str, "int": int, "boolean": bool, "number": (int, float), "null": type(None), "value": object}
            assert isinstance(value, kinds[e["json-type"]]), f"{where}: {value!r} is no {name}"
            assert e["json-type"] != "int" or not isinstance(value, bool), f"{where}: {value!r}"
        elif meta == "enum":
            assert value in [m["name"] for m in e["members"]], f"{where}: {value!r}"
        elif meta == "array":
            assert isinstance(value, list), where
            for i, v in enumerate(value):
                self.fits(e["element-type"], v, f"{where}[{i}]")
        elif meta == "object":
            assert isinstance(value, dict), where
            members = {m["name"]: m for m in e["members"]}
            for v in e.get("variants", []):
                if value.get(e["tag"]) == v["case"]:
                    members.update({m["name"]: m for m in self.of[v["type"]]["members"]})
            for n, m in members.items():
                assert n in value or "default" in m, f"{where}: '{n}' is missing"
            for n, v in value.items():
                assert n in members, f"{where}: '{n}' is unexpected"
                self.fits(members[n]["type"], v, f"{where}.{n}")

    def part_of(self, name, other, other_name, where, seen=()):
        """Asserts that this shape is a part of the other's: a client of that one finds here what it knows."""
        a, b = self.of[name], other.of[other_name]
        if (name, other_name) in seen:
            return
        assert a["meta-type"] == b["meta-type"], where
        seen += ((name, other_name),)
        if a["meta-type"] == "builtin":
            assert a["json-type"] == b["json-type"], where
        elif a["meta-type"] == "enum":
            extra = {m["name"] for m in a["members"]} - {m["name"] for m in b["members"]}
            assert not extra, f"{where}: {extra}"
        elif a["meta-type"] == "array":
            self.part_of(a["element-type"], other, b["element-type"], where + "[]", seen)
        elif a["meta-type"] == "object":
            theirs = {m["name"]: [m] for m in b["members"]}
            for v in b.get("variants", []):
                for m in other.of[v["type"]]["members"]:
                    theirs.setdefault(m["name"], []).append(dict(m, default=None))
            mine = {m["name"]: m for m in a["members"]}
            for n, m in mine.items():
                assert n in theirs, f"{where}.{n} is not QEMU's"
                wrong = []
                for t in theirs[n]:  # of one variant or another
                    try:
                        self.part_of(m["type"], other, t["type"], f"{where}.{n}", seen)
                    except AssertionError as e:
                        wrong.append(e)
                if len(wrong) == len(theirs[n]):
                    raise wrong[0]
            for n, t in theirs.items():
                assert n in mine or "default" in t[0], f"{where}.{n} is missing"


OWN = {"x-query-accel", "x-query-stats"}  # Kelvin's
OLD = {"query-events"}  # QEMU's until 6.0


def queries(schema):
    """Commands that only ask and need no argument."""
    out = []
    for name in sorted(schema.names("command")):
        members = schema.of[schema.of[name]["arg-type"]]["members"]
        if name.startswith(("query-", "x-query-")) and all("default" in m for m in members):
            out.append(name)
    return out


def against_qemu(schema, qemu):
    with Qmp([qemu], "-accel", "tcg") as q:
        theirs = Schema(q.ok("query-qmp-schema"))
        for name in sorted(schema.names("command") - OWN - OLD):
            for side in ("arg-type", "ret-type"):
                schema.part_of(schema.of[name][side], theirs, theirs.of[name][side], f"{name} {side}")
        for name in sorted(schema.names("event")):
            schema.part_of(schema.of[name]["arg-type"], theirs, theirs.of[name]["arg-type"], name)
        options = {o["option"]: {p["name"] for p in o["parameters"]} for o in q.ok("query-command-line-options")}
        # QEMU's own schema fits itself: the checker is no looser than it should be.
        theirs.fits(theirs.of["query-qmp-schema"]["ret-type"], q.ok("query-qmp-schema"))
        return theirs, options


def check_types(q, schema):
    types = {t["name"]: t for t in q.ok("qom-list-types", abstract=True)}
    for t in types.values():
        assert "parent" not in t or t["parent"] in types, t
    devices = {t["name"] for t in q.ok("qom-list-types", implements="device")}
    assert {"virtio-blk-pci", "ide-hd", "isa-serial", "pci-testdev"} <= devices, devices
    assert "pc-machine" not in devices and "pci-device" not in devices
    for name, t in types.items():
        properties = q.ok("qom-list-properties", typename=name)
        assert len({p["name"] for p in properties}) == len(properties), name
        reply = q.ask("device-list-properties", typename=name)
        assert ("return" in reply) == (name in devices or (name.endswith("-x86_64-cpu"))), (name, reply)
        if "return" in reply:
            assert reply["return"] == properties
    assert q.ask("qom-list-properties", typename="nosuch")["error"]["class"] == "DeviceNotFound"
    return devices


def check_tree(q):
    """Every path of the tree can be listed and every property of it read."""
    count, todo = 0, ["/"]
    while todo:
        path = todo.pop()
        for p in q.ok("qom-list", path=path):
            if p["type"].startswith("child<"):
                todo.append(path.rstrip("/") + "/" + p["name"])
            else:
                value = q.ask("qom-get", path=path, property=p["name"])
                count += 1
                assert "return" in value or "no value" in value["error"]["desc"], (path, p, value)
                if p["type"] == "bool":
                    assert isinstance(value["return"], bool), (path, p, value)
    return count


def check_cpus(q):
    definitions = q.ok("query-cpu-definitions")
    names = [d["name"] for d in definitions]
    assert {"max", "host", "base", "qemu64", "EPYC", "Skylake-Client"} <= set(names), names
    types = {t["name"] for t in q.ok("qom-list-types", implements="x86_64-cpu")}
    assert {d["typename"] for d in definitions} == types
    for d in definitions:
        full = q.ok("query-cpu-model-expansion", type="full", model={"name": d["name"]})["model"]
        assert full["name"] == d["name"]
        for f in d["unavailable-features"]:
            assert full["props"][f] is False, (d["name"], f)
    static = q.ok("query-cpu-model-expansion", type="static", model={"name": "EPYC", "props": {"avx2": False}})["model"]
    assert static["name"] == "base" and static["props"]["avx2"] is False and static["props"]["sse2"] is True
    # What came out goes in again, and means the same.
    again = q.ok("query-cpu-model-expansion", type="full", model=static)["model"]
    assert again["props"] == static["props"]
    for bad in ({"name": "nosuch"}, {"name": "max,foo"}, {"name": "max", "props": {"nosuch": True}},
                {"name": "max", "props": {"avx": "on,x=y"}}, {"name": "max", "props": 1}, {"name": "max", "props": {"avx": None}}):
        assert "error" in q.ask("query-cpu-model-expansion", type="full", model=bad), bad
    assert "error" in q.ask("query-cpu-model-expansion", type="none", model={"name": "max"})
    cpu = "/machine/unattached/device[0]"
    assert q.ok("qom-get", path=cpu, property="sse2") is True
    return static


def check_help(devices):
    def text(*args):
        run = subprocess.run([*KELVIN, *args], capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, (args, run)
        return run.stdout
    listed = text("-device", "help")
    with Qmp(KELVIN, *ENGINE) as q:
        for line in listed.splitlines()[1:]:
            name = line.split()[0]
            assert name in devices, f"-device help: {name} is not in qom-list-types"
            helped = text("-device", name + ",help")
            for p in q.ok("device-list-properties", typename=name):
                assert f"  {p['name']}=" in helped, (name, p["name"])
        models = text("-cpu", "help")
        for d in q.ok("query-cpu-definitions"):
            assert f"\n  {d['name']} " in models, d["name"]
        machines = text("-machine", "help")
        for m in q.ok("query-machines"):
            assert f"  {m['name']} " in machines
    for engine in ("kvm", "soft", "qtest"):
        assert f"  {engine} " in text("-accel", "help")


def check_libvirt():
    """Where libvirt is installed: it starts us as QEMU, asks everything it asks, and knows what we are."""
    whole = any(u.pw_name == "libvirt-qemu" for u in pwd.getpwall())  # its driver does not start without its user
    if not whole or not shutil.which("virsh") or not glob.glob("/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so"):
        print("no libvirt here: without it")
        return
    with tempfile.TemporaryDirectory() as home:
        emulator = os.path.join(home, "qemu-system-x86_64")
        os.symlink(KELVIN[0], emulator)
        env = dict(os.environ, HOME=home, XDG_RUNTIME_DIR=home, XDG_CONFIG_HOME=home, XDG_CACHE_HOME=home)
        run = subprocess.run(["virsh", "-c", f"qemu:///embed?root={home}/root", "domcapabilities", "--virttype", "qemu",
                              "--machine", "pc", "--emulatorbin", emulator], env=env, capture_output=True, text=True)
        assert run.returncode == 0, run
        for want in ("<machine>pc</machine>", "<vcpu max='255'/>", "<mode name='maximum' supported='yes'>",
                     "<mode name='host-model' supported='yes'>", "<value>virtio</value>"):
            assert want in run.stdout, (want, run.stdout)


def main():
    qemu = os.environ.get("QEMU", "qemu-system-x86_64")
    with Qmp(KELVIN, *ENGINE, "-device", "virtio-balloon-pci", "-device", "virtio-rng-pci,id=r", "-chardev", "null,id=c",
             "-object", "rng-random,id=o") as q:
        schema = Schema(q.ok("query-qmp-schema"))
        theirs = options = None
        if qemu and shutil.which(qemu):
            theirs, options = against_qemu(schema, qemu)
        else:
            print("no QEMU here: without the peer")
        assert schema.names("command") == {c["name"] for c in q.ok("query-commands")}
        assert schema.names("event") == {e["name"] for e in q.ok("query-events")}
        for name in queries(schema):
            reply = q.ok(name)
            schema.fits(schema.of[name]["ret-type"], reply, name)
            if theirs and name not in OWN | OLD:
                theirs.fits(theirs.of[name]["ret-type"], reply, name)
        for o in q.ok("query-command-line-options"):
            assert q.ok("query-command-line-options", option=o["option"]) == [o]
            assert not options or o["option"] in options or o["option"] in ("accel", "chardev"), o["option"]
        assert "error" in q.ask("query-command-line-options", option="nosuch")
        devices = check_types(q, schema)
        print(check_tree(q), "properties read,", len(schema.of), "entries of the schema,", len(devices), "devices")
        static = check_cpus(q)
        # Events have the shape they are said to have.
        q.ok("cont")
        q.ok("system_reset")
        q.ok("stop")
        q.ok("balloon", value=32 << 20)
        q.ok("system_powerdown")
        for e in q.events:
            (theirs or schema).fits((theirs or schema).of[e["event"]]["arg-type"], e.get("data", {}), e["event"])
            schema.fits(schema.of[e["event"]]["arg-type"], e.get("data", {}), e["event"])
        assert {"RESUME", "STOP", "RESET", "POWERDOWN"} <= {e["event"] for e in q.events}, q.events
    # A disk with everything said, and the machine "none" as libvirt starts it.
    with Qmp(KELVIN, *ENGINE, "-drive", f"if=none,id=d,format=raw,file={sys.argv[0]},readonly=on,bps_rd=1000000,"
             "bps_rd_max=2000000") as q:
        for name in ("query-block", "query-named-block-nodes"):
            reply = q.ok(name)
            (theirs or schema).fits((theirs or schema).of[name]["ret-type"], reply, name)
        assert q.ok("query-block")[0]["inserted"]["bps_rd_max"] == 2000000
    with Qmp(KELVIN, "-machine", "none,accel=kvm:tcg", "-no-user-config") as q:
        assert q.ok("query-cpus-fast") == [] and q.ok("query-status")["running"] is False
        assert Schema(q.ok("query-qmp-schema")).of.keys() == schema.of.keys()
        q.ok("human-monitor-command", command_line="info registers")
        check_tree(q)
        q.ok("cont")
    # The static expansion starts a machine that has just these features.
    model = "base," + ",".join(f"{k}={'on' if v else 'off'}" for k, v in static["props"].items())
    with Qmp(KELVIN, *ENGINE, "-cpu", model) as q:
        for feature, on in static["props"].items():
            got = q.ok("qom-get", path="/machine/unattached/device[0]", property=feature)
            assert got == on, (feature, got)
    check_help(devices)
    check_libvirt()
    print("ok")


main()
