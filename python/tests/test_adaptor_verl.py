"""relive.adaptors.verl behind verl's own CheckpointEngine. verl's base class is loaded without what verl imports
beside it, so that its package is enough, without its dependencies."""

import asyncio
import importlib.util
import sys
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="no torch: make check-adaptors has it")
found = importlib.util.find_spec("verl")
if found is None:
    pytest.skip("no verl: make check-adaptors tests with it", allow_module_level=True)

import relive


class _Names(type):
    """A class that has every attribute, and decorates without effect."""

    def __getattr__(cls, name):
        return cls

    def __call__(cls, *args, **kwargs):
        return (lambda decorated: decorated) if cls is _Anything else super().__call__(*args, **kwargs)


class _Anything(metaclass=_Names):
    pass


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


@pytest.fixture(scope="module")
def base():
    folder = Path(found.submodule_search_locations[0])
    names = ("ray verl verl.single_controller verl.single_controller.base verl.single_controller.base.decorator "
             "verl.single_controller.ray verl.utils verl.utils.distributed verl.utils.import_utils "
             "verl.utils.ray_utils verl.workers verl.workers.config verl.workers.rollout "
             "verl.workers.rollout.utils verl.checkpoint_engine").split()
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update({name: _Module(name) for name in names})
    spec = importlib.util.spec_from_file_location("verl.checkpoint_engine.base",
                                                  folder / "checkpoint_engine" / "base.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name, old in before.items():
        sys.modules.pop(name) if old is None else sys.modules.update({name: old})


@pytest.fixture
def make(base, tmp_path):
    import relive.adaptors.verl  # registers
    made = []

    def make(is_master=False, **options):
        options = {"uri": "embed:", **options}
        made.append(base.CheckpointEngineRegistry.new("relive", bucket_size=1 << 20, is_master=is_master,
                                                      **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def pair(make):
    """A trainer and a rollout on one store."""
    trainer, rollout = make(is_master=True), make(timeout=5)
    rollout._store.close()
    rollout._store = trainer._store
    return trainer, rollout


def tensors(step):
    torch.manual_seed(step)
    yield "embed", torch.randn(50, 8)
    buffer = torch.randn(9).to(torch.bfloat16)  # a bucket whose memory is used again
    yield "norm", buffer
    buffer.fill_(float("nan"))


async def collect(weights):
    return {name: tensor async for name, tensor in weights}


def expect(got, step):
    torch.manual_seed(step)
    assert list(got) == ["embed", "norm"]
    assert torch.equal(got["embed"], torch.randn(50, 8))
    assert torch.equal(got["norm"], torch.randn(9).to(torch.bfloat16))


def test_steps(pair, base):
    trainer, rollout = pair
    assert isinstance(trainer, base.CheckpointEngineWithCache)
    actor, rollouts = trainer.build_topology(2, 3, [trainer.prepare()] * 5)
    assert [len(ranks) for ranks in (*actor.values(), *rollouts.values())] == [2, 2, 3, 3]
    trainer.init_process_group(rank=actor["rank"][0], world_size=5)
    for step in (0, 1, 4):
        asyncio.run(trainer.send_weights(tensors(step), global_steps=step))
        expect(asyncio.run(collect(rollout.receive_weights(global_steps=step))), step)
        expect(asyncio.run(collect(rollout.get_weights())), step)
    trainer.finalize()
    asyncio.run(trainer.send_weights(tensors(7)))
    expect(asyncio.run(collect(rollout.receive_weights())), 7)


def test_a_rollout_waits(pair):
    trainer, rollout = pair

    async def main():
        waits = asyncio.create_task(collect(rollout.receive_weights(global_steps=3)))
        await trainer.send_weights(tensors(2), global_steps=2)
        await trainer.send_weights(tensors(3), global_steps=3)
        expect(await waits, 3)

    asyncio.run(main())


def test_what_is_not_there(pair):
    trainer, rollout = pair
    rollout._timeout = 0.1
    with pytest.raises(relive.NotFound):
        asyncio.run(collect(rollout.get_weights()))
    with pytest.raises(relive.Timeout, match="step 0"):
        asyncio.run(collect(rollout.receive_weights(global_steps=0)))
    asyncio.run(trainer.send_weights(tensors(0), global_steps=0))
    with pytest.raises(relive.Timeout, match="step 1"):
        asyncio.run(collect(rollout.receive_weights(global_steps=1)))


def test_other_ranks_only_take_part(make):
    other = make()
    taken = []
    asyncio.run(other.send_weights((taken.append(name) or (name, tensor) for name, tensor in tensors(1)), 1))
    assert taken == ["embed", "norm"]
    assert other._store.kvs() == []
