"""Whether the installed packages are of the versions that pooled_nb supports (DESIGN section 5)."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from pooled_nb._version import __version__
from pooled_nb.doctor.findings import Finding
from pooled_nb.shard.compat import TORCH, TRANSFORMERS

SHOWN = ("torch", "transformers", "aiortc", "ipykernel", "anywidget")
"""Told also where they are fine; of the others only what is not."""
EXTRAS = {"jupyterlab": ">=4.4", "wrtc": ">=0.1,<0.2"}
"""What need not be here: its version is looked at where it is."""
PACKAGE = "pooled-nb"


class Package(Struct, frozen=True, kw_only=True):
    """One package: its version (None: not installed), and what is supported (as in pyproject)."""

    name: str
    have: str | None
    wants: str
    extra: bool = False


class Versions(Struct, frozen=True, kw_only=True):
    """What is installed. ``python_wants`` and ``packages`` are empty where pooled_nb itself is not."""

    python: str
    python_wants: str
    packages: list[Package]
    pooled: str = __version__


def look() -> Versions:
    """Read the metadata of what is installed; imports none of it."""
    try:
        mine = metadata.metadata(PACKAGE)
        wanted = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return Versions(python=platform.python_version(), python_wants="", packages=[])
    packages = []
    for name, wants in required(wanted):
        packages.append(Package(name=name, have=_version(name), wants=wants))
    packages += [Package(name=n, have=_version(n), wants=w, extra=True) for n, w in EXTRAS.items()]
    return Versions(
        python=platform.python_version(), python_wants=mine["Requires-Python"] or "", packages=packages
    )


def required(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Names and ranges of a package's own requirements; those of its extras are left out."""
    found = []
    upper = {"torch": TORCH, "transformers": TRANSFORMERS}
    for line in lines:
        try:
            one = Requirement(line)
        except InvalidRequirement:
            continue
        if one.marker is not None and ("extra" in str(one.marker) or not one.marker.evaluate()):
            continue
        wants = one.specifier
        if one.name in upper:
            # Refused from the next major version on, until it was tried (`shard.compat`).
            low, high = (".".join(map(str, v)) for v in upper[one.name])
            wants &= SpecifierSet(f">={low},<{high}")
        found.append((one.name, _ordered(wants)))
    return found


def judge(versions: Versions) -> list[Finding]:
    """Facts in, findings out."""
    found = [_python(versions), Finding(what="pooled_nb", mark="ok", result=versions.pooled)]
    if not versions.python_wants and not versions.packages:
        found[1] = Finding(
            what="pooled_nb",
            mark="warn",
            result=f"{versions.pooled}, run from a folder: other packages' versions were not compared",
            todo="Install it: pip install .",
        )
    for package in versions.packages:
        if (finding := _package(package)) is not None:
            found.append(finding)
    return found


def _python(versions: Versions) -> Finding:
    fine = not versions.python_wants or _within(versions.python, versions.python_wants)
    return Finding(
        what="python",
        mark="ok" if fine else "fail",
        result=versions.python if fine else f"{versions.python}, where {versions.python_wants} is supported",
        todo="" if fine else "Install a newer Python, and pooled_nb in it.",
    )


def _package(package: Package) -> Finding | None:
    install = f'Run: pip install -U "{package.name}{package.wants}"'
    if package.have is None:
        if package.extra:
            return None
        return Finding(what=package.name, mark="fail", result="not installed", todo=install)
    fine = _within(package.have, package.wants)
    if fine:
        if package.name in SHOWN or package.extra:
            return Finding(what=package.name, mark="ok", result=package.have)
        return None
    if fine is None:
        result = f"{package.have}, a version that cannot be compared with {package.wants}"
        return Finding(what=package.name, mark="warn", result=result, todo=install)
    wants = package.wants.replace(",", ", ")
    return Finding(
        what=package.name,
        mark="warn" if package.extra else "fail",
        result=f"{package.have}, where {wants} is supported",
        todo=install,
    )


def _within(have: str, wants: str) -> bool | None:
    """None where a version is no version."""
    try:
        return SpecifierSet(wants).contains(Version(have), prereleases=True)
    except InvalidVersion:
        return None


def _ordered(wants: SpecifierSet) -> str:
    """Lower bounds first, each of them once; the highest of several is the one that counts."""
    lows = sorted((s for s in wants if s.operator == ">="), key=lambda s: Version(s.version))[-1:]
    highs = sorted((s for s in wants if s.operator == "<"), key=lambda s: Version(s.version))[:1]
    rest = sorted((s for s in wants if s.operator not in (">=", "<")), key=str)
    return ",".join(map(str, [*lows, *highs, *rest]))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
