"""Relive: a replay buffer for reinforcement learning that many processes share::

    import relive

    store = relive.open("embed:")              # or "shm:NAME", "relive://HOST:PORT"
    table = store.create_table("replay", relive.signature.of_env(envs), capacity=1_000_000,
                               views=[relive.View(n_step=3)])

    with table.writer(envs) as writer:         # the actor
        writer.append(obs=obs, action=action, reward=reward,
                      terminated=terminated, truncated=truncated)

    batch = table.sample(256, beta=0.4)        # the learner
    table.update_priorities(batch.key, td_error=td_error)

A store holds tables; a table holds steps, which writers append, and views, which say what samplers
draw. The only dependency is numpy. Calls that wait or copy release the interpreter lock, so other
threads run. ^C ends every wait for steps or batches.
"""

from . import _core, _programs, datasets, errors, info, sequence, signature, views
from ._core import Batch, Updated
from .batch import BatchCopy
from .datasets import from_d4rl, from_minari
from .errors import (AccessDenied, AlreadyExists, Busy, Closed, Disconnected, Empty, Error, Fenced,
                     Forked, InvalidArgument, NodeDown, NoMemory, NoSpace, NotFound, ProtocolError,
                     StaleKey, TableDropped, Timeout, Unsupported)
from .kv import Kv, VersionChanged
from .pool import Pool
from .sampler import Sampler
from .signature import Column
from .store import Store, open
from .table import Table
from .views import RateLimiter, View
from .weights import Generation, Shards, ShardStream, Stream, Weights
from .writer import Writer

__version__ = _core.build["version"]

__all__ = [
    "AccessDenied", "AlreadyExists", "Batch", "BatchCopy", "Busy", "Closed", "Column",
    "Disconnected", "Empty", "Error", "Fenced", "Forked", "Generation", "InvalidArgument", "Kv", "NoMemory", "NoSpace",
    "NodeDown", "NotFound", "Pool", "ProtocolError", "RateLimiter", "Sampler", "ShardStream", "Shards", "StaleKey", "Store", "Stream",
    "Table", "TableDropped", "Timeout", "Unsupported", "Updated", "VersionChanged", "View", "Weights", "Writer", "build_info",
    "datasets", "errors", "from_d4rl", "from_minari", "info", "open", "sequence", "signature", "views",
]


def build_info() -> dict[str, object]:
    """Returns what this build contains, as a dict:

    * ``version``: the release, a string;
    * ``remote``: True if ``shm:`` and ``relive://`` stores can be opened. A build has them if it found
      the headers of protobuf-c and OpenSSL;
    * ``libpmem``: True if libpmem flushes DAX devices where it is installed; else msync does;
    * ``programs``: a dict from the name of each program that was found to its path: ``relive``,
      ``relive-memnode`` and ``relive-metad``, in the wheel or on PATH.

    >>> sorted(build_info())
    ['libpmem', 'programs', 'remote', 'version']
    """
    found = {name: _programs.find(name) for name in _programs.NAMES}
    return {**_core.build, "programs": {name: path for name, path in found.items() if path}}
