"""The examples in the documentation."""

import doctest
import importlib
import pkgutil

import pytest

import relive

MODULES = sorted(module.name for module in pkgutil.iter_modules(relive.__path__)
                 if module.name not in ("__main__", "_core", "torch"))


@pytest.mark.parametrize("name", ["relive", *("relive." + name for name in MODULES)])
def test_examples__hold(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name.startswith("relive"):
            raise
        pytest.skip("%s is missing" % missing.name)
    failed, _ = doctest.testmod(module)
    assert failed == 0
