"""_core.move_frames, which adaptors copy images of a batch by, does what numpy does in several steps."""

import numpy as np
import pytest

import relive
from relive import _core


def moved(frames, shifts):
    padded = np.pad(frames, [(0, 0)] * (frames.ndim - 2) + [(9, 9)] * 2, mode="edge")
    height, width = frames.shape[-2:]
    return np.stack([frame[..., 9 + y:9 + y + height, 9 + x:9 + x + width]
                     for frame, (y, x) in zip(padded, shifts)])


@pytest.mark.parametrize("shape", [(5, 3, 8, 8), (4, 7, 5), (2, 2, 1, 3, 1), (3, 1, 4, 4096)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_move_frames__is_numpys_pad_and_cut(shape, dtype):
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, shape, np.uint8)
    shifts = rng.integers(-9, 10, (shape[0], 2), np.int32)
    out, whole = np.empty(shape, dtype), np.empty(shape, dtype)
    _core.move_frames(frames, out, shifts, 255)
    _core.move_frames(frames, whole, None, 255)
    scale = np.float32(255) if dtype == "float32" else np.uint8(1)
    np.testing.assert_array_equal(out, moved(frames, shifts) / scale)
    np.testing.assert_array_equal(whole, frames / scale)


@pytest.mark.parametrize("frames,out,shifts,divisor", [
    (np.zeros((2, 4, 4), np.uint16), np.zeros((2, 4, 4), np.uint8), None, 1),
    (np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 3), np.uint8), None, 1),
    (np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4), np.float64), None, 1),
    (np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4), np.uint8), np.zeros((1, 2), np.int32), 1),
    (np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4), np.uint8), np.zeros((2, 2), np.int64), 1),
    (np.zeros((4, 4), np.uint8), np.zeros((4, 4), np.uint8), None, 1),
    (np.zeros((0, 4, 4), np.uint8), np.zeros((0, 4, 4), np.uint8), None, 1),
    (np.zeros((1, 1, 4097), np.uint8), np.zeros((1, 1, 4097), np.uint8), None, 1),
    (np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4), np.uint8), None, 0),
])
def test_move_frames__of_what_does_not_fit(frames, out, shifts, divisor):
    with pytest.raises(relive.InvalidArgument, match="move_frames"):
        _core.move_frames(frames, out, shifts, divisor)


def test_move_frames__of_what_is_not_contiguous_or_writable():
    frames = np.zeros((2, 4, 4), np.uint8)
    fixed = np.zeros((2, 4, 4), np.uint8)
    fixed.flags.writeable = False
    for arguments in ((frames[:, ::2], frames[:, :2], None, 1), (frames, fixed, None, 1)):
        with pytest.raises((BufferError, ValueError)):
            _core.move_frames(*arguments)
