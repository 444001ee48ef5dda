"""What a PCIe link should carry: link and limits in, GB/s and decisions out. Pure.

The model is NCCL's: so much per lane and generation, the line rate less protocol. A copy between
pinned memory and a GPU comes near it on every healthy machine with numbers in public.
"""

from __future__ import annotations

from preflight.checks.pinned_copy.reading import PinnedCopyLimits, PinnedCopyReading
from preflight.facts import Facts
from preflight.gpu_facts import CudaDevice, PcieLink

_MODEL_LANES = 16
# A median so near above a limit could be under it the next time.
_BORDERLINE = 1.1


def model_gb_per_s(gen: int | None, width: int | None, limits: PinnedCopyLimits) -> float | None:
    """What `width` lanes of a generation carry one way; None where the table has no such link."""
    full = limits.link_gb_per_s_x16.get(str(gen))
    return None if full is None or not width else full * width / _MODEL_LANES


def fail_under(link: PcieLink, limits: PinnedCopyLimits) -> float | None:
    """GB/s under which a copy over the negotiated link fails; None where nothing is set."""
    return _share(link.gen, link.width, limits)


def best_link_fails_under(link: PcieLink, limits: PinnedCopyLimits) -> float | None:
    """GB/s under which a copy fails on the best link that GPU and slot could have."""
    return _share(link.max_gen, link.max_width, limits)


def is_reduced_under_load(seen: PinnedCopyReading) -> bool:
    """Whether copies ran over fewer lanes or a lower generation than GPU and slot can do.

    An idle link that is lower is no fault: it saves power.
    """
    link = seen.link
    if link is None or seen.link_seen != "during the copy":
        return False
    return _lower(link.gen, link.max_gen) or _lower(link.width, link.max_width)


def name(gen: int | None, width: int | None) -> str:
    """E.g. "Gen5 x16"."""
    return f"Gen{'?' if gen is None else gen} x{'?' if width is None else width}"


def no_verdict(device: CudaDevice, facts: Facts) -> str | None:
    """Why a PCIe link says nothing of a device's copies; None when it does."""
    gpu = device.gpu
    if gpu.mig:
        return "a MIG slice shares its GPU's link with the other slices"
    if gpu.c2c:
        return "the GPU is joined to the CPU by NVLink-C2C, not by PCIe"
    if gpu.integrated:
        return "the GPU shares the host's memory"
    if gpu.virtualization == "vgpu":
        return "a virtual GPU shares the link with other guests"
    if "/dev/dxg" in facts.gpu_host.device_nodes:
        return "under WSL copies go through Windows, which limits pinned memory"
    return None


def measure_again(seen: PinnedCopyReading, limits: PinnedCopyLimits) -> bool:
    """Whether a copy is so slow, or so near a limit that could fail it, that one look is too few.

    Slower than the best link allows counts too: it is one of two witnesses against the link.
    """
    bounds = []
    if seen.no_link_verdict is None and seen.link is not None:
        bounds.append(fail_under(seen.link, limits))
        if is_reduced_under_load(seen):
            bounds.append(best_link_fails_under(seen.link, limits))
    return any(
        rate is not None and bound is not None and rate.value < _BORDERLINE * bound
        for rate, floor in (
            (seen.h2d_gb_per_s, site_floor("min_h2d_gb_per_s", limits)),
            (seen.d2h_gb_per_s, site_floor("min_d2h_gb_per_s", limits)),
        )
        for bound in (*bounds, floor)
    )


def site_floor(key: str, limits: PinnedCopyLimits) -> float | None:
    """A floor that the site itself set, and which therefore fails; None for a shipped one."""
    floor: float | None = getattr(limits, key)
    return floor if key in (limits.site_floors or ()) else None


def _share(gen: int | None, width: int | None, limits: PinnedCopyLimits) -> float | None:
    full = model_gb_per_s(gen, width, limits)
    fraction = limits.min_fraction_of_link_by_gen.get(str(gen))
    return None if full is None or fraction is None else full * fraction


def _lower(now: int | None, most: int | None) -> bool:
    return now is not None and most is not None and now < most
