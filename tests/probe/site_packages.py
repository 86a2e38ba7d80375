"""A folder of installed distributions for tests: real metadata, no code but what a case names."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

BUILD_INFO = "tensorflow/python/platform/build_info.py"


def build_info(**facts: object) -> str:
    """Text of a `build_info.py` with these keys, in the form of the wheels."""
    pairs = ", ".join(f"({key!r}, {value!r})" for key, value in facts.items())
    return f"# Copyright\nimport collections\n\nbuild_info = collections.OrderedDict([{pairs}])\n"


CPU_BUILD = build_info(is_cuda_build=False, is_rocm_build=False, is_tensorrt_build=False)
CUDA_BUILD = build_info(
    cpu_compiler="clang",
    cuda_compute_capabilities=["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
    cuda_version="12.5.1",
    cudnn_version="9",
    is_cuda_build=True,
    is_rocm_build=False,
    is_tensorrt_build=False,
)


class Site:
    """A `site-packages` folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def install(
        self,
        name: str,
        version: str,
        files: Mapping[str, str] | None = None,
        *,
        requires: Sequence[str] = (),
        top_level: Sequence[str] = (),
        record: bool = True,
    ) -> Path:
        """Unpacks a distribution over whatever is there, as pip does, and returns its metadata folder."""
        metadata = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        for path, text in (files or {}).items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        requirements = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{requirements}")
        if top_level:
            (metadata / "top_level.txt").write_text("\n".join(top_level) + "\n")
        if record:
            lines = [f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in (files or {}).items()]
            (metadata / "RECORD").write_text("".join([*lines, f"{metadata.name}/METADATA,,\n"]))
        return metadata

    def tensorflow(
        self, name: str = "tensorflow", version: str = "2.21.0", text: str = CUDA_BUILD, requires: Sequence[str] = ()
    ) -> Path:
        """Installs a TensorFlow whose build facts are this text."""
        files = {"tensorflow/__init__.py": "raise SystemExit('TensorFlow was imported')\n", BUILD_INFO: text}
        return self.install(name, version, files, requires=requires, top_level=["tensorflow"])


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
