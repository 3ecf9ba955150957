r"""Docstrings of the methods that the extension implements: {"Type.method": text}.

The extension takes them from here when it is imported. The first line is the signature, which ends
with ``--`` on a line of its own: :func:`inspect.signature` reads it.
"""

METHODS = {
    "Writer.append": r"""append($self, steps={}, /, **values)
--

Appends one step of the environment, or one step of each environment of a vector.

Give one value for each column of the signature, as keywords or in one dict; a keyword takes
precedence over the dict. ``append({"obs": obs, ...})`` is faster than ``append(**step)``. A value is
a number, a list, an array, or a tensor in host memory, of the column's shape; with a vector of E
environments it has the shape ``(E, *shape)``. Values are copied into the table: the caller may
change them after the call.

Values of another dtype are converted if numpy's same_kind rule allows it, and integers to any
integer dtype that holds them. A number that does not fit its column (300 in uint8, 1e300 in
float32), and a NaN or infinite reward, raises InvalidArgument, which names the column and the index;
a writer opened with ``check_values=False`` stores it. Further keywords are optional:

:param terminated: bool, or (E,) bool: the step ended its episode in a terminal state; default False.
:param truncated: bool, or (E,) bool: the step ended its episode early; default False.
:param final_<column>: one for each observation column, of its shape: the observation after the last
    action of an episode. It is read where an episode ends in this step; other entries may be None.
:param infos: the dict that the vector's ``step()`` returned. With mode ``"same_step"`` its
    ``final_obs`` is used; with another mode a ``final_obs`` in it raises InvalidArgument.
:param final: bool, or (E,) bool: True = this row is no step, but the observation after the last
    action of an episode. If you append such rows, give ``final`` with every call, so that an episode
    that ended waits for its final row.
:param td_error: float, or (E,) float: initial TD errors of either sign; default: new items get the
    largest priority of the view so far.
:param policy_version: integer, 0 to 2^32 - 1: version of the policy that acted; default 0.

The call blocks while the rate limiter or a full table admits no step, for at most the writer's
timeout. If it raises, no environment's step was appended, and the call can be repeated. Final
observations that cannot be appended at once do not raise: the writer keeps them and appends them
before the rows of the next call, which raises if that fails.

A step can be drawn when the rows of its window are in; at the end of an episode that is when the
episode's last row is in, whatever the view's n_step. That row is the final observation, if one is
given or the next row is one; else it is the row that terminates the episode. A truncated step
without a final observation cannot be drawn: ``stats()["truncated_lost"]`` counts such steps when the
next step is appended, and one UserWarning is issued.

:raises InvalidArgument: names the column or option.
:raises Timeout: the message says what the call waited for.
:raises Busy: another thread is in a call of this writer.
:raises Fenced, TableDropped, NodeDown, Forked, Closed:
""",
    "Writer.extend": r"""extend($self, steps={}, /, *, env=0, **values)
--

Appends n consecutive steps of one environment.

Values are given as for :meth:`append`, with a first dimension of n: ``(n, *shape)`` for columns, (n,)
for terminated, truncated, final and td_error. ``final_<column>`` and ``infos`` are not accepted:
append the observation after an episode's last action as a row with ``final=True``, or by
:meth:`end_episode`.

The call blocks as append does, and raises the same errors. If it raises, the first of the n steps
may have been appended: ``stats()["steps"]`` counts all rows that were, final observations included.

:param env: index of the environment, 0 to num_envs - 1.
""",
    "Writer.end_episode": r"""end_episode($self, observation={}, /, *, env=0, **values)
--

Ends the episode of one environment, so that its last steps can be drawn.

``observation``, or keywords, give the observation after the last action: all observation columns or
none, each of its column's shape. Without it the last step cannot be drawn, unless it terminated the
episode. The call blocks as :meth:`append` does, and raises the same errors.

:param env: index of the environment, 0 to num_envs - 1.
""",
    "Writer.stats": r"""stats($self, /)
--

Returns counters of this writer since it was opened, as a dict of int. It does not block.

Among them: ``calls``; ``steps``: rows appended, final observations included; ``items``;
``truncated_lost``: truncated steps that cannot be drawn; ``blocks_claimed``; ``limiter_waits``:
calls that waited for the rate limiter; ``limiter_wait_ns``: nanoseconds that they waited.
""",
    "Sampler.sample": r"""sample($self, /, n=None, beta=None, timeout=None, *, n_step=None, gamma=None)
--

Draws a batch now and returns it, a :class:`relive.Batch`. Prefetched batches are left for the
iterator; another ``n_step`` or ``gamma`` drops those that are being read over a network.

The call blocks until n items can be drawn and the rate limiter admits them. The batch occupies a
buffer of the sampler until the batch and all arrays made of it are freed.

:param n: number of items, 1 to batch_size; None = batch_size.
:param beta: importance exponent, 0 (all weights 1) to 8; None = the sampler's ``beta``.
:param timeout: seconds to wait; 0 = do not wait; None = until the store's stall_timeout has passed
    without progress; ``float("inf")`` = without limit.
:param n_step: steps of the return, 1 to the sampler's; None = the sampler's.
:param gamma: discount of the return, 0 to 1; None = the sampler's.
:raises Timeout: the message says what the call waited for.
:raises Empty: the timeout is 0 and no item can be drawn.
:raises Busy: all buffers of the sampler are held by batches.
:raises InvalidArgument: names the argument.
:raises TableDropped, NodeDown, Forked, Closed:
""",
    "Sampler.update_priorities": r"""\
update_priorities($self, /, keys, td_error=None, priorities=None, *, strict=False)
--

Sets the priorities of items. Give one of td_error and priorities. It does not wait for the rate
limiter.

:param keys: (n,) uint64, or int64 of the same bits: ``batch.key`` of any batch of this view, or a
    part of it.
:param td_error: (n,) float32, of either sign: the priority is (\|td_error\| + eps)^alpha.
:param priorities: (n,) float32, 0 or more: priorities as stored, after the exponent alpha.
:param strict: True = raise StaleKey if any key is stale, after the other keys were updated.
:returns: :class:`relive.Updated`, a tuple of three counts: ``updated`` items; ``stale`` keys, whose
    items were overwritten or retired, and which are ignored; ``clamped`` values, stored as the
    nearest limit of the view's range. A key given twice gets its last value and counts as one item.
:raises InvalidArgument: a value is NaN, infinite or (priorities) negative, a key is of another table,
    or the view has no priorities; nothing was changed.
:raises TableDropped, NodeDown, Forked, Closed:
""",
    "Sampler.flush": r"""flush($self, /)
--

Adds the items that this sampler drew and has not counted yet to the table's count of sampled items.

:raises TableDropped, NodeDown, Forked, Closed:
""",
    "Sampler.update_device": r"""update_device($self, keys, address, stream, n, /)
--

Sets the priorities of keys from n TD errors (float32) at an address of the device of the sampler's landing,
behind the work of a CUDA stream. :meth:`update_priorities` calls it for tensors of the device.
""",
    "Pool.cuda": r"""cuda($self, /)
--

Returns the number of its CUDA device; -1 = memory of the host.
""",
    "Pool.bind": r"""bind($self, kind, /)
--

Makes it the pool that torch's allocator asks, and returns the file which has that allocator.
""",
    "Landing.dlpack": r"""dlpack($self, array, code, bits, /)
--

Returns a DLPack capsule of what the device has in place of an array of the host.
""",
    "Landing.address": r"""address($self, array, /)
--

Returns the device's address of an array of a batch buffer's host side.
""",
    "Landing.use": r"""use($self, array, stream, /)
--

Work of a CUDA stream (its handle, an integer) uses the batch of this array, until the batch is released.
""",
    "Landing.fetch": r"""fetch($self, array, /)
--

Brings the bytes of a batch's array from the device to the host's side.
""",
    "Landing.info": r"""info($self, /)
--

Returns a dict: ``path`` of the last batch (``"pinned"``: page-locked memory, then one copy by the device; ``"gather"``:
large values are read by the device; ``"dmabuf"``, ``"peermem"``: they came by RDMA) and the ``reason`` why it is no better
one, ``name`` and ``device``, ``buffers`` and their ``bytes``, ``batches`` landed so far, ``copied_bytes``,
``gathered_bytes``, ``direct_bytes`` (by RDMA), ``graphs`` and ``graph_launches``, and ``waited`` seconds for copies.
""",
    "Sampler.stats": r"""stats($self, /)
--

Returns counters of this sampler since it was opened, as a dict of int. It does not block.

Among them: ``calls``; ``items``; ``updates``, ``stale_updates`` and ``clamped``: updated keys, stale
keys and clamped values of update_priorities; ``redraws``: items that were drawn anew, as the ones
drawn first were overwritten meanwhile; ``limiter_waits``: calls that
waited for the rate limiter; ``limiter_wait_ns``: nanoseconds that they waited; ``policy_version``: the
newest seen in steps; ``staleness``: how many versions the items were behind that, summed over all items;
``staleness_max``: of the oldest item of the last batch.
""",
    "Batch.release": r"""release($self, /)
--

Drops the batch's references to its arrays. The memory is reused when no other reference to one of
these arrays is left; arrays that you hold stay readable and unchanged. Afterwards the batch has no
arrays. A second call does nothing.
""",
    "Batch.copy": r"""copy($self, /)
--

Returns a :class:`relive.BatchCopy`: the same arrays, copied to memory of their own.
""",
}
