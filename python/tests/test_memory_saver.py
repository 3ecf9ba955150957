"""Pausing torch's memory by tag, over a broker of the test's own: with the fake driver, where a stand-in asks for memory
as torch's allocator does, or with torch and the machine's GPU if RLV_TEST_GPU is set."""

import contextlib
import ctypes
import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys
import types

import pytest

import relive
from relive._memory_saver import MemorySaver
from support.daemons import until

ON_GPU = "RLV_TEST_GPU" in os.environ
EXTENT = 2 << 20
# As torch_memory_saver 0.0.10 has them: names and defaults.
THEIRS = {
    "region": {"tag": "default", "enable_cpu_backup": False, "enable_disk_backup": False, "cpu_backup_backend": None},
    "pause": {"tag": None},
    "resume": {"tag": None},
    "disable": {},
    "get_cpu_backup": {"x": inspect.Parameter.empty, "zero_copy": False},
}


def answers():
    try:
        return relive.Pool.status()
    except relive.Error:
        return None


def jobs():
    """Bytes that jobs hold, by the end of their names."""
    return {job["job"].partition("/")[2]: job["held_bytes"] for job in relive.Pool.status()["jobs"]}


@pytest.fixture
def broker(tmp_path, monkeypatch):
    program = relive.build_info()["programs"].get("relive-poold")
    fake = pathlib.Path(os.environ.get("RLV_BIN_DIR", "")).parent / "lib" / "fakecuda" / "libcuda.so.1"
    if not program:
        pytest.skip("this build has no relive-poold")
    if not ON_GPU:
        if not fake.exists():
            pytest.skip("no fake driver: RLV_BIN_DIR does not name a build of the tests")
        monkeypatch.setenv("RLV_CUDA_LIBRARY", str(fake))
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(tmp_path))
    device = ["--device", "cuda:0:4G"] if ON_GPU else ["--device", "cuda:0:16M", "--extent", "2M"]
    with subprocess.Popen([program, *device], stderr=subprocess.DEVNULL) as child:
        until(answers)
        yield
        child.terminate()


class Allocator:
    """Memory as torch's allocator asks for it, of whichever pool is bound."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)
        self.library.rlv_torch_alloc.restype = ctypes.c_void_p
        self.library.rlv_torch_alloc.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]


@pytest.fixture
def torch(broker, monkeypatch):
    """In place of torch: `alloc` gives memory of the innermost region, an address that the fake driver lets a CPU use."""
    if ON_GPU:
        pytest.skip("a stand-in for torch")
    inner = []
    driver = ctypes.CDLL(os.environ["RLV_CUDA_LIBRARY"])

    @contextlib.contextmanager
    def in_mem_pool(pool):
        inner.append(pool)
        yield
        inner.pop()

    def alloc(value):
        address = inner[-1].library.rlv_torch_alloc(EXTENT, 0, None)
        assert address
        ctypes.memset(address, value, EXTENT)
        return address

    module = types.SimpleNamespace(mem_pool=Allocator, in_mem_pool=in_mem_pool, own_mem_pool=lambda: "torch's own",
                                   finish=driver.cuCtxSynchronize)
    cuda = types.SimpleNamespace(is_available=lambda: True, is_current_stream_capturing=lambda: False)
    monkeypatch.setitem(sys.modules, "relive.torch", module)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    return types.SimpleNamespace(alloc=alloc, inner=inner, cuda=cuda)


def has(address, value):
    return ctypes.string_at(address, EXTENT) == bytes([value]) * EXTENT


def test_pause__others_have_the_memory_until_resume(torch):
    with MemorySaver(persistent={"weights": 2 * EXTENT}, timeout=1) as saver:
        with saver.region("weights"):
            weights = torch.alloc(1), torch.alloc(2)
        with saver.region("cache", enable_cpu_backup=True):
            cache = torch.alloc(3)
        assert jobs() == {"weights": 2 * EXTENT, "cache": EXTENT}
        saver.pause("weights")
        assert jobs() == {"weights": 0, "cache": EXTENT}
        saver.pause()
        saver.pause("nobody")
        assert jobs() == {"weights": 0, "cache": 0}
        with pytest.raises(relive.Busy, match="tag cache is paused"), saver.region("cache"):
            pass
        with relive.Pool(name="other/other", persistent=7 * EXTENT) as other:
            with other.torch("persistent"):
                for value in range(7):
                    torch.alloc(value)
            with pytest.raises(relive.Timeout):
                saver.resume("weights")
            saver.resume("cache")
            assert has(cache, 3)
        saver.resume()
        saver.resume()
        assert has(weights[0], 1) and has(weights[1], 2) and has(cache, 3)
    until(lambda: jobs() == {})


def test_region__within_another_and_disabled(torch):
    with MemorySaver("0", "job") as saver:
        with saver.region("outer"):
            with saver.region("inner"):
                torch.alloc(1)
            torch.alloc(2)
            assert jobs() == {"outer": EXTENT, "inner": EXTENT}
            with saver.disable():
                assert torch.inner[-1] == "torch's own"
        with pytest.raises(relive.InvalidArgument, match="no region"), saver.disable():
            pass
        assert {job["job"] for job in relive.Pool.status()["jobs"]} == {"job/outer", "job/inner"}
        saver.pause()  # close() of what is paused
    until(lambda: jobs() == {})


def test_what_there_is_not_is_refused():
    saver = MemorySaver()
    assert saver.enabled
    saver.hook_mode = "preload"
    with pytest.raises(relive.Unsupported, match="no backups on disk"), saver.region(enable_disk_backup=True):
        pass
    with pytest.raises(relive.Unsupported, match="memory of a graph"):
        saver.cuda_graph(None)
    with pytest.raises(relive.Unsupported, match="resume, then"):
        saver.get_cpu_backup(None)
    with pytest.raises(AttributeError):
        saver.memory_margin_bytes = 1


def signature(of):
    return {name: parameter.default for name, parameter in inspect.signature(of).parameters.items() if name != "self"}


def test_signatures__are_those_of_the_package():
    for name, theirs in THEIRS.items():
        assert signature(getattr(MemorySaver, name)) == theirs
    if importlib.util.find_spec("torch_memory_saver") and importlib.util.find_spec("torch"):
        from torch_memory_saver import TorchMemorySaver
        for name, theirs in THEIRS.items():
            assert signature(getattr(TorchMemorySaver, name)) == theirs


def test_torch__refuses_memory_that_no_pool_counts(torch, monkeypatch):
    def refused(match):
        with pytest.raises(relive.Unsupported, match=match), pool.torch():
            pass

    with relive.Pool(name="a") as pool:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True")
        refused("expandable_segments")
        monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
        trees = types.SimpleNamespace(get_manager=lambda device, create_if_none_exists: f"of {device}")
        monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees)
        refused("graph trees")
        trees.get_manager = lambda device, create_if_none_exists: None
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        refused("being captured")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        refused("no CUDA here")
        monkeypatch.undo()


@pytest.mark.skipif(not ON_GPU, reason="no GPU: RLV_TEST_GPU is not set")
def test_gpu__a_network_is_the_same_after_a_pause(broker):
    torch = pytest.importorskip("torch")
    with relive.torch.MemorySaver(persistent={"weights": 1 << 30}) as saver:
        with saver.region("weights"):
            net = torch.nn.Linear(4096, 4096).cuda()
        ones = torch.ones(8, 4096, device="cuda")
        before = net(ones)
        held = jobs()["weights"]
        assert held >= 64 << 20
        saver.pause("weights")
        assert jobs()["weights"] == 0
        saver.resume("weights")
        assert jobs()["weights"] == held and torch.equal(net(ones), before)
        del net
