"""Reads recordings (docs/trace-format.md): enough of the format for the files of this tree."""

import dataclasses
import struct
import zlib

import numpy as np

_FIRST, _TERMINATED, _TRUNCATED, _FINAL = 1, 2, 4, 8
_COLUMN = struct.Struct("<32s8sBBB5x4I")
_CHUNK = struct.Struct("<4sHHIIII")


@dataclasses.dataclass
class Trace:
    """Rows of one environment, in order; a final row holds the observation after an episode."""

    columns: dict
    flags: np.ndarray
    priority: np.ndarray
    policy_version: np.ndarray

    @property
    def terminated(self):
        return self.flags & _TERMINATED != 0

    @property
    def truncated(self):
        return self.flags & _TRUNCATED != 0

    @property
    def final(self):
        return self.flags & _FINAL != 0

    def __len__(self):
        return len(self.flags)

    def __getitem__(self, rows):
        return Trace({name: column[rows] for name, column in self.columns.items()},
                     self.flags[rows], self.priority[rows], self.policy_version[rows])

    def __add__(self, other):
        """Splits rows into consecutive parts, each of which begins with an episode."""
        assert self.final[-1] and other.flags[0] & _FIRST
        columns = {name: np.concatenate([column, other.columns[name]])
                   for name, column in self.columns.items()}
        return Trace(columns, *(np.concatenate([getattr(part, name) for part in (self, other)])
                                for name in ("flags", "priority", "policy_version")))


def _unfilter(raw, dtype, shape, rows, how):
    if how & 4:
        raw = np.frombuffer(raw, np.uint8).reshape(-1, rows).T.tobytes()
    if how & 1:
        return np.bitwise_xor.accumulate(
            np.frombuffer(raw, np.uint8).reshape(rows, -1), axis=0).view(dtype).reshape(
                (rows, *shape))
    if how & 2:
        unsigned = np.dtype("u%d" % np.dtype(dtype).itemsize)
        words = np.frombuffer(raw, unsigned).reshape(rows, -1)
        return np.cumsum(words, axis=0, dtype=unsigned).view(dtype).reshape((rows, *shape))
    return np.frombuffer(raw, dtype).reshape((rows, *shape))


def read_trace(path, rows, skip=0):
    """`rows` rows of a recording, or as many as it has, after the first `skip`."""
    data = path.read_bytes()
    header_bytes, = struct.unpack_from("<I", data, 12)
    n_columns, = struct.unpack_from("<I", data, 48)
    columns = []
    for c in range(n_columns):
        name, dtype, role, how, ndim, *shape = _COLUMN.unpack_from(data, 320 + 64 * c)
        columns.append((name.rstrip(b"\0").decode(), dtype.rstrip(b"\0").decode(), role, how,
                        tuple(shape[:ndim])))
    parts = [[] for _ in columns]
    at, done, left_out = header_bytes, 0, 0
    while done < skip + rows and at < len(data):
        for part, (_, dtype, _, how, shape) in zip(parts, columns):
            _, _, _, n, _, deflated, _ = _CHUNK.unpack_from(data, at)
            at += _CHUNK.size
            if done + n > skip:
                raw = zlib.decompress(data[at:at + deflated])
                part.append(_unfilter(raw, dtype, shape, n, how))
            at += deflated
        done += n
        if done <= skip:
            left_out = done
    whole = [np.concatenate(part) for part in parts]
    special = {role: values for values, (_, _, role, _, _) in zip(whole, columns) if role}
    plain = {name: values for values, (name, _, role, _, _) in zip(whole, columns) if not role}
    return Trace(plain, special[1], special[2], special[3])[skip - left_out:skip - left_out + rows]
