"""What the machine's own apt is set up to use, reduced to Debian's archives of one release.

The repository names no mirror: an image comes from wherever this machine's packages come from. apt is
asked which archives it would update from rather than its files parsed, so both notations, mirrors and
local caches count. An archive is taken when its Release file calls itself Debian and the release;
since anyone may write that, every entry is also bound to Debian's archive keyring, and a third party's
signature fails there. The Release files go to a directory of our own: whether the machine's package
lists are there, or just being replaced, makes no difference.
"""

import re
from pathlib import Path

from .common import ImageError, output_of

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# Settings that say how to reach or judge an archive; proxies are among the first two.
_FORWARDED = re.compile(
    r"^Acquire::(https?|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date|Max-ValidTime|"
    r"Min-ValidTime|Queue-Mode)\b.*;$"
)
_RELEASE = re.compile(r"^'(?P<uri>\S+/)dists/(?P<release>\S+)/InRelease' (?P<file>\S+) ")


def configured_archives(suite: str) -> list[tuple[str, str, str]]:
    """(URI, release, name of its Release file) of all that may concern the suite; needs no network."""
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    matches = map(_RELEASE.match, output_of(["apt-get", "--print-uris", "update"]).splitlines())
    found = {(m["uri"], m["release"], m["file"]) for m in matches if m and m["release"] in wanted}
    if not any(release == suite for _, release, _ in found):
        raise ImageError(f"apt has no source for Debian {suite} on this machine")
    return sorted(found)


def debian_sources(suite: str, work: Path) -> list[str]:
    """One-line entries for those of the archives that are Debian's own."""
    lists = work / "lists"
    (lists / "partial").mkdir(parents=True)
    release_files_only = [
        f"Acquire::IndexTargets::deb::{target}::DefaultEnabled=false"
        for target in ("Packages", "Translations", "DEP-11")
    ]
    settings = [f"Dir::State::lists={lists}", "APT::Sandbox::User=root", *release_files_only]
    output_of(["apt-get", "-qq", *(f"-o{setting}" for setting in settings), "update"])

    archives = [
        (uri, release)
        for uri, release, name in configured_archives(suite)
        if _fields(lists / name).get("Origin") == "Debian"
    ]
    if not any(release == suite for _, release in archives):
        raise ImageError(f"none of apt's sources for {suite} could be reached and is Debian's own")
    return [f"deb [signed-by={KEYRING}] {uri} {release} main" for uri, release in archives]


def _fields(release_file: Path) -> dict[str, str]:
    """The single-line fields of a Release file that apt has verified; none if apt has not."""
    if not release_file.exists():
        return {}
    lines = release_file.read_text(errors="replace").splitlines()
    return dict(line.split(": ", 1) for line in lines if re.match(r"[A-Z]\S*: ", line))


def forwarded_settings() -> str:
    """The part of apt's configuration that a build of its own needs: proxies, retries, checks."""
    lines = output_of(["apt-config", "dump"]).splitlines()
    settings = [line for line in lines if _FORWARDED.match(line)]
    # mmdebstrap's apt looks below the new root; credentials of private mirrors stay where they are.
    settings.append('Dir::Etc::netrc "/etc/apt/auth.conf";')
    settings.append('Dir::Etc::netrcparts "/etc/apt/auth.conf.d";')
    return "".join(line + "\n" for line in settings)
