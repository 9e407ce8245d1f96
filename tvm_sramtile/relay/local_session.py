"""``tvmc run`` on this machine, for a TVM whose remote call and its server disagree about the number of arguments."""

from __future__ import annotations

import inspect
from typing import Any

import tvm
from tvm import rpc


def mend_local_session() -> None:
    """Make ``rpc.LocalSession().load_module`` work where it cannot (hhb-tvm 3.2.3); elsewhere nothing is changed.

    There, the session sends compiler options beside the file's name, and the server's function takes the name alone.
    """
    ours = getattr(rpc.LocalSession.load_module, "mended", False)
    if ours or "cc" not in inspect.signature(rpc.LocalSession.load_module).parameters:
        return
    original = rpc.LocalSession.load_module

    def load_module(self: Any, path: str, *compiler_options: str) -> Any:
        def serve(file_name: str, *_: str) -> Any:
            return tvm.runtime.load_module(self._temp.relpath(file_name))

        # Each session registers the server's functions anew, so this has to be done here, not once.
        tvm.register_func("tvm.rpc.server.load_module", serve, override=True)
        return original(self, path, *compiler_options)

    load_module.mended = True  # type: ignore[attr-defined]
    rpc.LocalSession.load_module = load_module
