"""Views, which define the items of a table and how they are drawn; rate limiters."""

from __future__ import annotations

import dataclasses

from . import _core, errors
from ._integer import unsigned

SELECTORS = ("prioritized", "uniform", "fifo", "lifo")


@dataclasses.dataclass(frozen=True)
class RateLimiter:
    """Limits the ratio of samples to inserts of a view.

    ``inserts`` and ``samples`` count items since the table was created. A sample of n items is admitted
    when ``inserts >= min_size`` and ``inserts * samples_per_insert - samples - n >= min_diff``. An insert
    of n items is admitted when ``(inserts + n) * samples_per_insert - samples <= max_diff``. All
    zero: samples are admitted from the first item on, and inserts always. Calls that are not admitted
    wait until they are, or until their timeout.

    >>> RateLimiter.of_min_size(1000).min_size
    1000
    """

    min_size: int = 0
    samples_per_insert: float = 0.0
    min_diff: float = 0.0
    max_diff: float = 0.0

    def __post_init__(self):
        unsigned("rate limiter: min_size", self.min_size, bits=64)

    @classmethod
    def of_min_size(cls, min_size: int) -> RateLimiter:
        """Admits samples once ``min_size`` items were inserted; no other limit."""
        return cls(*_core.limiter_min_size(unsigned("min_size", min_size, bits=64)))

    @classmethod
    def sample_to_insert(cls, samples_per_insert: float, min_size: int,
                         error_buffer: float) -> RateLimiter:
        """Keeps samples / inserts at ``samples_per_insert``, within ``error_buffer`` samples on either
        side, once ``min_size`` items were inserted."""
        min_size = unsigned("min_size", min_size, bits=64)
        return cls(*_core.limiter_sample_to_insert(samples_per_insert, min_size, error_buffer))

    @classmethod
    def queue(cls, size: int) -> RateLimiter:
        """A queue: inserts wait while ``size`` items are unsampled. For fifo views with
        max_times_sampled=1."""
        return cls(*_core.limiter_queue(unsigned("size", size, bits=64)))

    @classmethod
    def stack(cls, size: int) -> RateLimiter:
        """As :meth:`queue`, for lifo views."""
        return cls(*_core.limiter_stack(unsigned("size", size, bits=64)))


@dataclasses.dataclass(frozen=True)
class View:
    """Defines items as windows on the steps of a table. Views of one table share its rows.

    * ``stack``: observations in an item, padded with the first one at the start of an episode.
    * ``n_step``: the longest n-step return that a sampler may ask for.
    * ``selector``: ``"prioritized"``, ``"uniform"``, ``"fifo"`` (oldest first) or ``"lifo"`` (newest
      first).
    * ``period``: 1 = an item for each step. Above 1: sequences of ``stack`` steps that begin at every
      period-th step of an episode, and one that ends with its last: see :mod:`relive.sequence`.
    * ``max_times_sampled``: an item is retired after this many draws; 0 = no limit.
    * ``max_staleness``: items of policy versions further behind the newest are not drawn; 0 = no
      limit.
    * ``alpha``: priority exponent, above 0 and at most 8: priority is (\\|TD error\\| + eps)^alpha.
    * ``eps``: added to \\|TD error\\|, above 0.
    * ``rate_limiter``: a :class:`RateLimiter`; None = no limit, or the one given to create_table.
    """

    stack: int = 1
    n_step: int = 1
    selector: str = "prioritized"
    period: int = 1
    max_times_sampled: int = 0
    max_staleness: int = 0
    alpha: float = 0.6
    eps: float = 1e-6
    rate_limiter: RateLimiter | None = None

    def __post_init__(self):
        if self.selector not in SELECTORS:
            raise errors.InvalidArgument("view: selector %r, want one of %s"
                                         % (self.selector, ", ".join(SELECTORS)))
        for name, least in (("stack", 1), ("n_step", 1), ("period", 1), ("max_times_sampled", 0),
                            ("max_staleness", 0)):
            unsigned("view: " + name, getattr(self, name), least)
        for name in ("alpha", "eps"):
            if not getattr(self, name) > 0:
                raise errors.InvalidArgument(
                    "view: %s %r, want more than 0%s"
                    % (name, getattr(self, name),
                       "; selector='uniform' ignores priorities" if name == "alpha" else ""))

    def _core_tuple(self):
        limiter = self.rate_limiter or RateLimiter()
        return (self.stack, self.n_step, SELECTORS.index(self.selector), self.period,
                self.max_times_sampled, self.max_staleness, self.alpha, self.eps,
                limiter.min_size, limiter.samples_per_insert, limiter.min_diff, limiter.max_diff)

    @classmethod
    def _of_core(cls, values):
        stack, n_step, selector, period, times, staleness, alpha, eps = values[:8]
        return cls(stack, n_step, SELECTORS[selector], period, times, staleness, alpha, eps,
                   RateLimiter(*values[8:]))
