"""Fetch the JavaScript that the page uses, by package name and version, and check that it is what it was.

`python scripts/vendor.py` fetches everything in src/remuda/boss/web/vendor/vendor.json with `npm pack`. To
take a new version, write it there and pass `--update`: it records the new checksums. `--check` fetches
nothing. The page has no import map, so imports by package name become relative ones, and names of source
maps are cut.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "src/remuda/boss/web/vendor"
LIST = FOLDER / "vendor.json"
_IMPORT = re.compile(r'(\bfrom\s*|\bimport\s*)"([^".][^"]*)"')
_MAP = re.compile(r"\n?//# sourceMappingURL=\S+\s*$")
_MODULES = {
    "preact": "preact.js",
    "preact/hooks": "preact-hooks.js",
    "@preact/signals-core": "signals-core.js",
}


def main(arguments: list[str]) -> int:
    packages = json.loads(LIST.read_text())
    if arguments == ["--check"]:
        problems = check(packages)
    elif arguments in ([], ["--update"]):
        problems = [problem for one in packages for problem in fetch(one, update=bool(arguments))]
        if arguments and not problems:
            LIST.write_text(json.dumps(packages, indent=2) + "\n")
    else:
        problems = ["usage: vendor.py [--check | --update]"]
    for problem in problems:
        print(f"vendor.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


def check(packages: list[dict[str, Any]]) -> list[str]:
    """Compare the files on disk with their checksums."""
    problems = []
    expected = {LIST.name}
    for package in packages:
        for name in package["files"].values():
            expected.add(name)
            path = FOLDER / name
            if not path.exists() or _sha256(path.read_bytes()) != package["sha256"][name]:
                problems.append(f"{name} is missing or changed; 'python scripts/vendor.py' fetches it again")
    unknown = sorted(path.name for path in FOLDER.iterdir() if path.name not in expected)
    return problems + [f"{name} is not in vendor.json" for name in unknown]


def fetch(package: dict[str, Any], *, update: bool) -> list[str]:
    """Write the files of one package. Return what does not fit its checksums; then nothing is written."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["npm", "pack", "--silent", f"{package['package']}@{package['version']}"]
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        packed = archive.read_bytes()
        with tarfile.open(archive) as tar:
            files = {
                name: _adapted(name, _member(tar, f"package/{path}"))
                for path, name in package["files"].items()
            }
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(packed).digest()).decode()}"
    sums = {name: _sha256(data) for name, data in files.items()}
    if update:
        package |= {"integrity": integrity, "sha256": sums}
    if (package.get("integrity"), package.get("sha256")) != (integrity, sums):
        return [f"{package['package']}@{package['version']} is not what vendor.json has a checksum for"]
    for name, data in files.items():
        (FOLDER / name).write_bytes(data)
    return []


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise FileNotFoundError(name)
    return file.read()


def _adapted(name: str, data: bytes) -> bytes:
    if not name.endswith(".js"):
        return data
    text = _MAP.sub("\n", data.decode())
    return _IMPORT.sub(lambda found: f'{found[1]}"./{_MODULES[found[2]]}"', text).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
