"""The search for a board of the catalogue by any name that people give it."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import takewhile

import msgspec
from msgspec.structs import replace

from hwprobe.gpu import Gpu, GpuMemory
from hwprobe.knowledge.exceptions import tensor_cores
from hwprobe.knowledge.gpus import Board, boards


class Match(msgspec.Struct, frozen=True):
    """What a name means.

    Attributes:
        text: The name, without what a cluster's label adds to it.
        boards: The one board that it names, or all that it could name, or none.
        similar: Names that look like it, where it names nothing.
        memory_gib: The size that the name asks for.
        mig: Profile of the MIG device that the name is about, for instance `1g.5gb`: a part of the board.
    """

    text: str
    boards: tuple[Board, ...]
    similar: tuple[str, ...] = ()
    memory_gib: float | None = None
    mig: str | None = None

    @property
    def board(self) -> Board | None:
        """The one board that it names; None where it names none, or could name several."""
        return self.boards[0] if len(self.boards) == 1 else None

    @property
    def agrees_on_precision(self) -> bool:
        """Whether all of them share capability and Tensor Cores, so that one choice of precision holds for all."""
        return len({(board.capability, board.tensor_core_dtypes) for board in self.boards}) == 1

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to ask: one board, or several that differ in form factor only (`A100 80GB`)."""
        sizes = {(board.memory_gib if self.memory_gib is None else self.memory_gib) for board in self.boards}
        return self.board is not None or (self.agrees_on_precision and len(sizes) == 1)

    def as_gpu(self) -> Gpu | None:
        """Build the facts that all its boards share.

        Returns:
            The GPU, its memory unknown where the boards differ in it or where a MIG device is meant; None where they do
            not share capability and Tensor Cores.
        """
        if not self.agrees_on_precision:
            return None
        gpu = self.boards[0].as_gpu(self.memory_gib)
        if self.board is None:
            gpu = replace(gpu, name=self._shared_name, pci_device_id=None)
        if self.mig is not None or not self.is_settled:
            gpu = replace(gpu, memory=GpuMemory(kind=gpu.memory.kind))
        return gpu

    @property
    def _shared_name(self) -> str:
        """The name as it was given, unless the tables would read other Tensor Cores from it than the boards have."""
        first = self.boards[0]
        same = tensor_cores(self.text, None, first.capability).dtypes == first.tensor_core_dtypes
        return self.text if same else f"{first.name} or alike"


def find(text: str) -> Match:
    """Find the board that a name means.

    Names are understood as NVML writes them, as a shop does (`3090`, `A100 80GB`, `rtx 4070 ti super`), and as the
    product label of GPU Feature Discovery does (`A100-SXM4-40GB-MIG-1g.5gb`, `Tesla-T4-SHARED`).

    A full name is always taken. A shorter one is taken where it fits one board only, or where it is the plain model
    among variants of it (`3090` beside `3090 Ti`); among datacenter boards, whose plain name stands for a family of
    different memory sizes, it is asked back.

    Args:
        text: The name.

    Returns:
        The board, or the boards to choose from, or names that look similar.
    """
    name, mig = _without_suffix(text)
    words = _words(name)
    fitting = _fitting(words)
    if not fitting:
        return Match(name, (), similar=_similar(words), mig=mig)
    chosen = _named(name, fitting) or _plain(words, fitting) or fitting
    sizes = {size for size in map(_size, words) for board in chosen if size in board.memory_gib}
    return Match(name, tuple(chosen), memory_gib=sizes.pop() if len(sizes) == 1 else None, mig=mig)


def search(pattern: str) -> tuple[Board, ...]:
    """List every board that a name could mean, variants included.

    Args:
        pattern: Words of the name, in any order; `*` and `?` as in a shell.
    """
    return tuple(_fitting(_words(_without_suffix(pattern)[0])))


# A label cannot hold a plus sign: the device plugin writes the profile 1g.10gb+me as 1g.10gb.me.
_MIG = re.compile(
    r"[-_ ]MIG[-_ ](?P<profile>(?:\d+c\.)?\d+g\.\d+gb(?:\+\w+|[.-](?:me|gfx|all))*)$",
    re.IGNORECASE,
)
_SHARED = re.compile(r"-SHARED$", re.IGNORECASE)
_SEPARATOR = re.compile(r"[\s\-_/(),]+")
_GLUED_BRAND = re.compile(r"(RTX|GTX|GT)(\d.*)")
_GLUED_VARIANT = re.compile(r"(\d{3,4})(TI|SUPER)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(?:G|GB|GIB)")
_NOISE = frozenset({"NVIDIA", "GPU", "GRAPHICS", "CARD", "WITH", "DESIGN", "GENERATION", "BLACKWELL"})
_GEFORCE_BRAND = frozenset({"GEFORCE", "RTX", "GTX", "GT"})
_BRANDS = _GEFORCE_BRAND | {"TESLA", "QUADRO"}
_SYNONYMS = {"MOBILE": "LAPTOP", "NOTEBOOK": "LAPTOP"}


def _without_suffix(text: str) -> tuple[str, str | None]:
    """Take off what a cluster's label adds to a product name; give the MIG profile among it."""
    name = _SHARED.sub("", text.strip())
    mig = _MIG.search(name)
    return _MIG.sub("", name), mig["profile"].lower() if mig else None


def _words(text: str) -> list[str]:
    """Split a name into comparable words: `RTX3090` is RTX and 3090, `80G` and `80 GB` are 80GB."""
    words: list[str] = []
    for part in filter(None, _SEPARATOR.split(text.upper())):
        if part in ("GB", "GIB") and words and words[-1].isdigit():
            words[-1] += "GB"
            continue
        brand = _GLUED_BRAND.fullmatch(part)
        for piece in brand.groups() if brand else (part,):
            variant = _GLUED_VARIANT.fullmatch(piece)
            words.extend(variant.groups() if variant else (_plain_word(piece),))
    return words


def _plain_word(word: str) -> str:
    memory = _MEMORY.fullmatch(word)
    return f"{memory[1]}GB" if memory else _SYNONYMS.get(word, word)


def _without_noise(words: Iterable[str]) -> list[str]:
    return [word for word in words if word not in _NOISE]


@functools.cache
def _names(board: Board) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(_words(name)) for name in (board.name, *board.also))


def _fitting(words: list[str]) -> list[Board]:
    wanted = _without_noise(words)
    if not wanted:
        return []
    fitting = [board for board in boards() if any(_fits(wanted, name, board) for name in _names(board))]
    glued = "".join(words).removeprefix("NVIDIA")
    return fitting or [board for board in boards() if glued in _glued_names(board)]


@functools.cache
def _glued_names(board: Board) -> frozenset[str]:
    """Its names without any blank, as in `teslat4` or `4070tisuper`: whole, and with less and less of the brand."""
    glued: set[str] = set()
    for name in (board.name, *board.also):
        written = _SEPARATOR.split(name.removeprefix("NVIDIA ").upper())
        for words in (written, _without_noise(written), _without_noise(_words(name))):
            brand = sum(1 for _ in takewhile(_BRANDS.__contains__, words[:-1]))
            glued.update("".join(words[left:]) for left in range(brand + 1))
    return frozenset(glued)


def _fits(wanted: list[str], name: frozenset[str], board: Board) -> bool:
    return all(_word_fits(word, name) or _size(word) in board.memory_gib for word in wanted) and any(
        _word_fits(word, name) for word in wanted
    )


def _word_fits(word: str, name: frozenset[str]) -> bool:
    if word == "SXM":
        return any(part.startswith("SXM") for part in name)
    if "*" not in word and "?" not in word:
        return word in name
    pattern = word.replace("[", "[[]")
    return any(fnmatchcase(part, pattern) for part in name)


def _size(word: str) -> float | None:
    memory = _MEMORY.fullmatch(word)
    return float(memory[1]) if memory else None


def _named(name: str, fitting: list[Board]) -> list[Board]:
    """The boards whose full name this is; in its own case first, since 2080 SUPER and 2080 Super are two boards."""
    spelled = _SEPARATOR.split(name)
    exact = [board for board in fitting if spelled in map(_SEPARATOR.split, (board.name, *board.also))]
    words = _words(name)
    return exact or [board for board in fitting if _is_full_name(words, board)]


def _is_full_name(words: list[str], board: Board) -> bool:
    # Drivers before 465 wrote no "NVIDIA"; but a bare H100 stands for a family, and only "NVIDIA H100" for one board.
    spoken = [words, ["NVIDIA", *words]] if len(words) > 1 else [words]
    return any(_words(name) in spoken for name in (board.name, *board.also))


def _plain(words: list[str], fitting: list[Board]) -> list[Board]:
    """The boards of which the words leave nothing out but the brand."""
    return [
        board
        for board in fitting
        if board.segment != "datacenter" and any(_left_out(words, name) <= _brand(name) for name in _names(board))
    ]


def _left_out(words: list[str], name: frozenset[str]) -> frozenset[str]:
    return frozenset(_without_noise(name)) - frozenset(words)


def _brand(name: frozenset[str]) -> frozenset[str]:
    """GeForce is known by its number; TITAN X, for one, is two boards that only the brand tells apart."""
    return _GEFORCE_BRAND if "GEFORCE" in name and "TITAN" not in name else frozenset()


def _similar(words: list[str]) -> tuple[str, ...]:
    short = {_bare(_words(board.name)): board.name for board in boards()}
    return tuple(short[name] for name in difflib.get_close_matches(_bare(words), short, n=5))


def _bare(words: list[str]) -> str:
    return " ".join(word for word in _without_noise(words) if word not in _BRANDS)
