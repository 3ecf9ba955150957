"""Adaptors: Relive behind the replay interfaces of other libraries.

Each module is imported only if it is asked for, and needs the library that it is named after, but
for ``reverb``, which needs nothing:

* :mod:`relive.adaptors.reverb`: a client with the names and meanings of dm-reverb's;
* ``relive.adaptors.torchrl``: storage, sampler and writer of a TorchRL replay buffer;
* ``relive.adaptors.sb3``: a ``replay_buffer_class`` of Stable-Baselines3;
* ``relive.adaptors.rllib``: a ``replay_buffer_config["type"]`` of RLlib.

``docs/adaptors.md`` says what each covers and where it differs.
"""
