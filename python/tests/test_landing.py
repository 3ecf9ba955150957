"""Batches in the memory of a device: of the fake driver, or of the machine's if RLV_TEST_GPU is set."""

import ctypes
import os
import pathlib
import pickle

import numpy as np
import pytest

import relive
from relive.landing import DeviceArray, Landing

ON_GPU = "RLV_TEST_GPU" in os.environ


@pytest.fixture(autouse=True)
def driver(monkeypatch):
    if ON_GPU:
        return
    built = os.environ.get("RLV_BIN_DIR", "")
    fake = pathlib.Path(built).parent / "lib" / "fakecuda" / "libcuda.so.1"
    if not built or not fake.exists():
        pytest.skip("no fake driver: RLV_BIN_DIR does not name a build of the tests")
    monkeypatch.setenv("RLV_CUDA_LIBRARY", str(fake))


@pytest.fixture
def torch():
    if not ON_GPU:
        pytest.skip("no GPU: RLV_TEST_GPU is not set")
    return pytest.importorskip("torch")


def on_device(array):
    """The bytes of a device's array."""
    if ON_GPU:
        return array.torch().cpu().numpy()
    told = array.__cuda_array_interface__
    raw = (ctypes.c_char * array.nbytes).from_address(told["data"][0])
    return np.frombuffer(raw, array.dtype).reshape(told["shape"])


class Exported:
    """What a library's array on the device tells of itself."""

    def __init__(self, array, **changes):
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "strides": None, **changes}


def test_batch__arrays_are_on_the_device(filled):
    with filled.sampler(32, device="cuda") as sampler:
        for _ in range(10):
            batch = next(sampler)
            for name in batch.names:
                if name == "key":
                    assert isinstance(batch.key, np.ndarray)
                    continue
                array = batch[name]
                assert isinstance(array, DeviceArray), name
                assert np.array_equal(on_device(array), array.numpy()), name
                assert np.array_equal(np.asarray(array), array.numpy())
            assert (batch.obs.numpy()[:, 0] == batch.id.numpy()).all()
            batch.release()


def test_batch__fewer_items_than_the_sampler_has_room_for(filled):
    with filled.sampler(64, device="cuda:0") as sampler:
        batch = sampler.sample(5)
        assert batch.obs.shape == (5, 3) and len(batch.obs) == 5 and batch.obs.ndim == 2
        assert np.array_equal(on_device(batch.obs), batch.obs.numpy())


def test_arrays__are_kept_while_they_are_held(filled):
    sampler = filled.sampler(32, device="cuda", prefetch=0)
    held = [sampler.sample().id for _ in range(3)]
    copies = [array.copy() for array in held]
    for _ in range(20):
        sampler.sample()
    sampler.close()
    for array, copy in zip(held, copies):
        assert np.array_equal(on_device(array), copy)


def test_arrays__too_many_held_is_busy(filled):
    sampler = filled.sampler(8, device="cuda", prefetch=0)
    held = [sampler.sample() for _ in range(8)]
    with pytest.raises(relive.Busy, match="all 8 batches are held"):
        sampler.sample()
    del held


def test_dlpack__capsules_are_made_and_dropped(filled):
    with filled.sampler(32, device="cuda", prefetch=0) as sampler:
        batch = sampler.sample()
        assert batch.obs.__dlpack_device__() == (2, 0)
        for name in batch.names:
            if name != "key":
                assert "dltensor" in repr(batch[name].__dlpack__(stream=1))
        with pytest.raises(BufferError, match="numpy"):
            batch.obs.__dlpack__(copy=True)
        with pytest.raises(BufferError, match="numpy"):
            batch.obs.__dlpack__(dl_device=(1, 0))


def test_batch__copies_and_pickles_are_of_the_host(filled):
    with filled.sampler(32, device="cuda") as sampler:
        batch = next(sampler)
        assert "obs: float32 (32, 3)" in repr(batch) and "cuda:0" in repr(batch.obs)
        assert isinstance(batch.copy().obs, np.ndarray)
        assert np.array_equal(pickle.loads(pickle.dumps(batch)).obs, batch.obs.numpy())


def test_landing__is_shared_and_counts(filled):
    landing = Landing("cuda")
    with filled.sampler(16, device=landing, prefetch=0) as one, \
            filled.sampler(16, device=landing, prefetch=0) as two:
        assert one.sample().path == "pinned"
        two.sample()
        info = landing.info()
        paths = {entry["path"]: entry for entry in landing.paths()}
    assert list(paths) == ["in place", "dmabuf", "peermem", "gather", "pinned", "plain"]
    assert paths["pinned"] == {"path": "pinned", "possible": True, "batches": 2, "why": ""}
    assert not paths["in place"]["possible"] and paths["gather"]["possible"] and "a wish" in paths["gather"]["why"]
    assert info["batches"] == 2 and info["path"] == "pinned" and info["copied_bytes"] > 0
    assert landing.info()["buffers"] == 0
    assert "cuda:0" in repr(landing)


@pytest.mark.parametrize("weights", [None, "device", "host"])
def test_landing__weights_of_the_device_and_of_the_host(filled, weights):
    landing = Landing("cuda", weights=weights)
    with filled.sampler(16, beta=0.7, device=landing, prefetch=0) as sampler:
        batch = sampler.sample()
        want = batch.probability.numpy() ** -0.7
        assert np.allclose(on_device(batch.weight), want / want.max())
        assert np.array_equal(batch.weight.numpy(), on_device(batch.weight))
        assert np.array_equal(pickle.loads(pickle.dumps(batch)).weight, batch.weight.numpy())
    assert landing.info()["weights"] == (weights or "device")
    assert landing.info()["weighed"] == (weights != "host")


@pytest.mark.parametrize("layout,graph", [("dense", False), ("window", True)])
def test_landing__gathers_frames(make_table, layout, graph):
    frames = make_table({"frame": relive.Column("frame", (24, 24), "uint8", "obs"), "id": "uint64"},
                        views=[relive.View(stack=2)])
    with frames.writer() as writer:
        for i in range(200):
            writer.append(frame=np.full((24, 24), i % 251, np.uint8), id=i)
    landing = Landing("cuda", path="gather", graph=graph)
    with frames.sampler(16, device=landing, prefetch=0, layout=layout) as sampler:
        batch = sampler.sample()
        info = landing.info()
        assert batch.path == "gather"
        assert info["graphs"] == info["graph_launches"] == graph
        assert info["path"] == "gather" and info["gathered_bytes"] == 16 * (4 if layout == "dense" else 3) * 576
        for later, name in enumerate(["frame", "next_frame"]):
            assert np.array_equal(batch[name].numpy()[:, 1, 5, 5], (batch.id.numpy() + later) % 251)
            if not ON_GPU and layout == "dense":
                assert np.array_equal(on_device(batch[name]), batch[name].numpy())
        assert np.array_equal(batch.copy().frame, np.asarray(batch.frame))
        assert np.array_equal(pickle.loads(pickle.dumps(batch)).frame, batch.frame.numpy())
    with pytest.raises(relive.InvalidArgument, match="RLV_LANDING_GATHER"):
        Landing("cuda", graph=True)


@pytest.mark.parametrize("options,text", [
    ({"path": "peer"}, 'want "copy", "gather", "dmabuf", "peermem" or None'),
    ({"avoid": ["copy"]}, 'want a list of "dmabuf", "peermem"'),
    ({"avoid": "dmabuf"}, "want a list"),
    ({"strict": True}, "opts.path"),
    ({"path": "dmabuf", "avoid": ["dmabuf"]}, "opts.avoid"),
    ({"weights": "cpu"}, 'weights .*want "host", "device" or None'),
])
def test_landing__wrong_paths_are_named(options, text):
    with pytest.raises(relive.InvalidArgument, match=text):
        Landing("cuda", **options)


def test_landing__copies_where_no_better_path_is(filled):
    for options in ({}, {"avoid": ["dmabuf", "peermem"]}, {"path": "copy", "strict": True}, {"path": "peermem"}):
        landing = Landing("cuda", **options)
        with filled.sampler(16, device=landing, prefetch=0) as sampler:
            assert sampler.sample().path == "pinned"
        assert ("large columns" in landing.info()["reason"]) == ("copy" not in options.values() and "avoid" not in options)


@pytest.mark.parametrize("path,shape,text", [
    ("gather", (3,), "no large columns"), ("peermem", (24, 24), "rows do not come by RDMA")])
def test_landing__strict_path_that_is_lacking_is_unsupported(make_table, path, shape, text):
    table = make_table({"frame": relive.Column("frame", shape, "uint8", "obs"), "id": "uint64"})
    with pytest.raises(relive.Unsupported, match="path %s, which is strict: .*%s" % (path, text)):
        table.sampler(16, device=Landing("cuda", path=path, strict=True))


def test_array__that_only_the_device_has_is_brought_once(filled):
    with filled.sampler(16, device="cuda", prefetch=0) as sampler:
        batch = sampler.sample()
        host, landing = batch.obs.numpy(), batch.obs._landing
        want = host.copy()
        host[:] = 0
        array = DeviceArray(host, landing, True)  # as of a batch that came by RDMA
        assert np.array_equal(array.numpy(), want)
        host[:] = 1
        assert (array.numpy() == 1).all() and (DeviceArray(host, landing, False).numpy() == 1).all()


def test_update_priorities__td_errors_of_the_device(filled):
    with filled.sampler(32, device="cuda", prefetch=0) as sampler:
        batch = sampler.sample()
        td_error = batch.reward if ON_GPU else Exported(batch.reward)
        assert sampler.update_priorities(batch.key, td_error) is None
        sampler.flush()
        wanted = dict(zip(batch.key.tolist(), batch.reward.numpy()))
        seen = 0
        for _ in range(50):
            again = sampler.sample()
            for key, priority in zip(again.key.tolist(), again.priority.numpy()):
                if key in wanted:
                    assert priority == pytest.approx((wanted[key] + 1e-6) ** 0.6, rel=0.01)
                    seen += 1
        assert seen > 0
        assert sampler.update_priorities(batch.key, np.ones(32, np.float32)).updated == len(wanted)


@pytest.mark.parametrize("change,text", [
    ({"shape": (31,)}, r"shape \(31,\), want float32 of shape \(32,\)"),
    ({"typestr": "<f8"}, "<f8 of shape"),
    ({"strides": (8,)}, "packed"),
])
def test_update_priorities__wrong_td_errors_are_named(filled, change, text):
    with filled.sampler(32, device="cuda", prefetch=0) as sampler:
        batch = sampler.sample()
        with pytest.raises(relive.InvalidArgument, match=text):
            sampler.update_priorities(batch.key, Exported(batch.reward, **change))
        with pytest.raises(relive.InvalidArgument, match="give td_error="):
            sampler.update_priorities(batch.key, priorities=Exported(batch.reward))


@pytest.mark.parametrize("device", ["cpu", "cuda:x", -1, True, 1.5])
def test_device__unknown_is_named(filled, device):
    with pytest.raises(relive.InvalidArgument, match='want "cuda", "cuda:N"'):
        filled.sampler(32, device=device)


def test_device__that_the_machine_lacks_is_invalid(filled):
    with pytest.raises(relive.InvalidArgument, match="CUDA_VISIBLE_DEVICES"):
        filled.sampler(32, device="cuda:99")


def test_device__has_memory_of_its_own(filled):
    with pytest.raises(relive.InvalidArgument, match="leave out pin_memory"):
        filled.sampler(32, device="cuda", allocator=bytearray)


def test_torch__tensors_are_of_the_device_without_a_copy(filled, torch):
    with filled.sampler(32, device="cuda", prefetch=0) as sampler:
        batch = sampler.sample()
        tensors = batch.torch()
        assert tensors["obs"].device == torch.device("cuda:0")
        assert tensors["obs"].data_ptr() == batch.obs.__cuda_array_interface__["data"][0]
        assert tensors["steps"].dtype == torch.int64 and tensors["steps"].is_cuda
        assert np.array_equal(tensors["obs"].cpu().numpy(), batch.obs.numpy())
        td_error = (tensors["reward"] * 2).requires_grad_()
        assert sampler.update_priorities(batch.key, td_error) is None
        sampler.flush()


def test_torch__a_buffer_waits_for_the_kernel_that_reads_it(filled, torch):
    sampler = filled.sampler(32, device="cuda", prefetch=0, batches=1)
    stream = torch.cuda.Stream()
    for _ in range(20):
        batch = sampler.sample(timeout=10)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            seen = batch.torch()["id"].clone()
        expected = batch.id.copy()
        batch.release()
        del batch
        sampler.sample(timeout=10).release()
        assert np.array_equal(seen.cpu().numpy(), expected)
    sampler.close()
