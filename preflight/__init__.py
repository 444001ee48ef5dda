"""preflight: can this node keep its GPU fed? `preflight.run()` asks it from Python."""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true; importing typing is not free
if TYPE_CHECKING:
    from preflight.api import GateReport, run
else:

    def __getattr__(name: str) -> object:
        # Not at the top: the command's guard imports this package, and must not fail with it.
        if name in __all__:
            from preflight import api

            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = ["GateReport", "__version__", "run"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
