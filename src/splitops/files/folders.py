"""Folders of tensor files: which of the files belong together, and what else is in the folder."""

from __future__ import annotations

import contextlib
import json
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from splitops.errors import FileError, shown, shown_path
from splitops.files.addresses import RemoteFile, is_address
from splitops.files.sources import LocalFile, Source
from splitops.ground.reading import DataFolder

INDEX: Final = ".safetensors.index.json"
"""What the name of the index of several safetensors files ends with."""
PIECE: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.safetensors|\.gguf)", re.IGNORECASE)
"""The name of one of several files: the stem, its number from 1 on, how many there are, the ending."""
_OF_MODELS: Final = (".safetensors", ".gguf", INDEX)
"""Endings of files that hold or name the tensors of a model."""
_VARIANT: Final = re.compile(
    r"\.(fp?(4|8|16|32|64)|bf16|int[48]|[48]bit|(non_)?ema(_only)?)(?=-\d{5}-of-\d{5}|\.)", re.IGNORECASE
)
"""What diffusers and transformers add to the stem of the same weights in another precision or average."""
_APART: Final = re.compile(r"(consolidated|adapter_model)([.-].*)?", re.IGNORECASE)
"""Stems of models that are usual beside another one: Mistral's own form of it, and the adapters of PEFT."""
MAX_SMALL: Final = 64 << 20
"""Files beside the tensors up to this size are taken along: configurations, tokenizers."""


@dataclass(frozen=True, slots=True)
class Other:
    """A small file beside the tensors; all but the index, which is of these files, are shared by any."""

    name: str
    source: Source
    shared: bool = True


def piece_name(stem: str, number: int, count: int, ending: str) -> str:
    """Return the name of one of several files, as transformers and llama.cpp write it.

    Examples:
        >>> piece_name("model", 1, 3, ".safetensors")
        'model-00001-of-00003.safetensors'
    """
    return f"{stem}-{number:05}-of-{count:05}{ending}"


def stem_of(path: Path) -> str:
    """Return what the names of files that are made from a file begin with.

    Examples:
        >>> stem_of(Path("model.safetensors.index.json")), stem_of(Path("m-00001-of-00003.gguf"))
        ('model', 'm')
    """
    found = PIECE.fullmatch(path.name)
    return found[1] if found else path.name[: -len(INDEX)] if path.name.endswith(INDEX) else path.stem


def is_of_model(name: str) -> bool:
    """Return whether a file, by its name, holds or names the tensors of a model.

    Examples:
        >>> is_of_model("model.safetensors.index.fp16.json"), is_of_model("config.json")
        (True, False)
    """
    return _VARIANT.sub("", name).lower().endswith(_OF_MODELS)


def _is_another_model(name: str, stems: Collection[str]) -> bool:
    """Return whether a file, by its name, is of a model that is usual beside one with some stems.

    Examples:
        >>> [_is_another_model(name, ["model"]) for name in (
        ...     "model.fp16.safetensors", "consolidated.00.safetensors", "other.fp16.safetensors")]
        [True, True, False]
    """
    plain = _VARIANT.sub("", name)
    if plain != name:
        return stem_of(Path(plain)) in stems
    return _APART.fullmatch(stem_of(Path(name))) is not None and not all(map(_APART.fullmatch, stems))


def main_file(folder: Path, names: Sequence[str]) -> str | None:
    """Return the file of a folder that names all its tensors; None where there is none.

    It is the index, or the only safetensors file, or the first of the only complete set of numbered files,
    or the only GGUF file. Models that are usual beside another one do not count. Where there are several
    others, which tensors belong together is not known: an error.
    """
    for ending, usual in ((INDEX, "model" + INDEX), (".safetensors", "model.safetensors"), (".gguf", "")):
        found = [name for name in names if name.endswith(ending)]
        if usual in found:
            return usual
        gguf = ending == ".gguf"
        stems = {
            stem_of(Path(name)) for name in names if is_of_model(name) and name.endswith(".gguf") is gguf
        }
        found = [name for name in found if not _is_another_model(name, stems)]
        sets = {(piece[1], piece[3]): piece for name in reversed(found) if (piece := PIECE.fullmatch(name))}
        if len(sets) == 1 and all(PIECE.fullmatch(name) for name in found):
            [piece] = sets.values()
            return piece_name(piece[1], 1, int(piece[3]), piece[4])
        if len(found) == 1:
            return found[0]
        if found:
            raise FileError(
                f"{shown_path(folder)} holds {len(found)} files such as {shown(found[0])}, and none is "
                f"{usual or 'numbered as the first one'}. It cannot be told which tensors form one model"
            )
    return None


def open_beside(source: Source, name: str) -> Source:
    """Open a file that a file names, which lies beside it or at an address like its own."""
    if is_address(source.path):
        return RemoteFile(source.path.parent / safe_name(name))
    return LocalFile(safe_name(name), DataFolder(source.path.parent, source.allow_links))


def safe_name(name: str) -> str:
    """Return a file name that a document declares, checked to stay in its folder and to fit a file system."""
    parts = name.split("/")
    bad = any(part in ("", ".", "..") or len(part.encode(errors="replace")) > 255 for part in parts)
    if bad or not name.isprintable() or "\\" in name or ":" in name:
        raise FileError(f"{shown(name)} does not name a file inside the folder")
    return name


class Beside(NamedTuple):
    """The files in a model's folder that hold none of its tensors.

    Attributes:
        others: the small files, which are copied.
        left: a sentence for each other file and folder, which are not copied.
        strays: the names of tensor files and indexes that do not belong to the model. They are not copied: a
            copy would be next to an index that does not name it.
    """

    others: tuple[Other, ...]
    left: tuple[str, ...]
    strays: tuple[str, ...]


def files_beside(
    folder: DataFolder, names: Sequence[str], tensors: Collection[str], indexes: Collection[str] = ()
) -> Beside:
    """Return the files in a folder next to those with the model's tensors.

    Args:
        folder: the folder.
        names: the files and folders in it.
        tensors: the names of the files with the model's tensors.
        indexes: the names of the model's index files. They describe these files, so they are not shared.
    """
    others, left, strays = [], [], []
    model = {*tensors, *indexes}
    stems = {stem_of(Path(name)) for name in model}
    homes = {home for each in tensors for home, _, _ in [each.partition("/")]}
    for name in names:
        if name in tensors:
            continue
        if is_of_model(name) and name not in indexes and not (folder.path / name).is_dir():
            if _is_another_model(name, stems):
                left.append(f"{shown(name)} is left behind: by its name, it is of another model")
            else:
                strays.append(name)  # also a link to a file that is gone
            continue
        with contextlib.suppress(OSError):
            found = (folder.path / name).stat()
            if stat.S_ISDIR(found.st_mode) and name in homes:
                if any(f"{name}/{entry.name}" not in model for entry in (folder.path / name).iterdir()):
                    left.append(f"of the folder {shown(name)}, only the model's files are taken")
            elif stat.S_ISDIR(found.st_mode):
                left.append(f"the folder {shown(name)} is left behind")
            elif not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SMALL:
                left.append(f"{shown(name)} is left behind: it has {found.st_size} bytes")
            else:
                others.append(Other(safe_name(name), LocalFile(name, folder), name not in indexes))
    return Beside(tuple(others), tuple(left), tuple(strays))


def index_text(where: Mapping[str, str], total: int) -> bytes:
    """Return the index of safetensors files: of each tensor the file, and the bytes of all."""
    named = {name: where[name] for name in sorted(where)}
    rows = json.dumps(named, ensure_ascii=False, separators=(",\n    ", ": "))[1:-1]
    stated = f"{{\n    {rows}\n  }}" if rows else "{}"
    return f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {stated}\n}}\n'.encode()
