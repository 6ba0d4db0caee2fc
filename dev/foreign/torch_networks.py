"""Networks of PyTorch as OpenVINO's frontend reads them: traced, of open sizes, scripted and exported.

Run with torch and openvino: ``python dev/foreign/torch_networks.py torch.zip``
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import torch
from keeping import Keeper
from torch import nn

torch.manual_seed(0)


class Parts(nn.Module):
    def forward(self, x):
        a, b, c = torch.split(x, [1, 3, 2], dim=1)
        d, e = torch.chunk(x, 2, dim=-1)
        return a * b.sum(1, keepdim=True), c, d - e


class Unbound(nn.Module):
    def forward(self, x):
        first, second = x[:, :2].unbind(1)
        return first.relu() + second, torch.stack(x.unbind(-1)[::-1])


class Sections(nn.Module):
    def forward(self, x):
        return torch.cat([part.mean(0, keepdim=True) for part in torch.tensor_split(x, 2, dim=1)], dim=1)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x):
        a, b = self.layer(x).chunk(2, dim=-1)
        return a * torch.sigmoid(b)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x):
        b, n = x.shape[0], x.shape[1]
        q, k, v = self.qkv(x).reshape(b, n, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, 4))


class Rotary(nn.Module):
    def forward(self, x):
        half = x.shape[-1] // 2
        angle = torch.arange(half, dtype=torch.float32) * 0.5
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x):
        a, b = self.norm(self.one(x)).split(2, dim=1)
        y = nn.functional.max_pool2d(torch.cat([self.two(a), nn.functional.silu(b)], 1), 2)
        return nn.functional.interpolate(y, scale_factor=2.0, mode="nearest")


class Rolled(nn.Module):
    def forward(self, x):
        return torch.roll(x, [1, -2], [0, 1]), torch.cumsum(x, 1), x.flip(1)


class Positions(nn.Module):
    def forward(self, x):
        values, order = torch.topk(x, 2, dim=-1)
        return values, order, torch.where(x > 0, x, -x).argmax(-1), x.masked_fill(x < 0, 0.5)


class Floored(nn.Module):
    def forward(self, x):
        n = x.shape[0] * 3 // 2
        return torch.arange(0, n, 1) // 2, torch.floor(x), torch.round(x), torch.ceil(x)


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any):
        super().__init__()
        self.layer = getattr(nn, kind)(4, 3, batch_first=True, **options)

    def forward(self, x):
        return self.layer(x)[0]


class Cell(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.cell = getattr(nn, kind)(4, 3)

    def forward(self, x):
        found = self.cell(x, None)
        return found[0] if isinstance(found, tuple) else found


class Branch(nn.Module):
    def forward(self, x):
        if bool(x.sum() > 0):
            a, b = torch.split(x, [2, 4], dim=1)
            y = b * 2
        else:
            y = x[:, 1:5] - 1
        return y


class Deeper(nn.Module):
    def forward(self, x):
        y = x
        if bool(x.sum() > 0):
            if bool(x.max() > 1):
                y = y.chunk(2, dim=1)[1] * 3
            else:
                y = y.chunk(2, dim=1)[0]
        else:
            y = y[:, :3] - 1
        return y + 1


class Repeated(nn.Module):
    def forward(self, x):
        y = x
        for i in range(x.shape[0]):
            a, b = torch.chunk(y, 2, dim=1)
            y = torch.cat([b, a + i], 1)
        return y


class Until(nn.Module):
    def forward(self, x):
        n = 0
        y = x
        while bool(y.sum() < 100) and n < 20:
            y = y * 2
            n += 1
            if n % 2 == 0:
                y = y + 1
        return y, torch.tensor([n])


class Growing(nn.Module):
    def forward(self, x):
        y = x[:1]
        for i in range(3):
            y = torch.cat([y, x[i : i + 1] + y.sum()], 0)
        return y


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 3)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 3)
        found = torch.jit.annotate(list[torch.Tensor], [])
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            found.append(h)
        return torch.stack(found, 1)


def data(*shape: int) -> torch.Tensor:
    """Return the same numbers in every run."""
    return torch.from_numpy(np.random.default_rng(5).standard_normal(shape).astype(np.float32))


WIDE, ROWS, IMAGE = data(4, 6), data(2, 5, 4), data(2, 6, 4, 4)
NETWORKS = {
    "parts": (Parts(), WIDE), "unbound": (Unbound(), WIDE), "sections": (Sections(), WIDE),
    "gated": (Gated(), ROWS), "attention": (Attention(), ROWS), "rotary": (Rotary(), ROWS),
    "convolved": (Convolved(), IMAGE), "rolled": (Rolled(), WIDE), "positions": (Positions(), WIDE),
    "floored": (Floored(), WIDE),
    **{
        f"{kind.lower()}{' both ways' * two}": (Recurrent(kind, bidirectional=bool(two)), ROWS)
        for kind in ("LSTM", "GRU", "RNN") for two in (0, 1)
    },
    **{kind.lower(): (Cell(kind), data(2, 4)) for kind in ("LSTMCell", "GRUCell", "RNNCell")},
    "branch": (Branch(), WIDE), "branch not taken": (Branch(), -WIDE.abs()), "deeper": (Deeper(), WIDE.abs()),
    "repeated": (Repeated(), WIDE), "until": (Until(), WIDE.abs()), "growing": (Growing(), WIDE),
    "steps": (Steps(), ROWS),
}  # fmt: skip
"""Each network with its input."""

BY_DATA = ("branch", "branch not taken", "deeper", "until")
"""What only a script says: its way depends on the numbers."""


def main(path: str) -> None:
    """Make all networks in every way."""
    keeper = Keeper(Path(path), f"torch {torch.__version__}, openvino {openvino.__version__}")
    for name, (module, x) in NETWORKS.items():
        module.eval()
        found = module(x)
        outputs = [y.detach().numpy() for y in (found if isinstance(found, tuple) else (found,))]

        def traced(module=module, x=x):
            return openvino.convert_model(module, example_input=x, input=list(x.shape))

        def open_(module=module, x=x):
            return openvino.convert_model(module, example_input=x)

        def scripted(module=module, x=x):
            return openvino.convert_model(torch.jit.script(module), example_input=x)

        def exported(module=module, x=x):
            return openvino.convert_model(torch.export.export(module, (x,)))

        for way, make in (
            ("traced", traced),
            ("open", open_),
            ("scripted", scripted),
            ("exported", exported),
        ):
            if name not in BY_DATA or way == "scripted":
                keeper.keep(f"{name}, {way}", make, [x.numpy()], outputs)
    keeper.close()


if __name__ == "__main__":
    main(sys.argv[1])
