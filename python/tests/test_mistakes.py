"""Mistakes of users: each message names the argument, and has the line to write, which is run here."""

import gc
import os
import pickle
import re
import subprocess
import warnings

import numpy as np
import pytest

import relive

SIGNATURE = {"obs": ((4,), "float32"), "action": "int64", "reward": "float32"}

# category: lines of (what a user writes, what the message names). The last statement is the mistake.
CASES = {
    "signature": [
        ("table = store.create_table(name, {}, 4096)", "n_columns"),
        ("table = store.create_table(name, ['obs', 'action'], 4096)", "signature"),
        ("table = store.create_table(name, 'obs', 4096)", "signature"),
        ("table = store.create_table(name, [('obs', 'f4')], 4096)", "signature"),
        ("table = store.create_table(name, np.dtype('f4'), 4096)", "signature"),
        ("table = store.create_table(name, {'weight': 'f4'}, 4096)", "weight"),
        ("table = store.create_table(name, {'key': 'i8'}, 4096)", "key"),
        ("table = store.create_table(name, {'infos': '?'}, 4096)", "infos"),
        ("table = store.create_table(name, {'terminated': '?'}, 4096)", "terminated"),
        ("table = store.create_table(name, {'truncated': '?'}, 4096)", "truncated"),
        ("table = store.create_table(name, {**signature, 'done': '?'}, 4096)", "done"),
        ("table = store.create_table(name, {**signature, 'timeouts': '?'}, 4096)", "timeouts"),
        ("table = store.create_table(name, {'a b': 'f4'}, 4096)", "a b"),
        ("table = store.create_table(name, {'obs/image': 'f4'}, 4096)", "obs/image"),
        ("table = store.create_table(name, {'': 'f4'}, 4096)", 'name ""'),
        ("table = store.create_table(name, {'a' * 64: 'f4'}, 4096)", "aaaa"),
        ("column = relive.Column('obs', (4,), 'f4', 'observation')", "role 'observation'"),
        ("signature = relive.sequence.signature({'step': 'i8'})", "step"),
        ("batch = relive.sequence.of(table.sample(4))", "column step"),
        ("table.scan('obs')", "columns 'obs'"),
        ("table.scan(colums=['obs'])", "'colums'"),
        ("table.scan(batch=0)", "scan: batch 0"),
        ("table.scan(timeout=-1)", "scan: timeout -1"),
        ("table.to_numpy('obs')", "columns 'obs'"),
    ],
    "dtypes": [
        ("table = store.create_table(name, {'obs': 'complex64'}, 4096)", "complex64"),
        ("table = store.create_table(name, {'obs': object}, 4096)", "object"),
        ("table = store.create_table(name, {'obs': str}, 4096)", "str"),
        ("table = store.create_table(name, {'obs': None}, 4096)", "obs"),
        ("table = store.create_table(name, {'obs': 'f16'}, 4096)", "float128"),
        ("table = store.create_table(name, {'obs': np.dtype('M8[s]')}, 4096)", "datetime64"),
        ("table = store.create_table(name, {'reward': 'int64'}, 4096)", "reward"),
        ("writer.append(obs=obs, action=1.5, reward=reward)", "action"),
        ("writer.append(obs=obs, action=np.float64(1), reward=reward)", "action"),
        ("writer.append(obs=obs, action=10**30, reward=reward)", "action"),
        ("writer.append(obs=obs, action=action, reward='1')", "reward"),
        ("writer.append(obs=obs, action=action, reward=1e300)", "reward"),
        ("writer.append(obs=obs, action=action, reward=float('nan'))", "reward"),
        ("writer.append(obs=obs.astype('c8'), action=action, reward=reward)", "obs"),
        ("writer.append(obs=obs, action=action, reward=reward, terminated='yes')", "terminated"),
        ("writer.append(obs=obs, action=action, reward=reward, policy_version=1.5)", "policy_version"),
        ("writer.append(obs=obs, action=action, reward=reward, td_error='x')", "td_error"),
        ("writer.append(obs=obs, action=action, reward=reward, td_error=float('nan'))", "td_error"),
        ("table.update_priorities(batch.key.astype(float), td_error)", "keys"),
    ],
    "shapes": [
        ("table = store.create_table(name, {'obs': (4,)}, 4096)", "(4,)"),
        ("table = store.create_table(name, {'obs': ((4, None), 'f4')}, 4096)", "(4, None)"),
        ("table = store.create_table(name, {'obs': ((0,), 'f4')}, 4096)", "shape (0,)"),
        ("table = store.create_table(name, {'obs': ((-1,), 'f4')}, 4096)", "shape (-1,)"),
        ("table = store.create_table(name, {'obs': ((2.5,), 'f4')}, 4096)", "shape (2.5,)"),
        ("table = store.create_table(name, {'obs': ((1,) * 7, 'f4')}, 4096)", "at most 6 dimensions"),
        ("table = store.create_table(name, {'reward': ((2,), 'f4')}, 4096)", "reward"),
        ("writer.append(obs=obs[:3], action=action, reward=reward)", "obs: shape (3,), want (4,)"),
        ("writer.append(obs=[[1, 2], [3]], action=action, reward=reward)", "obs"),
        ("writer.append(obs=(obs, {}), action=action, reward=reward)", "obs"),
        ("writer.append(obs=obs, action=[action], reward=reward)", "action: shape (1,)"),
        ("writer.append(obs=obs, action=action, reward=reward, terminated=[True] * 2)", "terminated"),
        ("writer.extend(obs=[obs] * 5, action=[action] * 4, reward=[reward] * 5)", "action: shape (4,), want (5,)"),
        ("writer.extend(obs=obs, action=action, reward=reward)", "obs: shape"),
        ("table.update_priorities(batch.key, td_error[:1])", "td_error: shape (1,)"),
        ("table.update_priorities(batch, td_error)", "keys: shape ()"),
        ("table.gather(batch.key[0])", "keys of shape ()"),
        ("table.gather([])", "keys of shape (0,)"),
        ("table.gather(batch.key * 2)", "keys[0]"),
        ("table['obs']", "table['obs']"),
        ("table[batch.key]", "want one key"),
    ],
    "environments": [
        ("writer.append(obs=[obs] * 8, action=[action] * 8, reward=[reward] * 8)", "num_envs=8"),
        ("writer = table.writer(num_envs=17)", "max_writers"),
        ("writer = table.writer(num_envs=0)", "num_envs"),
        ("writer = table.writer(num_envs='8')", "num_envs"),
        ("writer = table.writer(1, autoreset='sometimes')", "autoreset"),
        ("writer = table.writer(n_envs=8)", "n_envs"),
        ("writer = table.writer(1, auto_reset='same_step')", "auto_reset"),
        ("writer = table.writer(timeout='5')", "timeout"),
        ("writer.append(obs=obs, action=action)", "column reward is missing"),
        ("writer.append(obs=obs, action=action, reward=None)", "column reward is missing"),
        ("writer.append(obs=obs, action=action, rewards=reward)", "rewards"),
        ("writer.append(obs=obs, action=action, reward=reward, done=True)", "done"),
        ("writer.append(obs=obs, action=action, reward=reward, info={})", "info"),
        ("writer.append(obs=obs, action=action, reward=reward, next_obs=obs)", "next_obs"),
        ("writer.append(obs=obs, action=action, reward=reward, infos=[1])", "infos"),
        ("writer.append(obs=obs, action=action, reward=reward, env=0)", "env"),
        ("writer.extend(obs=[obs], action=[action], reward=[reward], final_obs=[obs])", "final_obs"),
        ("writer.extend(observations=[obs], actions=[action])", "observations"),
        ("writer.append(obs=obs, action=action, reward=reward, terminated=True, infos={'final_obs': [obs]})",
         "autoreset"),
        ("writer.end_episode(env=3)", "env 3"),
        ("writer.end_episode(action=1)", "action"),
        ("vector.append(obs=[obs], action=[action], reward=[reward], final_obs=[obs], terminated=[True])",
         "autoreset"),
        ("same.append(obs=[obs], action=[action], reward=[reward], truncated=[True], final_obs=[None])",
         "final_obs[0]"),
    ],
    "tables": [
        ("table = store.create_table(name, signature, 0)", "capacity"),
        ("table = store.create_table(name, signature, -5)", "capacity"),
        ("table = store.create_table(name, signature, '1e6')", "capacity"),
        ("table = store.create_table(name, signature, 10)", "capacity"),
        ("table = store.create_table(name, signature, 10**15)", "capacity"),
        ("table = store.create_table(name, signature, max_size=4096)", "max_size"),
        ("table = store.create_table('my table', signature, 4096)", "my table"),
        ("table = store.create_table(5, signature, 4096)", "name 5"),
        ("table = store.create_table(name, signature, 4096, view=relive.View())", "view"),
        ("table = store.create_table(name, signature, 4096, n_step=3)", "n_step"),
        ("table = store.create_table(name, signature, 4096, views='uniform')", "views"),
        ("table = store.create_table(name, signature, 4096, views=relive.View)", "views"),
        ("table = store.create_table(name, signature, 4096, views={'n_step': 3})", "views"),
        ("table = store.create_table(name, signature, 4096, views=[relive.View()] * 9)", "views"),
        ("table = store.create_table(name, signature, 4096, views=relive.View(alpha=9))", "alpha"),
        ("table = store.create_table(name, signature, 4096, rate_limiter=1000)", "rate_limiter"),
        ("table = store.create_table(name, signature, 4096, views=relive.View(rate_limiter=5))", "rate_limiter"),
        ("table = store.create_table(name, signature, 4096, max_writers=2.5)", "max_writers"),
        ("table = store.create_table(name, signature, 4096, row_crc='yes')", "row_crc"),
        ("table = store.create_table(name, signature, 4096, block=3)", "block"),
        ("table = store.create_table('there', signature, 8192)", "capacity"),
        ("view = relive.View(n_step=0)", "n_step"),
        ("view = relive.View(selector='prioritised')", "selector"),
        ("view = relive.View(alpha='x')", "alpha"),
        ("view = relive.View(nstep=3)", "nstep"),
        ("limiter = relive.RateLimiter(min_size=1e3)", "min_size"),
        ("limiter = relive.RateLimiter.queue(-1)", "size"),
    ],
    "sampling": [
        ("batch = table.sample(65537)", "batch_size"),
        ("batch = table.sample(4, view=1)", "view"),
        ("batch = table.sample(4, n_step=3)", "n_step"),
        ("batch = table.sample(4, beta=9)", "beta"),
        ("batch = table.sample(4, gamma=2)", "gamma"),
        ("batch = table.sample(4, layout='windows')", "layout"),
        ("sampler = table.sampler(0)", "batch_size"),
        ("sampler = table.sampler(betta=0.4)", "betta"),
        ("sampler = table.sampler(columns='obs')", "columns"),
        ("sampler = table.sampler(columns=5)", "columns"),
        ("sampler = table.sampler(columns=['observation'])", "observation"),
        ("sampler = table.sampler(weights='max')", "weights"),
        ("sampler = table.sampler(prefetch=100)", "prefetch"),
        ("sampler = table.sampler(rank=2, world_size=2)", "rank"),
        ("sampler = table.sampler(seed='x')", "seed"),
        ("sampler = table.sampler(beta='0.4')", "beta"),
        ("batch = table.sampler(8).sample(16)", "n 16"),
        ("table.update_priorities(batch.key)", "td_error"),
        ("table.update_priorities(batch.key, float('nan') * td_error)", "priorities"),
        ("table.update_priorities(np.arange(4), td_error)", "keys"),
        ("uniform.update_priorities(uniform.sample(4).key, td_error)", "view 0"),
    ],
    "lifetimes": [
        ("writer.close(); writer.append(obs=obs, action=action, reward=reward)", "closed"),
        ("table.close(); table.sample(4)", "closed"),
        ("store.close(); table.sample(4)", "closed"),
        ("store.close(); store.create_table(name, signature, 4096)", "closed"),
        ("batch.release(); batch.obs", "released"),
        ("sampler = table.sampler(8); next(sampler); sampler.close(); next(sampler)", "sampler"),
        ("there.store.drop_table('there'); there.sample(4)", "there was dropped"),
        ("store.drop_table('other')", "other"),
        ("table = store.table('other')", "other"),
    ],
    "processes": [
        ("text = pickle.dumps(store)", "store embed:"),
        ("text = pickle.dumps(table)", "store embed:"),
        ("text = pickle.dumps(writer)", "writer"),
        ("in_child(lambda: table.sample(4))", "fork"),
        ("in_child(lambda: writer.append(obs=obs, action=action, reward=reward))", "fork"),
    ],
    "torch": [
        ("loader = torch.utils.data.DataLoader(table.dataset(256), batch_size=4); next(iter(loader))", "batch_size"),
        ("loader = torch.utils.data.DataLoader(table.dataset(256)); next(iter(loader))", "batch_size"),
        ("dataset = table.dataset(batchsize=256)", "batchsize"),
        ("writer.append(obs=torch.zeros(1, 4), action=action, reward=reward)", "obs: shape (1, 4)"),
        ("writer.append(obs=torch.zeros(4), action=torch.tensor(1.0), reward=reward)", "action"),
        ("table.update_priorities(batch.key, torch.zeros(4, 1))", "td_error: shape (4, 1)"),
        ("table.update_priorities(batch.torch()['key'].float(), td_error)", "keys"),
    ],
    "notebooks": [
        ("kept = [table.writer() for _ in range(17)]", "max_writers"),
        ("table = store.create_table('there', {**signature, 'action': 'int32'}, 4096)", "column action"),
        ("table = store.create_table('there', signature, 4096, max_writers=2)", "max_writers"),
        ("writer.append(obs=obs, action=action, reward=reward); dataset = {'obs': [obs]}; table.extend(dataset)",
         "rewards"),
    ],
    "stores": [
        ("store = relive.open('embedded:')", "uri"),
        ("store = relive.open(None)", "uri"),
        ("store = relive.open('tcp://localhost:1')", "uri"),
        ("store = relive.open('shm:nosuch')", "nosuch"),
        ("store = relive.open('embed:/nosuch/file')", "/nosuch/file"),
        ("store = relive.open('embed:', page='small')", "page"),
        ("store = relive.open('embed:', pages='large')", "pages"),
        ("store = relive.open('embed:', pool_bytes='1G')", "pool_bytes"),
        ("store = relive.open('embed:', timeout=None)", "timeout"),
        ("store = relive.open('embed:', timeout='5')", "timeout"),
        ("store = relive.open('embed:', stall_timeout=0)", "stall_timeout"),
        ("store = relive.open('embed:', token=5)", "token"),
    ],
}


def in_child(call):
    """Raises what a call raises in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:
            os.write(writer, pickle.dumps(error))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        error = pickle.load(file)
    os.waitpid(child, 0)
    raise error


@pytest.fixture
def names(request, tmp_path, monkeypatch):
    """The names that the documentation uses, for a store in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)  # no daemon
    obs, store = np.zeros(4, "f4"), relive.open("embed:")
    table = store.create_table("replay", SIGNATURE, 4096, max_writers=16)
    dataset = {"observations": np.zeros((20, 4)), "actions": np.arange(20), "rewards": np.ones(20),
               "terminals": np.ones(20)}
    table.extend(dataset)
    names = dict(
        np=np, relive=relive, pickle=pickle, in_child=in_child, subprocess=subprocess, store=store, table=table,
        dataset=dataset, signature=dict(SIGNATURE), name="new",
        uri="embed:", token=None, writer=table.writer(), obs=obs, next_obs=obs, action=1, reward=1.0, terminated=False,
        truncated=False, policy_version=3, infos={}, td_error=np.ones(4, "f4"), batch=table.sample(4))
    line = request.node.callspec.params["line"] if hasattr(request.node, "callspec") else ""
    for name, make in (("there", lambda: store.create_table("there", SIGNATURE, 4096)),
                       ("vector", lambda: table.writer(1, autoreset="next_step")),
                       ("same", lambda: table.writer(1, autoreset="same_step")),
                       ("uniform", lambda: store.create_table("uniform", SIGNATURE, 4096,
                                                              views=relive.View(selector="uniform")))):
        if name in line:
            names[name] = make()
    if "uniform.sample" in line:
        names["uniform"].extend(dataset)
    yield names
    store.close()


def told_of(line, names):
    """Returns the text of the error or warning that a line gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises((relive.Error, TypeError, UserWarning)) as raised:
            exec(line, names)
    return str(raised.value)


def test_cases__are_many_of_each_kind():
    assert sum(map(len, CASES.values())) >= 150 and min(map(len, CASES.values())) >= 4
    lines = [line for cases in CASES.values() for line, _ in cases]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("line, argument", [
    pytest.param(*case, id="%s-%d" % (kind, i)) for kind, cases in CASES.items() for i, case in enumerate(cases)])
def test_mistake__has_a_line_that_works(names, line, argument):
    if "shm:" in line and not relive.build_info()["remote"]:
        pytest.skip("this build has no shm:")
    if re.search(r"torch[.(]|\bdataset\(", line):
        names["torch"] = pytest.importorskip("torch")
    text = told_of(line, names)
    message, *lines = text.split("\n  write: ")
    assert argument in message and len(lines) == 1, text
    exec(lines[0], names)


def test_mistake__a_batch_has_the_names_in_its_message(names):
    with pytest.raises(AttributeError, match="it has obs, next_obs, action"):
        names["batch"].observation
    with pytest.raises(KeyError, match="it has obs, next_obs, action"):
        names["batch"]["rewards"]


@pytest.mark.parametrize("line", [
    "store.create_kv('a', keys='x')", "store.create_kv('a', copies=9)", "store.weights('a')",
    "store.create_weights('a', keep='x')", "store.create_kv('a').watch('x', timeout=-1)", "relive.Pool('x y')",
    "raise relive.ProtocolError('view 0 slot 5: torn')", "raise relive.Unsupported('device mlx5_0: no RDMA atomics')",
    "raise relive.Forked('the cuda device was opened before fork(): start workers by spawn')", "table.sample(4, timeout=-1)",
])
def test_mistake__with_other_handles_has_no_line_of_tables(names, line):
    text = told_of(line, names)
    assert "write: " not in text


def test_notebook__a_writer_that_nobody_references_is_closed(store):
    table = store.create_table("t", SIGNATURE, 4096)  # of 4 writers
    for _ in range(5):
        table.writer(4)
    gc.disable()
    try:
        for _ in range(5):
            cycle = [table.writer(4)]
            cycle.append(cycle)
            del cycle
    finally:
        gc.enable()


def test_cure__is_no_part_of_the_error(names):
    with pytest.raises(relive.InvalidArgument) as raised:
        relive.View(n_step=0)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert str(copy) == str(raised.value) and str(copy).count("write: ") == 1
    assert "write: " not in copy.args[0]
    assert not re.search("write: ", str(relive.Timeout("sample of 4 from view 0")))
