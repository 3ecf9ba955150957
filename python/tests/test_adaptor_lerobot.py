"""LeRobot's own replay buffer and relive.adaptors.lerobot give the same transitions."""

import numpy as np
import pytest

import relive

torch = pytest.importorskip("torch", reason="no torch: make check-adaptors has LeRobot")
pytest.importorskip("lerobot", reason="no LeRobot: make check-adaptors compares with it")

from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.rl.buffer import ReplayBuffer, random_shift

from relive.adaptors.lerobot import ReliveReplayBuffer

CAMERAS = ("observation.images.front", "observation.images.wrist")
PLACE = "observation.state"
KEYS = (*CAMERAS, PLACE)


@pytest.fixture
def make_ours():
    made = []

    def make(capacity=1000, **options):
        made.append(ReliveReplayBuffer(capacity, "cpu", KEYS, **options))
        return made[-1]

    yield make
    for buffer in made:
        buffer.close()


def make_theirs(capacity=1000, **options):
    return ReplayBuffer(capacity, "cpu", KEYS, image_augmentation_function=random_shift, **options)


def image(number, camera, size=12):
    """An image whose pixels differ, made of a number."""
    pixels = np.random.default_rng([number, camera]).integers(0, 256, (1, 3, size, size))
    return torch.from_numpy(pixels.astype(np.float32)) / 255


def state(number):
    return {**{key: image(number, camera) for camera, key in enumerate(CAMERAS)},
            PLACE: torch.tensor([[number, -number, 0.5]], dtype=torch.float32)}


def play(buffers, steps, first=0, gap=None):
    """The same transitions into each buffer. Episodes end in one of two ways; at step ``gap`` the
    environment is reset without an end."""
    number = first
    for step in range(steps):
        if step == gap:
            number += 500
        done, truncated = step % 7 == 6, step % 11 == 10
        for buffer in buffers:
            buffer.add(state(number), torch.tensor([[number / 8, 1.0]]), number / 4, state(number + 1), done,
                       truncated, {"penalty": torch.tensor([float(number)]), "grip": number % 3})
        number += 100 if done or truncated else 1


def transitions(buffer, rounds=30):
    """Samples until all is drawn: {step number: its other values}."""
    found = {}
    for _ in range(rounds):
        batch = buffer.sample(64)
        for i, number in enumerate(batch["state"][PLACE][:, 0].tolist()):
            found[number] = [batch[name][i].numpy() for name in ("action", "reward", "done", "truncated")]
            found[number] += [batch["complementary_info"][name][i].numpy() for name in ("penalty", "grip")]
            found[number] += [batch[side][key][i].numpy() for side in ("state", "next_state") for key in KEYS]
    return found


@pytest.mark.parametrize("gap", [None, 40])
def test_sample__gives_the_same_transitions(make_ours, gap):
    ours, theirs = make_ours(use_drq=False), make_theirs(use_drq=False)
    play([ours, theirs], 100, gap=gap)
    drawn, want = transitions(ours), transitions(theirs)
    assert len(drawn) == len(ours) == ours.size
    assert 99 <= len(drawn) <= len(want) == 100  # the last one waits for its next state
    for number, values in drawn.items():
        for value, other in zip(values, want[number]):
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("use_drq", [False, True])
def test_sample__types_are_as_theirs(make_ours, use_drq):
    ours, theirs = make_ours(use_drq=use_drq), make_theirs(use_drq=use_drq)
    play([ours, theirs], 30)
    mine, other = ours.sample(16), theirs.sample(16)
    assert mine.keys() == other.keys()
    for name, want in other.items():
        for key in want if isinstance(want, dict) else [None]:
            a, b = (mine[name], want) if key is None else (mine[name][key], want[key])
            assert (name, key, a.shape, a.dtype) == (name, key, b.shape, b.dtype)


def test_sample__moves_each_image_by_drq(make_ours):
    ours = make_ours()
    play([ours], 40)
    seen = set()
    for _ in range(12):
        batch = ours.sample(32)
        for side, after in (("state", 0), ("next_state", 1)):
            for i, number in enumerate(batch["state"][PLACE][:, 0].int().tolist()):
                for camera, key in enumerate(CAMERAS):
                    whole = torch.nn.functional.pad(image(number + after, camera), (4, 4, 4, 4), mode="replicate")[0]
                    seen.add(next((y, x) for y in range(9) for x in range(9) if torch.equal(
                        whole[:, y:y + 12, x:x + 12], batch[side][key][i])))
    assert len(seen) > 75  # of 81, in 1536 images


def test_sample__the_users_augmentation_gets_all_images_at_once(make_ours):
    shapes = []

    def halve(images):
        shapes.append(tuple(images.shape))
        return images / 2

    ours = make_ours(image_augmentation_function=halve)
    play([ours], 20)
    batch = ours.sample(8)
    assert shapes == [(32, 3, 12, 12)]
    for i, number in enumerate(batch["state"][PLACE][:, 0].int().tolist()):
        assert torch.equal(batch["state"][CAMERAS[1]][i], image(number, 1)[0] / 2)
        assert torch.equal(batch["next_state"][CAMERAS[0]][i], image(number + 1, 0)[0] / 2)


def test_sample__frames_as_stored(make_ours):
    ours = make_ours(use_drq=False, frames="uint8")
    play([ours], 20)
    batch = ours.sample(8)
    for i, number in enumerate(batch["state"][PLACE][:, 0].int().tolist()):
        frame = batch["state"][CAMERAS[0]][i]
        assert frame.dtype == torch.uint8 and torch.equal(frame.float() / 255, image(number, 0)[0])


def test_sample__tensors_stay_as_they_are(make_ours):
    ours = make_ours(use_drq=False)
    play([ours], 50)
    batches = [ours.sample(16) for _ in range(4)]
    copies = [{key: tensor.clone() for key, tensor in batch["state"].items()} for batch in batches]
    del batches[0]
    for _ in range(6):
        ours.sample(16)
    for batch, copy in zip(batches, copies[1:]):
        for key in KEYS:
            assert torch.equal(batch["state"][key], copy[key])


def test_frames__are_stored_once_as_bytes(make_ours):
    ours = make_ours(5000)
    play([ours], 3)
    info = ours.table.info()
    theirs = 4 * (4 * 3 * 12 * 12 + 2 * 3 + 2 + 1 + 2) + 2  # states twice, action, reward, infos, flags
    assert (info.rows_bytes + info.tree_bytes) / info.slots <= theirs / 6


def test_frames__of_bytes_and_floats_beyond_one(make_ours):
    ours, theirs = (make(use_drq=False) for make in (make_ours, make_theirs))
    raw = make_ours(use_drq=False, quantize=False)
    wide = {**state(1), CAMERAS[0]: image(1, 0) * 3 - 1}
    with pytest.raises(ValueError, match="quantize"):
        ours.add(wide, torch.zeros(1, 2), 0.0, wide, True, False)
    raw.add(wide, torch.zeros(1, 2), 0.0, wide, True, False)
    assert torch.equal(raw.sample(1)["state"][CAMERAS[0]], wide[CAMERAS[0]])
    ours = make_ours(use_drq=False)
    bytes_ = {key: (value * 255).round().to(torch.uint8) for key, value in state(2).items()}
    for buffer in (ours, theirs):
        buffer.add(bytes_, torch.zeros(1, 2), 0.0, bytes_, True, False)
    for key in CAMERAS:
        assert torch.equal(ours.sample(1)["next_state"][key], theirs.sample(1)["next_state"][key])


def test_sample__of_nothing(make_ours):
    ours = make_ours(timeout=0.05)
    with pytest.raises(RuntimeError, match="empty"):
        ours.sample(1)
    play([ours], 1)
    with pytest.raises(relive.Timeout, match="next"):
        ours.sample(1)
    with pytest.raises(ValueError, match="frames"):
        make_ours(frames="float16")


@pytest.mark.parametrize("async_prefetch", [False, True])
def test_iterator__has_no_end(make_ours, async_prefetch):
    ours = make_ours(use_drq=False)
    play([ours], 30)
    batches = ours.get_iterator(8, async_prefetch=async_prefetch)
    assert [len(next(batches)["reward"]) for _ in range(9)] == [8] * 9
    batches.close()


def test_buffer__of_the_same_store_and_name_is_shared(make_ours):
    first = make_ours(use_drq=False)
    play([first], 20)
    second = make_ours(use_drq=False, store=first.store)
    assert second.initialized and len(second) == len(first)
    assert transitions(second).keys() == transitions(first).keys()


def test_from_lerobot_dataset__gives_what_theirs_gives(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    theirs = make_theirs(use_drq=False)
    play([theirs], 30)
    dataset = theirs.to_lerobot_dataset("relive/test", fps=10, root=tmp_path / "dataset")
    assert isinstance(dataset, LeRobotDataset)
    arguments = dict(device="cpu", state_keys=KEYS, use_drq=False)
    want = transitions(ReplayBuffer.from_lerobot_dataset(dataset, **arguments))
    ours = ReliveReplayBuffer.from_lerobot_dataset(dataset, **arguments)
    drawn = transitions(ours)
    ours.close()
    assert 29 <= len(drawn) <= len(want) == 30
    for number, values in drawn.items():
        for value, other in zip(values, want[number]):
            np.testing.assert_array_equal(value, other)
    with pytest.raises(ValueError, match="state_keys"):
        ReliveReplayBuffer.from_lerobot_dataset(dataset, "cpu")


def test_to_lerobot_dataset__gives_what_theirs_gives(make_ours, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ours, theirs = make_ours(use_drq=False), make_theirs(use_drq=False)
    play([ours, theirs], 84)  # the last transition ends an episode, so that all can be drawn
    with pytest.raises(ValueError, match="empty"):
        make_ours().to_lerobot_dataset("relive/none")
    got, want = (buffer.to_lerobot_dataset("relive/%d" % i, fps=10, root=tmp_path / str(i))
                 for i, buffer in enumerate((ours, theirs)))
    assert len(got) == len(want) == 84 and got.num_episodes == want.num_episodes
    for i in range(84):
        for key, value in want[i].items():
            np.testing.assert_array_equal(got[i][key], value)
