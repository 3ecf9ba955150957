"""Kubernetes' manifests against its schemas."""

import pathlib
import subprocess
import sys

import pytest

from conftest import EXAMPLES


@pytest.mark.parametrize("name", ["one-host.yaml", "many-hosts.yaml"])
def test_kubernetes__manifests_fit_the_schemas(name):
    tool = pathlib.Path(sys.executable).parent / "kubernetes-validate"
    done = subprocess.run([tool, "--strict", EXAMPLES / "kubernetes" / name],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0 and "passed for resource" in done.stdout, done.stdout
