"""Folders of tensor files: which files form one model, how they are named, and what else is in the folder."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, shown, shown_path
from splitops.files.sources import LocalFile, Source
from splitops.files.urls import RemoteFile, is_url

INDEX: Final = ".safetensors.index.json"
"""Suffix of the file name of an index of safetensors files."""
PIECE: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.safetensors|\.gguf)", re.IGNORECASE)
"""Name of one of several numbered files. The groups are the stem, number (from 1), count and extension."""
_MODEL_ENDINGS: Final = (".safetensors", ".gguf", INDEX)
"""Suffixes of the names of files that contain or list the tensors of a model."""
_VARIANT: Final = re.compile(
    r"\.(fp?(4|8|16|32|64)|bf16|int[48]|[48]bit|(non_)?ema(_only)?)(?=-\d{5}-of-\d{5}|\.)", re.IGNORECASE
)
"""The part of a diffusers or transformers file name that marks a variant: weights in another precision, or
with (``ema``) or without (``non_ema``) averaging.
"""
_SECOND_MODEL: Final = re.compile(r"(consolidated|adapter_model)([.-].*)?", re.IGNORECASE)
"""Stems of models that often share a folder with another model: Mistral's own format, and PEFT adapters."""
MAX_SMALL: Final = 64 << 20
"""Maximum size of a file without tensors, such as a configuration, that is copied with the model."""


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """A small file without tensors in a model's folder. It is ``shared`` unless it lists tensor files."""

    name: str
    source: Source
    shared: bool = True


def name_piece(stem: str, number: int, count: int, ending: str) -> str:
    """Return the name of file ``number`` (from 1) of ``count``, in the form of transformers and llama.cpp.

    Examples:
        >>> name_piece("model", 1, 3, ".safetensors")
        'model-00001-of-00003.safetensors'
    """
    return f"{stem}-{number:05}-of-{count:05}{ending}"


def stem_of(path: Path) -> str:
    """Return a file name without its extension, its shard number and the suffix of an index.

    Examples:
        >>> stem_of(Path("model.safetensors.index.json")), stem_of(Path("m-00001-of-00003.gguf"))
        ('model', 'm')
    """
    found = PIECE.fullmatch(path.name)
    return found[1] if found else path.name[: -len(INDEX)] if path.name.endswith(INDEX) else path.stem


def is_model_file(name: str) -> bool:
    """Return whether a file, judged by its name, contains or lists the tensors of a model.

    Examples:
        >>> is_model_file("model.safetensors.index.fp16.json"), is_model_file("config.json")
        (True, False)
    """
    return _VARIANT.sub("", name).lower().endswith(_MODEL_ENDINGS)


def is_another_model(name: str, stems: Collection[str]) -> bool:
    """Return whether a file, judged by its name, belongs to a variant of the model or a known second model.

    ``stems`` are the stems of the files of the model; see :func:`stem_of`.

    Examples:
        >>> [is_another_model(name, ["model"]) for name in (
        ...     "model.fp16.safetensors", "consolidated.00.safetensors", "other.fp16.safetensors")]
        [True, True, False]
    """
    plain = _VARIANT.sub("", name)
    if plain != name:
        return stem_of(Path(plain)) in stems
    return _SECOND_MODEL.fullmatch(stem_of(Path(name))) is not None and not all(
        map(_SECOND_MODEL.fullmatch, stems)
    )


def find_main_file(folder: Path, names: Sequence[str]) -> str | None:
    """Return the name of the file through which to open the model in a folder, or None if there is none.

    It is an index, otherwise a safetensors file, otherwise a GGUF file. Of several indexes or safetensors
    files, the one with the usual stem ``model`` is chosen. Otherwise, variants and known second models are
    left out. If one file or one set of numbered files is left, it is this file or the first of the set.
    Raise FileError if there are more.
    """
    for ending, usual in ((INDEX, "model" + INDEX), (".safetensors", "model.safetensors"), (".gguf", "")):
        found = [name for name in names if name.endswith(ending)]
        if usual in found:
            return usual
        gguf = ending == ".gguf"
        stems = {
            stem_of(Path(name)) for name in names if is_model_file(name) and name.endswith(".gguf") is gguf
        }
        found = [name for name in found if not is_another_model(name, stems)]
        sets = {(piece[1], piece[3]): piece for name in reversed(found) if (piece := PIECE.fullmatch(name))}
        if len(sets) == 1 and all(PIECE.fullmatch(name) for name in found):
            [piece] = sets.values()
            return name_piece(piece[1], 1, int(piece[3]), piece[4])
        if len(found) == 1:
            return found[0]
        if found:
            raise FileError(
                f"{shown_path(folder)} has {len(found)} files such as {shown(found[0])}, and none is "
                f"{usual or 'numbered as the first one'}: move files of other models to another folder"
            )
    return None


def open_sibling(source: Source, name: str) -> Source:
    """Open a file to which ``source`` refers by name, in its folder or below. Both may be at a URL."""
    if is_url(source.path):
        return RemoteFile(source.path.parent / check_file_name(name))
    return LocalFile(check_file_name(name), DataFolder(source.path.parent, source.allow_links))


def check_file_name(name: str) -> str:
    """Return ``name`` if it is the name of a file inside a folder. Otherwise raise FileError."""
    parts = name.split("/")
    bad = any(part in ("", ".", "..") or len(part.encode(errors="replace")) > 255 for part in parts)
    if bad or not name.isprintable() or "\\" in name or ":" in name:
        raise FileError(f"{shown(name)} is not the name of a file inside the folder")
    return name


class OtherFiles(NamedTuple):
    """Files in the folder of a model that contain none of its tensors.

    Attributes:
        others: small files, which are copied, and indexes of the model, which are not shared.
        left: a sentence for each file or folder that is not copied completely, except ``strays``.
        strays: names of tensor files and indexes that do not belong to the model. They are not copied,
            because no index would list them.
    """

    others: tuple[SidecarFile, ...]
    left: tuple[str, ...]
    strays: tuple[str, ...]


def find_other_files(
    folder: DataFolder, names: Sequence[str], tensors: Collection[str], indexes: Collection[str] = ()
) -> OtherFiles:
    """Find the files in a folder that contain none of the model's tensors.

    Args:
        folder: the folder.
        names: names of the files and folders in it.
        tensors: names of the files with the model's tensors.
        indexes: names of the model's index files. They list these tensor files, so they are not shared.
    """
    others, left, strays = [], [], []
    model = {*tensors, *indexes}
    stems = {stem_of(Path(name)) for name in model}
    homes = {home for each in tensors for home, _, _ in [each.partition("/")]}
    for name in names:
        if name in tensors:
            continue
        if is_model_file(name) and name not in indexes and not (folder.path / name).is_dir():
            if is_another_model(name, stems):
                left.append(f"{shown(name)} is not copied: by its name, it belongs to another model")
            else:
                strays.append(name)  # it may also be a broken link
            continue
        try:
            found = (folder.path / name).stat()
            if stat.S_ISDIR(found.st_mode) and name in homes:
                if any(f"{name}/{entry.name}" not in model for entry in (folder.path / name).iterdir()):
                    left.append(f"only the model's files are copied from the folder {shown(name)}")
            elif stat.S_ISDIR(found.st_mode):
                left.append(f"the folder {shown(name)} is not copied")
            elif not stat.S_ISREG(found.st_mode):
                left.append(f"{shown(name)} is not copied: it is not a regular file")
            elif found.st_size > MAX_SMALL:
                left.append(f"{shown(name)} is not copied: it has {found.st_size} bytes")
            else:
                others.append(
                    SidecarFile(check_file_name(name), LocalFile(name, folder), name not in indexes)
                )
        except OSError as error:  # for example, it is a broken link
            left.append(f"{shown(name)} is not copied: {error.strerror}")
    return OtherFiles(tuple(others), tuple(left), tuple(strays))


def format_index(where: Mapping[str, str], total: int) -> bytes:
    """Return the JSON index of safetensors files: the file of each tensor, and the total size in bytes."""
    named = {name: where[name] for name in sorted(where)}
    rows = json.dumps(named, ensure_ascii=False, separators=(",\n    ", ": "))[1:-1]
    stated = f"{{\n    {rows}\n  }}" if rows else "{}"
    return f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {stated}\n}}\n'.encode()
