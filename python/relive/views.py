"""Views, which define the items of a table and how they are drawn; rate limiters."""

from __future__ import annotations

import dataclasses
import numbers

from . import errors
from ._integer import unsigned
from ._options import known

SELECTORS = ("prioritized", "uniform", "fifo", "lifo")


@dataclasses.dataclass(frozen=True)
class RateLimiter:
    """Limits the ratio of samples to inserts of a view. Calls that it does not admit block until it
    does, or until their timeout.

    Let ``inserts`` and ``samples`` be the numbers of items since the table was created:

    * a sample of n items is admitted when ``inserts >= min_size`` and
      ``inserts * samples_per_insert - samples - n >= min_diff``;
    * an insert of n items is admitted when
      ``(inserts + n) * samples_per_insert - samples <= max_diff``;
    * with ``samples_per_insert`` 0 only ``min_size`` counts. All fields 0, the default: samples are
      admitted from the first item on, and inserts always.

    The class methods make the usual limiters:

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
        """Admits samples once ``min_size`` items were inserted, and inserts always."""
        return cls(min_size)

    @classmethod
    def sample_to_insert(cls, samples_per_insert: float, min_size: int,
                         error_buffer: float) -> RateLimiter:
        """Admits samples once ``min_size`` items were inserted. From then on it keeps
        ``inserts * samples_per_insert - samples`` within ``error_buffer`` of its value at that time:
        samples wait for inserts below, inserts wait for samples above."""
        middle = unsigned("min_size", min_size, bits=64) * samples_per_insert
        return cls(min_size, samples_per_insert, middle - error_buffer, middle + error_buffer)

    @classmethod
    def queue(cls, size: int) -> RateLimiter:
        """Limits a queue: samples wait while it is empty, inserts while ``size`` items in it were not
        sampled. For views with ``selector="fifo"`` and ``max_times_sampled=1``."""
        return cls(1, 1.0, max_diff=float(unsigned("size", size, bits=64)))

    @classmethod
    def stack(cls, size: int) -> RateLimiter:
        """As :meth:`queue`, for views with ``selector="lifo"`` and ``max_times_sampled=1``."""
        return cls.queue(size)


@dataclasses.dataclass(frozen=True)
class View:
    """Says what one item of a batch is, and how items are drawn. An item is a window on the steps of a
    table. All views of a table share its rows.

    * ``stack``: number of consecutive observations in an item, the newest last. At the start of an
      episode the first observation fills the missing ones.
    * ``n_step``: the longest n-step return that a sampler may ask for.
    * ``selector``: ``"prioritized"``, ``"uniform"``, ``"fifo"`` (oldest first) or ``"lifo"`` (newest
      first).
    * ``period``: 1 = an item for each step. Above 1: sequences of ``stack`` steps that begin at every
      period-th step of an episode, and one that ends with its last: see :mod:`relive.sequence`.
    * ``max_times_sampled``: an item is retired after this many draws; 0 = no limit.
    * ``max_staleness``: items whose policy_version is further behind the newest one of the table are
      not drawn; 0 = no limit.
    * ``alpha``: priority exponent, above 0 and at most 8: the priority of an item is
      (\\|TD error\\| + eps)^alpha. Only ``"prioritized"`` views use it.
    * ``eps``: added to \\|TD error\\|, above 0, so that no priority is 0.
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
            if not isinstance(getattr(self, name), numbers.Real) or not getattr(self, name) > 0:
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


for _kind in (View, RateLimiter):
    setattr(_kind, "__init__", known(_kind.__name__)(_kind.__init__))
