"""Ray's object store: a put makes an object in shared memory, a get reads one."""

import numpy as np
import ray


def version():
    return ray.__version__


class Values:
    def __init__(self, value_bytes):
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False,
                 object_store_memory=512 << 20)
        self._value = np.zeros(value_bytes, np.uint8)
        self._objects = {}

    def put(self, number):
        self._objects[number] = ray.put(self._value)

    def get(self, number):
        if ray.get(self._objects[number]).nbytes != self._value.nbytes:
            raise RuntimeError("get %d" % number)

    def close(self):
        self._objects.clear()
        ray.shutdown()
