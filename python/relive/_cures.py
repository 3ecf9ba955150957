"""Replacement lines: what to write instead of the line that raised an error.

They are added when an error is shown, so that raising costs nothing. Names in them are those of the
documentation: ``store``, ``table``, ``writer``, ``batch``, ``signature``, ``dataset``; ``obs``, ``action``, ``reward``.
"""

import difflib
import re

_CREATE = "table = store.create_table(name, signature, capacity=1_000_000%s)"
_APPEND = "writer.append(obs=obs, action=action, reward=reward%s)"
_SIGNATURE = 'signature = {"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}'
_UPDATE = "table.update_priorities(batch.key, td_error=td_error)"
_ENDS = ", terminated=terminated, truncated=truncated"

# Arguments that are wrong by themselves.
_ARGUMENTS = {
    **{name: _CREATE % ", %s=%s" % (name, value) for name, value in dict(
        views="relive.View(n_step=3)", rate_limiter="relive.RateLimiter.of_min_size(1_000)", max_writers=8, shards=1,
        block=0, row_crc=None).items()},
    "capacity": _CREATE % "", "signature": _SIGNATURE,
    **{name: "relive.View(%s=%s)" % (name, value) for name, value in dict(
        stack=4, n_step=3, selector='"uniform"', period=1, max_times_sampled=1, max_staleness=10, alpha=0.6,
        eps=1e-6).items()},
    **{name: "relive.RateLimiter(min_size=1_000%s)" % more for name, more in (
        ("min_size", ""), ("samples_per_insert", ", samples_per_insert=4.0"),
        ("min_diff", ", samples_per_insert=4.0, min_diff=-100, max_diff=8_000"),
        ("max_diff", ", samples_per_insert=4.0, min_diff=-100, max_diff=8_000"))},
    "size": "relive.RateLimiter.queue(1_000)",
    **{name: 'store = relive.open("embed:", %s=%s)' % (name, value) for name, value in dict(
        pages='"auto"', pool_bytes="1 << 30", stall_timeout=60.0, token="None", read_only=False).items()},
    "uri": 'store = relive.open("embed:")',
    "num_envs": "writer = table.writer(num_envs=1)",
    "autoreset": 'writer = table.writer(num_envs=1, autoreset="next_step")',
    "check_values": "writer = table.writer(check_values=False)",
    **{name: "sampler = table.sampler(256, %s=%s)" % (name, value) for name, value in dict(
        beta=0.4, gamma=0.99, layout='"window"', prefetch=2, batches=None, seed=0,
        columns='["obs"]', view=0, pin_memory=False).items()},
    "batch_size": "sampler = table.sampler(batch_size=256)",
}

# What other libraries call an argument.
_SYNONYMS = {"max_size": "capacity", "size": "capacity", "buffer_size": "capacity", "maxlen": "capacity",
             "n_envs": "num_envs", "envs": "num_envs", "schema": "signature", "columns": "signature",
             "limiter": "rate_limiter", "n_steps": "n_step", "priority_exponent": "alpha", "frame_stack": "stack",
             "max_in_flight": "prefetch", "num_workers": "prefetch", "n": "batch_size"}
_OF_VIEWS = ("alpha", "n_step", "stack", "selector", "period", "eps", "max_times_sampled", "max_staleness")

# What an error says -> the line. \1 and so on are groups.
_TEXTS = [(re.compile(text, re.DOTALL), line) for text, line in (
    (r"signature: column (\w+): shape .*at most 6", r'signature = {"\1": ((64,), "float32")}'),
    (r"signature: column (terminated|truncated): ", _APPEND % _ENDS),
    (r"create_table: column \w+ is stored as it is", _APPEND % _ENDS),
    (r"signature: column (\w+): batches", r'signature = {"\1_": "float32"}'),
    (r"signature: column (\w+): (?:dtype|shape) ", r'signature = {"\1": ((4,), "float32")}'),
    (r"signature: column (\w+): role ", r'signature = [relive.Column("\1", (4,), "float32", "obs")]'),
    (r"^signature: |opts.n_columns 0", _SIGNATURE),
    (r"columns\[\d+\] (\w+): a reward is a scalar", r'signature = {"\1": "float32"}'),
    (r'columns\[\d+\].name ".*": want', 'signature = {"obs__image": "float32"}'),
    (r"^scan: ", 'batches = table.scan(["obs"], batch=256, timeout=5.0)'),
    (r"^gather: ", "batch = table.gather(batch.key)"),
    (r"^table\[.*want one key", "item = table[batch.key[0]]"),
    (r"^name .*want a string|^table name ", (_CREATE % "").replace("name", '"replay-2"')),
    (r"create_table: \d+ columns and \d+ views", _CREATE % ", views=relive.View(n_step=3)"),
    (r"need at least (\d+) steps in a shard", (_CREATE % "").replace("1_000_000", r"\1")),
    (r"capacity \d+: not representable", _CREATE % ""),
    (r"block \d+: must be", _CREATE % ", block=0"),
    (r"table (\S+) exists, and differs", r'table = store.table("\1")'),
    (r"no table \S+ in this store", "store.tables()"),
    (r"no store (\S+) on this host", r'subprocess.run(["relive", "up", "--store", "\1"])'),
    (r"^open pool (?!directory)", 'store = relive.open("embed:replay.pool", pool_bytes=1 << 26)'),
    (r"no token: set RELIVE_TOKEN", 'store = relive.open(uri, token=token)'),
    (r"opts.streams (\d+): table (\S+) was created", _CREATE % r", max_writers=\1"),
    (r"the table takes \d+ \(max_writers\)", "writer.close()"),
    (r"(\w+): shape .* open table.writer\(num_envs=(\d+)\)", r"writer = table.writer(num_envs=\2)"),
    (r"^(keys|td_error|priorities): shape \(\d+, 1\), want", r"\1 = \1.reshape(-1)"),
    (r"^keys: |^(?:keys|priorities)\[\d+\] \S+: |^(?:td_error|priorities): shape|give one of td_error and", _UPDATE),
    (r"view 0 is not prioritized", _CREATE % ", views=relive.View(alpha=0.6)"),
    (r"no column or option '(?:done|dones|terminal|terminals|timeouts)'", _APPEND % _ENDS),
    (r"no column or option 'info'", "writer.append(obs=obs, action=action, reward=reward, infos=infos)"),
    (r"no column or option 'next_obs(?:ervation)?'", _APPEND % ", final_obs=next_obs"),
    (r"no column or option '(?:observations|next_observations|actions)'", "table.extend(dataset)"),
    (r"steps->td_error\[", _APPEND % ", td_error=1.0"),
    (r"(?:^|: )(terminated|truncated|policy_version)\W", r"writer.append(obs=obs, action=action, "
     r"reward=reward, \1=\1)"),
    (r"final_obs.* autoreset is|final observations?, but|final observation is given",
     'writer = table.writer(num_envs=1, autoreset="same_step")'),
    (r"final_(\w+)\[\d+\] is None|ended without a final", 'writer = table.writer(num_envs=1, autoreset="next_step")'),
    (r"infos: want the dict", "writer.append(obs=obs, action=action, reward=reward, infos=infos)"),
    (r"^extend: column|extend takes final|extend does not",
     "writer.extend(obs=[obs] * 5, action=[action] * 5, reward=[reward] * 5)"),
    (r"end_episode takes only", "writer.end_episode(obs=obs)"),
    (r"^env \S+: want the index", "writer.end_episode(env=0)"),
    (r"^env |append: env is", _APPEND % ""),
    (r"^(\w+): shape \(1, .*\), want", r"\1 = \1[0]"),
    (r"^(\w+): shape (\(.*?\)), want", r'signature = {"\1": (\2, "float32")}'),
    (r"^(\w+): .* do not fit (\w+)$", r'\1 = np.asarray(\1).astype("\2")'),
    (r"^(\w+): numpy makes no array", r'\1 = np.asarray(\1, dtype="float32")'),
    (r"column (\w+).* is not a finite reward", r"\1 = np.nan_to_num(\1)"),
    (r"does not fit \w+; a writer", "writer = table.writer(check_values=False)"),
    (r"no column or option|column \w+ is missing", _APPEND % ""),
    (r"opts.columns\[\d+\]: table \S+ has no column", "table.columns"),
    (r"this batch was released", "batch = table.sample(256).copy()"),
    (r"this sampler is closed", "sampler = table.sampler(256)"),
    (r"this store, table, writer or sampler is closed", "with relive.open(uri) as store: ..."),
    (r"^\S+ was dropped$", "store.tables(), store.kvs()"),
    (r"^(?:this|the) (?:store|handle) .*before fork\(\)|memory of the parent", "store = relive.open(uri)"),
    (r"pickle: a writer", "text = pickle.dumps(table.name)"),
    (r"pickle: store", "store = relive.open(uri)"),
    (r"opts.n_step (\d+): the sampler", _CREATE % r", views=relive.View(n_step=\1)"),
    (r"opts.view \d+: table", "batch = table.sample(256, view=0)"),
    (r"opts.batch_size \d+: at most", "sampler = table.sampler(batch_size=256)"),
    (r"n (\d+): want 1..\d+ \(opts.batch_size\)", r"sampler = table.sampler(batch_size=\1)"),
    (r"batch_size=None", "loader = torch.utils.data.DataLoader(table.dataset(256), batch_size=None)"),
    (r"create_table: no option '(?:%s)'" % "|".join(_OF_VIEWS), _CREATE % ", views=relive.View(n_step=3)"),
    (r"sequence.of: |^column \w+: leave it out: seq", "signature = relive.sequence.signature(signature)"),
    (r"^sampler: weights ", 'sampler = table.sampler(256, weights="batch")'),
    (r"^writer: timeout ", "writer = table.writer(timeout=5.0)"),
    (r"^open: timeout ", 'store = relive.open("embed:", timeout=5.0)'),
    (r"torch has no CUDA|^dlopen\(libcuda", "sampler = table.sampler(256)"),
    (r"^dataset: |^extend: the dataset", 'dataset = {"observations": [obs], "actions": [action], "rewards": [reward]}'),
    (r"^opts.rank \d+: world_size", "sampler = table.sampler(256, rank=0, world_size=1)"),
    (r"sampler: device=|^device .*want \"cuda\"", "sampler = table.sampler(256, device=None)"),
)]

_FIRST = re.compile(r"(?:opts\.|view: |views\[\d+\]\.?(?:limiter: limiter )?:? ?|sampler: |sample: |open: |writer: "
                    r"|rate limiter: |create_table: )?(%s)\b(?![:[])" % "|".join(sorted(_ARGUMENTS, key=len, reverse=True)))


def _line(text, of_arguments):
    for pattern, line in _TEXTS:
        found = pattern.search(text)
        if found:
            return re.sub(r"\\(\d)", lambda group: found.group(int(group[1])), line)
    found = of_arguments and _FIRST.match(text)
    return found and _ARGUMENTS[found[1]]


def cured(text: str, of_arguments: bool = False) -> str:
    """Returns a message with the line that should be written instead, if it is known. of_arguments: it may begin with
    the name of an argument."""
    line = _line(text, of_arguments)
    return "%s\n  write: %s" % (text, line) if line else text


def unknown_option(call: str, option: str, options: "list[str]") -> str:
    """Returns the message for an option that a call does not have."""
    meant = _SYNONYMS.get(option)
    near = [meant] if meant in options else difflib.get_close_matches(option, options, 1)
    text = "%s: no option %r; it has %s" % (call, option, ", ".join(options))
    line = _line(text, False) or (_ARGUMENTS.get(near[0]) if near else None)
    return "%s\n  write: %s" % (text, line) if line else text
