"""Jobs of a device pool, with a broker of the test's own."""

import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import relive
from relive import _core
from relive.landing import Landing
from support.daemons import until

EXTENT = 64 << 10


@pytest.fixture(autouse=True)
def broker(tmp_path, monkeypatch):
    program = relive.build_info()["programs"].get("relive-poold")
    if not program:
        pytest.skip("this build has no relive-poold")
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(tmp_path))
    child = subprocess.Popen([program, "--device", "host:512K", "--device", "host:256K", "--extent", "64K"],
                             stderr=subprocess.DEVNULL)
    until(answers)
    yield child
    child.terminate()
    assert child.wait(60) == 0


def answers():
    try:
        return relive.Pool.status()
    except relive.Error:
        return None


def held():
    return sum(device["held_bytes"] for device in relive.Pool.status()["devices"])


def test_arrays_live_in_the_pool():
    with relive.Pool(name="a", persistent=2 * EXTENT, iteration=EXTENT) as pool:
        assert pool.device == 0 and pool.free_bytes == 8 * EXTENT
        weights = pool.alloc((2, 128, 128), lifetime="persistent")
        weights[:] = 7
        with pool.iteration():
            batch = pool.alloc(EXTENT, np.uint8)
            batch[:] = 1
            assert held() == 3 * EXTENT
            assert relive.Pool.status()["jobs"][0]["state"] == "runs"
            view = batch[5:9]
            del batch
            assert np.array_equal(view, [1] * 4)  # a view keeps the memory
            with pytest.raises(relive.Busy, match="2 arrays"):
                pool.close()
            del view
        assert np.from_dlpack(weights)[1, 2, 3] == 7
        gc.collect()
        assert pool.is_open
        del weights
    assert not pool.is_open
    until(lambda: held() == 0)
    with pytest.raises(relive.Closed):
        pool.alloc(1)


def test_devices_and_limits():
    with relive.Pool(name="a", persistent=EXTENT, device=1) as pool:
        assert pool.device == 1
        relive.Pool.limit(2 * EXTENT, device=1)
        assert relive.Pool.status()["devices"][1]["budget_bytes"] == 2 * EXTENT
        with pytest.raises(relive.NoSpace):
            pool.alloc(3 * EXTENT, np.uint8)
        relive.Pool.limit(EXTENT, job="a")
        assert relive.Pool.status()["jobs"][0]["quota_bytes"] == EXTENT
        with pytest.raises(relive.InvalidArgument, match="one of"):
            relive.Pool.limit(EXTENT, job="a", user=0)
        with pytest.raises(relive.AlreadyExists):
            relive.Pool(name="a")
        relive.Pool.drain()
        with pytest.raises(relive.Busy, match="drained"):
            relive.Pool(name="b")
        relive.Pool.drain(False)
    with pytest.raises(relive.NotFound):
        relive.Pool("none")


def test_wrong_arguments():
    with relive.Pool(iteration=EXTENT, timeout=0.1) as pool:
        assert relive.Pool.status()["jobs"][0]["job"] == f"job-{os.getpid()}"
        for wrong in (0, (3, 0), (-1, -2)):
            with pytest.raises(relive.InvalidArgument, match="more than 0 bytes"):
                pool.alloc(wrong)
        with pytest.raises(relive.InvalidArgument, match="want one of persistent"):
            pool.alloc(1, lifetime="long")
        with pytest.raises(relive.InvalidArgument, match="no objects"):
            pool.alloc(1, object)
        with pytest.raises(relive.InvalidArgument, match="timeout"), pool.iteration(timeout=-1):
            pass
        with pytest.raises(ZeroDivisionError), pool.iteration():
            1 / 0
        with pool.iteration(), pytest.raises(relive.Busy), pool.iteration():
            pass


def test_iteration_waits_for_another_job():
    relive.Pool.limit(4 * EXTENT)
    with relive.Pool(name="a", iteration=4 * EXTENT, device=0) as a, \
            relive.Pool(name="b", iteration=4 * EXTENT, device=0) as b:
        with a.iteration():
            with pytest.raises(relive.Timeout), b.iteration(timeout=0.08):
                pass
            begun = threading.Event()

            def run():
                with b.iteration():
                    begun.set()

            thread = threading.Thread(target=run)
            thread.start()
            until(lambda: any(job["state"] == "waits" for job in relive.Pool.status()["jobs"]))
            assert not begun.is_set()
        thread.join(60)
        assert begun.is_set()


@pytest.mark.parametrize("heap", [None, "parked"])
def test_jobs_that_park_take_turns(broker, tmp_path, monkeypatch, heap):
    """Two that are not resident together. Each waits in short slices, for signals."""
    store = relive.open("embed:") if heap else None
    kv = heap and store.create_kv(heap, bytes=16 << 20)
    (tmp_path / "turns").mkdir(mode=0o700)
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(tmp_path / "turns"))
    stop, rounds, failures = threading.Event(), [0, 0], []

    def learn(i):
        try:
            with relive.Pool(name=f"job-{i}", persistent=6 * EXTENT, iteration=EXTENT, parks=True, store=store,
                             heap=heap) as pool:
                weights = None
                while not stop.is_set():
                    with pool.iteration(timeout=60):
                        if weights is None:
                            weights = pool.alloc(6 * EXTENT, np.uint8, lifetime="persistent")
                            weights[:] = i
                        assert (weights == i).all()
                        batch = pool.alloc(EXTENT, np.uint8)
                        rounds[i] += 1
                    del batch  # it may be parked by now
                del weights
        except BaseException as exception:
            failures.append(exception)

    def another_round(before):
        return failures or all(now > was for now, was in zip(rounds, before, strict=True))

    threads = [threading.Thread(target=learn, args=(i,)) for i in (0, 1)]
    child = subprocess.Popen([broker.args[0], "--device", "host:512K", "--extent", "64K", "--park-after", "0.2"],
                             stderr=subprocess.DEVNULL)
    try:
        until(answers)
        for thread in threads:
            thread.start()
        for _ in range(2):
            before = list(rounds)
            until(lambda: another_round(before))
        until(lambda: failures or not heap or len(kv) > 0)
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not failures
        until(lambda: held() == 0)
        assert not heap or len(kv) == 0
    finally:
        stop.set()
        child.terminate()
        child.wait(60)
    if store:
        store.close()


def test_job_that_parks_in_a_store_keeps_it_open():
    with relive.open("embed:") as store:
        with pytest.raises(relive.NotFound, match="parked"):
            relive.Pool(iteration=EXTENT, store=store, heap="parked")
        with pytest.raises(relive.InvalidArgument, match="heap"):
            relive.Pool(iteration=EXTENT, store=store)
        with pytest.raises(relive.InvalidArgument, match="relive.Store"):
            _core.Pool("0", "a", 0, EXTENT, 0, 0, 0, 1000, 0, 0, 1, False, "store", "parked")
        store.create_kv("parked").close()
        with relive.Pool(iteration=EXTENT, store=store, heap="parked"):
            with pytest.raises(relive.Busy, match="jobs"):
                store.close()


def test_job_that_parks_has_no_staging():
    with relive.Pool(iteration=EXTENT, parks=True) as pool:
        with pytest.raises(relive.InvalidArgument, match="RLV_POOL_PARKS"):
            pool.alloc(1, lifetime="staging")


def test_signal_ends_the_wait():
    program = """if True:
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of a shell ignore it
        import relive
        pool = relive.Pool(name="b", iteration=4 << 16, device=0)
        with pool.iteration():
            pass
    """
    relive.Pool.limit(4 * EXTENT)
    with relive.Pool(name="a", iteration=4 * EXTENT, device=0) as a, a.iteration():
        child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        until(lambda: any(job["state"] == "waits" for job in relive.Pool.status()["jobs"]))
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.communicate(timeout=25)[1]  # it would wait for 30 s


def test_child_of_fork_has_no_memory():
    pool = relive.Pool(name="a", iteration=EXTENT)
    memory = pool._core.alloc(1, 512)
    pid = os.fork()
    if pid == 0:
        try:
            memoryview(memory)
        except relive.Forked:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    del memory
    pool.close()


def test_park__bytes_come_back_when_others_leave_room():
    with relive.Pool(name="a", persistent=4 * EXTENT, iteration=EXTENT, device=0) as pool:
        weights = pool.alloc(2 * EXTENT, np.uint8, lifetime="persistent")
        weights[:] = 7
        address = weights.ctypes.data
        with pool.iteration(), pytest.raises(relive.Busy):
            pool.park()
        pool.park()
        assert held() == 0
        with pytest.raises(relive.Busy, match="parked"):
            pool.alloc(1)
        with relive.Pool(name="b", persistent=8 * EXTENT, device=0) as other:
            kept = other.alloc(8 * EXTENT, np.uint8, lifetime="persistent")
            with pytest.raises(relive.Timeout):
                pool.resume(timeout=0.1)
            del kept
        pool.resume()
        assert (weights == 7).all() and weights.ctypes.data == address
        del weights


def test_landing__batches_are_memory_of_the_pool(filled):
    pool = relive.Pool(name="learner", persistent=EXTENT, iteration=EXTENT)
    assert pool.cuda is None
    with filled.sampler(16, device=pool, prefetch=0) as sampler:
        batch = sampler.sample()
        assert isinstance(batch.obs, np.ndarray) and batch.obs.shape == (16, 3)
        assert held() >= EXTENT and batch.path == "in place"
        with pytest.raises(relive.Busy, match="close samplers"):
            pool.close()
        with pytest.raises(relive.Unsupported, match="pinned, opts.strict: the device's memory is the host's"):
            Landing(pool=pool, path="copy", strict=True)
    batch.release()
    del batch, sampler
    gc.collect()
    pool.close()
    until(lambda: held() == 0)


def test_torch__a_pool_of_the_host_has_none():
    with relive.Pool(name="a", iteration=EXTENT) as pool:
        with pytest.raises(relive.InvalidArgument, match="memory of the host"):
            with pool.torch():
                pass
        with pytest.raises(relive.InvalidArgument, match="lifetime 'forever'"):
            with pool.torch("forever"):
                pass


@pytest.fixture
def cuda_pool(tmp_path, monkeypatch):
    """A pool of the machine's first GPU; tests with it need one."""
    if "RLV_TEST_GPU" not in os.environ:
        pytest.skip("no GPU: RLV_TEST_GPU is not set")
    (tmp_path / "gpu").mkdir(mode=0o700)
    monkeypatch.setenv("RELIVE_RUNTIME_DIR", str(tmp_path / "gpu"))
    program = relive.build_info()["programs"]["relive-poold"]
    with subprocess.Popen([program, "--device", "cuda:0:4G"]) as child:
        until(answers)
        yield relive.Pool(name="job", persistent=1 << 30, iteration=1 << 30)
        child.terminate()


def test_torch__tensors_of_a_gpu_lie_in_the_pool(cuda_pool, filled):
    torch = pytest.importorskip("torch")
    pool = cuda_pool
    assert pool.cuda == 0
    with pytest.raises(relive.Unsupported, match="with pool.torch"):
        pool.alloc(10)
    torch.ones(1, device="cuda")
    with pool.torch("persistent"):
        net = torch.nn.Sequential(torch.nn.Linear(3, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)).cuda()
    assert held() > 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with filled.sampler(64, device=pool, prefetch=2) as sampler:
        for _ in range(20):
            batch = next(sampler)
            with pool.iteration(), pool.torch():
                tensors = batch.torch()
                loss = (net(tensors["obs"])[:, 0] - tensors["reward"]).square()
                optimizer.zero_grad(set_to_none=True)
                loss.mean().backward()
                optimizer.step()
            sampler.update_priorities(batch.key, loss.detach())
            batch.release()
        sampler.flush()
    assert torch.isfinite(loss).all()
    print("held", held(), "free", pool.free_bytes)
    with pytest.raises(torch.OutOfMemoryError):
        with pool.torch():
            torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    del net, optimizer, loss, tensors, batch, sampler
    gc.collect()
    torch.cuda.synchronize()
    pool.close()
    until(lambda: held() == 0)
