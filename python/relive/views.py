"""Views: which items exist and how they are drawn; rate limiters."""

from __future__ import annotations

import dataclasses

from . import _core, errors
from ._integer import unsigned

SELECTORS = ("prioritized", "uniform", "fifo", "lifo")


@dataclasses.dataclass(frozen=True)
class RateLimiter:
    """When samples and inserts may go on.

    A sample of n items is admitted when ``inserts * samples_per_insert - samples - n >= min_diff``,
    an insert of n when the same expression with it stays ``<= max_diff``, and nothing is sampled
    before ``min_size`` items were ever committed. All zero: from the first item on, and no other
    limit. Calls that are not admitted wait for their timeout.

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
        """Never before ``min_size`` items, otherwise free."""
        return cls(*_core.limiter_min_size(unsigned("min_size", min_size, bits=64)))

    @classmethod
    def sample_to_insert(cls, samples_per_insert: float, min_size: int,
                         error_buffer: float) -> RateLimiter:
        """Keeps samples / inserts at a ratio, within ``error_buffer`` samples to either side."""
        min_size = unsigned("min_size", min_size, bits=64)
        return cls(*_core.limiter_sample_to_insert(samples_per_insert, min_size, error_buffer))

    @classmethod
    def queue(cls, size: int) -> RateLimiter:
        """Every item once, at most ``size`` ahead: for views with max_times_sampled=1."""
        return cls(*_core.limiter_queue(unsigned("size", size, bits=64)))

    @classmethod
    def stack(cls, size: int) -> RateLimiter:
        """As queue, for the newest first."""
        return cls(*_core.limiter_stack(unsigned("size", size, bits=64)))


@dataclasses.dataclass(frozen=True)
class View:
    """Items are windows on the steps of a table; views of one table share its rows.

    * ``stack``: observations stacked, padded with the first at the start of an episode.
    * ``n_step``: the longest n-step return that a sampler may ask for.
    * ``selector``: ``"prioritized"``, ``"uniform"``, ``"fifo"`` or ``"lifo"``.
    * ``period``: 1 = an item for each step; more: windows of ``stack`` steps that begin with every
      period-th step of an episode, and one that ends with its last: see :mod:`relive.sequence`.
    * ``max_times_sampled``: 0 for no limit.
    * ``max_staleness``: policy versions behind the newest seen; 0 for no limit.
    * ``alpha``: priority exponent, above 0 and at most 8: priority is (\\|TD error\\| + eps)^alpha.
    * ``rate_limiter``: a :class:`RateLimiter`, or None for no limit.
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
