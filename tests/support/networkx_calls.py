"""A pytest plugin for NetworkX's own tests: counts the calls that ran on mgraph, and why others did not.

The counts are written to the file that MGRAPH_NETWORKX_CALLS names, as ``{function: {"ran": n, reason: n}}``.
MGRAPH_NETWORKX_EVERY=3 leaves out two of three tests.
Functions that mgraph does not offer run in NetworkX also where fallback is off.
"""

import functools
import json
import os
from collections import Counter, defaultdict

COUNTS: dict[str, Counter] = defaultdict(Counter)


def pytest_collection_modifyitems(items) -> None:
    items[:] = items[:: int(os.environ.get("MGRAPH_NETWORKX_EVERY", "1"))]
    from networkx.utils.backends import _dispatchable

    from mgraph.networkx import backend, info

    can_run, convert = backend.can_run, backend.convert_from_nx

    def counted_can_run(name, args, kwargs):
        answer = can_run(name, args, kwargs)
        if answer is not True:
            COUNTS[name][str(answer)] += 1
        return answer

    def counted_convert(graph, *, name, **how):
        try:
            return convert(graph, name=name, **how)
        except NotImplementedError as error:
            COUNTS[name][str(error)] += 1
            raise

    def counted(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            outcome = "ran"
            try:
                return function(*args, **kwargs)
            except NotImplementedError as error:
                outcome = str(error)
                raise
            finally:
                COUNTS[function.__name__][outcome] += 1

        return call

    def for_tests(self, name, args, kwargs, *, fallback_to_nx=False):
        fallback = fallback_to_nx or not hasattr(backend, self.name)
        return plain(self, name, args, kwargs, fallback_to_nx=fallback)

    plain, _dispatchable._convert_and_call_for_tests = _dispatchable._convert_and_call_for_tests, for_tests
    backend.can_run, backend.convert_from_nx = counted_can_run, counted_convert
    for name in info.FUNCTIONS:
        if not name.endswith("__new__"):
            setattr(backend, name, counted(getattr(backend, name)))


def pytest_sessionfinish() -> None:
    with open(os.environ["MGRAPH_NETWORKX_CALLS"], "w") as file:
        json.dump(COUNTS, file)
