"""The one place that imports MPyC.

Importing ``mpyc.runtime`` normally parses ``sys.argv``, configures logging and makes a one-party runtime. MPyC
skips all of that where its documentation is built, which it recognises by an environment variable; the import
borrows the variable. MPyC also uses a deprecated name of NumPy, whose warning is for its authors. Its remarks while it
is imported would give the root logger a handler for good (`logging.debug` does where there is none), which writes every
later line a second time; the import lends it one that writes nothing.
"""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def _silent_root_logger() -> Iterator[None]:
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


with (
    mock.patch.dict(os.environ, {"READTHEDOCS": "True"}),
    warnings.catch_warnings(),
    _silent_root_logger(),
):
    warnings.simplefilter("ignore", DeprecationWarning)
    from mpyc.asyncoro import MessageExchanger
    from mpyc.runtime import Party, Runtime

__all__ = ["MessageExchanger", "Party", "Runtime"]
