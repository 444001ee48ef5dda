"""How NVML is asked: the only file that imports pynvml, and nothing that it raises leaves it.

A call that is not answered is Refused, with the reason; the functions for other files turn that
into None. Any call may also never return, so the caller asks from a thread or a process that it
can lose. NVML is never shut down: that would wait for a call that hangs; it ends with the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from preflight.gpu_facts import Nvml, PcieLink
from preflight.machine.pci import WIDTHS

# nvmlReturn_t in nvml.h; a number once given keeps its meaning.
NOT_SUPPORTED, NO_PERMISSION, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 3, 4, 12, 13

LINK = {
    "gen": "nvmlDeviceGetCurrPcieLinkGeneration",
    "width": "nvmlDeviceGetCurrPcieLinkWidth",
    "max_gen": "nvmlDeviceGetMaxPcieLinkGeneration",
    "max_width": "nvmlDeviceGetMaxPcieLinkWidth",
    "gpu_max_gen": "nvmlDeviceGetGpuMaxPcieLinkGeneration",
}
"""The question for each part of a PcieLink."""

_MOST_GPUS = 256  # many times what any machine has: more is garbage
_NO_VALUE = {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}

Doing = Callable[[str], None]
"""Is told the name of a call before it is made."""


class Refused(Exception):
    """A call that was not answered; `code` is None where it was not NVML that refused."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.why, self.code = why, code


def start(doing: Doing) -> Nvml:
    """Load and initialise NVML; `state` of the answer says what came of it."""
    doing("import pynvml")
    try:
        import pynvml  # noqa: F401
    except Exception as error:
        return _not_well(Refused(f"nvidia-ml-py cannot be imported: {error}"), "import pynvml")
    doing("nvmlInit_v2")
    try:
        call("nvmlInit")
    except Refused as refused:
        return _not_well(refused, "nvmlInit_v2")
    doing("nvmlSystemGetDriverVersion")
    driver = _or_none(lambda: text(call("nvmlSystemGetDriverVersion")))
    doing("nvmlSystemGetCudaDriverVersion_v2")
    cuda = _or_none(lambda: number(call("nvmlSystemGetCudaDriverVersion_v2")))
    return Nvml(
        state="ok", code=None, error=None, step=None, driver_version=driver,
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )  # fmt: skip


def count(nvml: Nvml, doing: Doing) -> tuple[Nvml, int]:
    """How many GPUs a started NVML has, those that we may not access included."""
    doing("nvmlDeviceGetCount_v2")
    try:
        counted = number(call("nvmlDeviceGetCount"))
        if counted > _MOST_GPUS:
            raise Refused(f"{counted} is not a number of GPUs")
        return nvml, counted
    except Refused as refused:
        versions = nvml.model_dump(include={"driver_version", "cuda_version"})
        return _not_well(refused, "nvmlDeviceGetCount_v2").model_copy(update=versions), 0


def open_link(uuid: str) -> Callable[[], PcieLink | None]:
    """A function that samples the PCIe link of a GPU, by the GPU's own UUID.

    It may be called from any thread. A sample that is not answered is None; where the GPU is not
    found every sample is. The most that the link can do is asked once, here.
    """
    handle = _or_none(lambda: _by_uuid(uuid))
    if handle is None:
        return lambda: None

    def ask(*parts: str) -> dict[str, int | None]:
        return {part: _or_none(partial(_link_part, part, handle)) for part in parts}

    most = ask("max_gen", "max_width", "gpu_max_gen")

    def sample() -> PcieLink | None:
        now = ask("gen", "width")
        return None if set(now.values()) == {None} else PcieLink(**now, **most)

    return sample


def call(name: str, *arguments: Any) -> Any:
    """The answer of one function of the binding.

    Raises:
        Refused: NVML gave a code, or the library or the binding lacks the function.
    """
    import pynvml

    function = constant(name)
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise Refused(error_name(error.value), error.value) from None
    except UnicodeDecodeError as error:
        return error.object  # the string, which the binding could not decode
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from None


def constant(name: str) -> Any:
    """A function, structure or constant of the binding.

    Raises:
        Refused: this version of the binding lacks it.
    """
    import pynvml

    if not hasattr(pynvml, name):
        raise Refused("not in this nvidia-ml-py", FUNCTION_NOT_FOUND)
    return getattr(pynvml, name)


def error_name(code: int) -> str:
    """The binding's name of an NVML code in lower case, for example "not supported"."""
    import pynvml

    prefix = "NVML_ERROR_"
    for name in dir(pynvml):
        if name.startswith(prefix) and getattr(pynvml, name) == code:
            return name.removeprefix(prefix).replace("_", " ").lower()
    return f"code {code}"


def text(answer: Any) -> str:
    """A string; some bindings give bytes, and some GPUs bytes that are no text.

    Raises:
        Refused: it is empty.
    """
    found = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    if not found:
        raise Refused("an empty string")
    return found


def number(answer: int) -> int:
    """A number.

    Raises:
        Refused: it is what NVML writes where it has none.
    """
    if answer in _NO_VALUE or answer < 0:
        raise Refused("no value")
    return int(answer)


def positive(answer: int) -> int:
    """A number for which zero means nothing, either.

    Raises:
        Refused: see `number`.
    """
    if answer == 0:
        raise Refused("no value")
    return number(answer)


def lanes(answer: int) -> int:
    """A number of PCIe lanes.

    Raises:
        Refused: no link has so many.
    """
    if answer not in WIDTHS:
        raise Refused(f"no link has {answer} lanes")
    return answer


def _link_part(part: str, handle: Any) -> int:
    answer = call(LINK[part], handle)
    return lanes(answer) if part.endswith("width") else positive(answer)


def _by_uuid(uuid: str) -> Any:
    if start(lambda name: None).state != "ok":
        return None
    # Bytes are understood by bindings that convert strings, and by those that do not.
    return call("nvmlDeviceGetHandleByUUID", uuid.encode())


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Refused:
        return None


def _not_well(refused: Refused, step: str) -> Nvml:
    codes = {None: "failed", LIBRARY_NOT_FOUND: "no_library"}
    state: Any = codes.get(refused.code, "error")
    return Nvml(
        state=state, code=refused.code, error=refused.why, step=step,
        driver_version=None, cuda_version=None,
    )  # fmt: skip
