"""Virtual environments of the peers, and a worker process in each."""

import json
import os
import pathlib
import select
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PACKAGES = {
    "relive": [str(ROOT)],
    "cpprb": ["cpprb", "numpy"],
    "flashbax": ["flashbax"],
    "tianshou": ["tianshou"],
    "torchrl": ["torchrl", "torch", "tensordict", "numpy"],
    "reverb": ["dm-reverb[tensorflow]==0.14.0"],
    "redis": ["redis", "hiredis", "cpprb", "numpy"],
    "ray": ["ray", "cpprb", "numpy"],
    "mooncake": ["mooncake-transfer-engine-non-cuda", "numpy"],
    "plots": ["matplotlib"],
}
HOUSES = {"relive_stored": "relive", "relive_dense": "relive",
          "torchrl_sampler": "torchrl", "ray_objects": "ray"}  # that share another's environment
ANSWER_S = 300
INSTALL_S = 1800


class Failed(Exception):
    pass


class Absent(Failed):
    """The peer is not installed, and installing is off."""


def say(text):
    print(text, file=sys.stderr, flush=True)


class Environments:
    """``install``: makes missing environments. Else Relive runs in this interpreter, and another peer only
    if its environment exists."""

    def __init__(self, folder, install):
        self._folder = pathlib.Path(folder)
        self._install = install
        self._pythons = {}

    def python(self, peer):
        """The Python interpreter of a peer, whose environment is made first if need be. After a failure
        raises Failed, in later calls with the same message."""
        house = HOUSES.get(peer, peer)
        if house not in self._pythons:
            try:
                self._pythons[house] = self._make(house)
            except (Failed, OSError, subprocess.SubprocessError) as error:
                self._pythons[house] = error
        if isinstance(self._pythons[house], Exception):
            raise self._pythons[house]
        return self._pythons[house]

    def log(self, name):
        return self._folder / ("%s.log" % name)

    def _make(self, house):
        self._folder.mkdir(parents=True, exist_ok=True)
        home = self._folder / house
        python = home / "bin" / "python"
        if not self._install:
            if house == "relive":
                return pathlib.Path(sys.executable)
            if not python.exists():
                raise Absent("not installed")
            return python
        done = home / "installed"
        if house == "relive" or not done.exists():
            say("install %s" % house)
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            self._pip(house, python)
            done.touch()
        return python

    def _pip(self, house, python):
        log = self.log(house)
        with open(log, "w") as out:
            code = subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES[house]],
                                  stdout=out, stderr=out, timeout=INSTALL_S).returncode
        if code:
            lines = log.read_text().strip().splitlines()
            raise Failed("does not install: " + (lines[-1] if lines else "pip failed"))


class Worker:
    """A worker process of a peer; each answer is awaited for at most ANSWER_S."""

    def __init__(self, environments, peer, host=None):
        """``host``: the number of a host of tests/support/hosts; None = this one."""
        self.peer = peer
        command = [str(environments.python(peer)), str(HERE / "worker.py")]
        if host:
            command = ["hosts", "on", str(host), *command]
        with open(environments.log(peer), "a") as log:
            self._process = subprocess.Popen(command, cwd=HERE,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             stderr=log)

    def tell(self, **order):
        order.setdefault("peer", self.peer)
        try:
            os.write(self._process.stdin.fileno(), (json.dumps(order) + "\n").encode())
        except OSError as error:
            raise Failed("its process ended") from error

    def hear(self, seconds=ANSWER_S):
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise Failed("no answer in %d s" % seconds if not ready else "its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def ask(self, **order):
        self.tell(**order)
        return self.hear()

    def end(self):
        try:
            self.ask(op="quit")
            self._process.wait(20)
        except (Failed, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
