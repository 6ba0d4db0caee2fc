"""Export architectures of torch, torchvision, timm, transformers and scikit-learn, with small random weights.

    tasks.py bench architectures --out DIR [--only WORD ...] [--seconds 240]

Each architecture is exported by tracing (TorchScript) and by torch.export at several opsets, in a process of
its own; what its exporter cannot do is named in ``DIR/failed.txt``. What is there already is not made again.
Needs torch with onnxscript; torchvision, timm, transformers and skl2onnx are used where they are installed.
Count with ``tasks.py bench exported_conversion DIR --reach 13 17`` how many of them convert.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dev.benchmarks.quiet import quiet

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

TRACED, EXPORTED = (11, 17), (18, 23)
"""Opsets of the exporter that traces, and of the one by torch.export."""
LEARNED = (9, 12, 17, 21)
"""Opsets of scikit-learn's models."""
MAX_BYTES = 30 << 20

Make = Callable[[], tuple[Any, tuple[Any, ...]]]
"""Makes a module and its inputs."""


# Modules of torch itself


def torch_modules() -> Iterator[tuple[str, Make]]:
    """Recurrent layers, attention, and layers with splits in them."""
    import torch
    from torch import nn

    class First(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *inputs: Any) -> Any:
            found = self.inner(*inputs)
            return found[0] if isinstance(found, tuple) else found

    def sequence(make: Callable[[], nn.Module], *more: tuple[int, ...]) -> Make:
        return lambda: (First(make()), (torch.randn(2, 5, 16), *(torch.randn(shape) for shape in more)))

    yield "lstm", sequence(lambda: nn.LSTM(16, 16, 2, batch_first=True, bidirectional=True))
    yield "gru", sequence(lambda: nn.GRU(16, 16, batch_first=True))
    yield "rnn", sequence(lambda: nn.RNN(16, 16, batch_first=True))
    encoder = {"batch_first": True, "dim_feedforward": 32, "dropout": 0.0}
    yield "encoder", sequence(lambda: nn.TransformerEncoderLayer(16, 4, **encoder))
    yield "decoder", sequence(lambda: nn.TransformerDecoderLayer(16, 4, **encoder), (2, 5, 16))
    yield "transformer", sequence(lambda: nn.Transformer(16, 4, 1, 1, **encoder), (2, 5, 16))
    yield "glu", sequence(lambda: nn.Sequential(nn.Linear(16, 32), nn.GLU()))
    yield (
        "group_norm",
        lambda: (nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(4, 8)), (torch.randn(1, 4, 9, 9),)),
    )
    yield "upsample", lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), (torch.randn(1, 4, 9, 9),))
    yield "cross_entropy", lambda: (nn.LogSoftmax(1), (torch.randn(2, 4, 5),))


# Libraries


TORCHVISION = """
    shufflenet_v2_x0_5 shufflenet_v2_x1_0 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet0_5
    squeezenet1_0 squeezenet1_1 efficientnet_b0 regnet_y_400mf regnet_x_400mf densenet121 googlenet
"""


def torchvision_models() -> Iterator[tuple[str, Make]]:
    """Classifiers, detectors and segmenters."""
    import torch
    import torchvision

    class Out(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x)["out"]

    def image(name: str, size: int = 64, **options: Any) -> Make:
        def make() -> tuple[Any, tuple[Any, ...]]:
            found = torchvision.models.get_model(name, weights=None, **options)
            return found, (torch.randn(1, 3, size, size),)

        return make

    yield from ((name, image(name, num_classes=10)) for name in TORCHVISION.split())
    yield "inception_v3", image("inception_v3", 80, num_classes=10, init_weights=False)
    swin = {
        "patch_size": [4, 4],
        "embed_dim": 24,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "window_size": [4, 4],
    }

    def transformer(kind: str, options: dict[str, Any]) -> Make:
        def make() -> tuple[Any, tuple[Any, ...]]:
            block = (
                {"block": torchvision.models.swin_transformer.SwinTransformerBlockV2} if "v2" in kind else {}
            )
            if "v2" in kind:
                block["downsample_layer"] = torchvision.models.swin_transformer.PatchMergingV2
            cls = {"swin": "SwinTransformer", "vit": "VisionTransformer", "maxvit": "MaxVit"}[
                kind.split("_")[0]
            ]
            return getattr(torchvision.models, cls)(**options, **block), (torch.randn(1, 3, 64, 64),)

        return make

    yield "swin_small", transformer("swin", swin)
    yield "swin_v2_small", transformer("swin_v2", swin)
    vit = {
        "image_size": 64,
        "patch_size": 16,
        "num_layers": 2,
        "num_heads": 4,
        "hidden_dim": 32,
        "mlp_dim": 64,
    }
    yield "vit_small", transformer("vit", vit)
    segment = {"weights": None, "weights_backbone": None, "num_classes": 5}
    lraspp = lambda: (  # noqa: E731
        Out(torchvision.models.segmentation.lraspp_mobilenet_v3_large(**segment)),
        (torch.randn(1, 3, 64, 64),),
    )
    yield "lraspp", lraspp

    def detector() -> tuple[Any, tuple[Any, ...]]:
        find = torchvision.models.detection.ssdlite320_mobilenet_v3_large
        return find(weights=None, weights_backbone=None, num_classes=5), ([torch.rand(3, 64, 64)],)

    yield "ssdlite", detector


TIMM = """
    test_vit test_vit2 test_resnet test_efficientnet test_efficientnet_gn test_convnext test_convnext2
    test_byobnet test_nfnet test_mambaout lcnet_050 mobilenetv3_small_050 tinynet_e ghostnet_050
    ghostnetv2_100 mnasnet_small semnasnet_075 hardcorenas_a repghostnet_050 mobilevit_xxs
    mobilevitv2_050 edgenext_xx_small efficientvit_b0 efficientvit_m0 mobileone_s0 fastvit_t8
    repvit_m0_9 starnet_s1 tiny_vit_5m_224 gcvit_xxtiny pvt_v2_b0 pit_ti_224 deit_tiny_patch16_224
    convit_tiny xcit_nano_12_p16_224 coat_lite_tiny levit_128s efficientformerv2_s0 poolformer_s12
    cspresnet50 selecsls42 hrnet_w18_small res2net50_14w_8s dla46_c convmixer_768_32 mixer_s32_224
    gmlp_ti16_224 resmlp_12_224 crossvit_tiny_240 mobilenetv4_conv_small_050 spnasnet_100 fbnetc_100
    skresnet18 resnest14d volo_d1_224 visformer_tiny coatnet_pico_rw_224 eva02_tiny_patch14_224
    inception_next_atto caformer_s18 mobilenetv4_hybrid_medium swin_tiny_patch4_window7_224
    cait_xxs24_224 tnt_s_patch16_224 nest_tiny vit_tiny_patch16_224
"""

TIMM_OPTIONS: dict[str, dict[str, Any]] = {
    "swin_tiny_patch4_window7_224": {"embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)},
    "cait_xxs24_224": {"embed_dim": 48, "depth": 2, "num_heads": 4},
    "convmixer_768_32": {"dim": 64, "depth": 4},
    "mixer_s32_224": {"num_blocks": 2, "embed_dim": 64},
    "tnt_s_patch16_224": {"embed_dim": 96, "depth": 2, "num_heads": 4},
}


def timm_models() -> Iterator[tuple[str, Make]]:
    """Image classifiers."""
    import timm
    import torch

    def make(name: str) -> tuple[Any, tuple[Any, ...]]:
        found = timm.create_model(name, pretrained=False, num_classes=10, **TIMM_OPTIONS.get(name, {}))
        config = found.default_cfg
        return found, (torch.randn(1, *config.get("test_input_size", config["input_size"])),)

    yield from ((name, lambda name=name: make(name)) for name in TIMM.split())


TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WIDTH = {"vocab_size": 64, "d_model": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQ2SEQ = WIDTH | {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
}
VISION = {
    "image_size": 64,
    "patch_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
AUDIO = TINY | {
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}

TEXT = """
    Bert Roberta Electra MPNet Camembert XLMRoberta Ernie MobileBert ConvBert SqueezeBert Nystromformer
    RoFormer MegatronBert LayoutLM Llama Mistral Qwen2 Qwen3 Gemma Phi StableLm Cohere Granite Olmo
    Olmo2 Starcoder2 GPTNeoX Persimmon Gemma2 SmolLM3 Glm Phi3
"""

TRANSFORMERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(TEXT.split(), TINY),
    "Albert": TINY | {"embedding_size": 16},
    "Deberta": TINY
    | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16},
    "DebertaV2": TINY | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DistilBert": {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "ModernBert": TINY | {"cls_token_id": 1, "sep_token_id": 2},
    "FNet": TINY | {"tpu_short_seq_length": 8},
    "GPT2": {"vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "GPTNeo": {
        "vocab_size": 64,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
    },
    "GPTJ": {"vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "CodeGen": {
        "vocab_size": 64,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
    },
    "GPTBigCode": {"vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "CTRL": {"vocab_size": 64, "n_positions": 64, "n_embd": 32, "dff": 48, "n_layer": 2, "n_head": 4},
    "Bloom": {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Falcon": TINY,
    "Mpt": {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
    "OPT": TINY | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "XLNet": {"vocab_size": 64, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    "XLM": {"vocab_size": 64, "emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "T5Encoder": WIDTH | {"d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "_config": "T5Config"},
    "BartEncoder": SEQ2SEQ | {"_config": "BartConfig", "_class": "BartModel"},
    "MBart": SEQ2SEQ | {"_class": "MBartModel"},
    "Pegasus": SEQ2SEQ,
    "Marian": SEQ2SEQ | {"decoder_vocab_size": 64},
    "M2M100": SEQ2SEQ,
    "Mamba": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "ViT": VISION,
    "DeiT": VISION,
    "ViTMSN": VISION,
    "Dinov2": VISION,
    "Beit": VISION | {"use_relative_position_bias": True},
    "Yolos": VISION | {"image_size": [64, 64], "num_detection_tokens": 4},
    "SiglipVision": VISION,
    "CLIPVision": VISION,
    "CLIPText": TINY,
    "Swin": {
        "image_size": 64,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "window_size": 4,
    },
    "Swinv2": {
        "image_size": 64,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "window_size": 4,
    },
    "ConvNext": STAGES,
    "ConvNextV2": STAGES,
    "PoolFormer": STAGES,
    "VAN": STAGES | {"mlp_ratios": [2, 2, 2, 2]},
    "Segformer": STAGES | {"num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 16},
    "ResNet": STAGES | {"embedding_size": 8},
    "RegNet": STAGES | {"embedding_size": 8, "groups_width": 8},
    "MobileViT": {
        "image_size": 64,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
        "num_attention_heads": 4,
    },
    "MobileNetV2": {"image_size": 64, "depth_multiplier": 0.35},
    "LevitModel": {
        "image_size": 64,
        "hidden_sizes": [16, 24, 32],
        "num_attention_heads": [2, 2, 2],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "_config": "LevitConfig",
        "_class": "LevitModel",
    },
    "PvtV2": {
        "image_size": 64,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 3, 4],
    },
    "Wav2Vec2": AUDIO,
    "Hubert": AUDIO,
    "SEW": AUDIO | {"squeeze_factor": 2},
    "WhisperEncoder": SEQ2SEQ
    | {"num_mel_bins": 16, "max_source_positions": 20, "_config": "WhisperConfig", "_class": "WhisperModel"},
    "ASTModel": VISION | {"num_mel_bins": 32, "max_length": 64, "_config": "ASTConfig", "_class": "ASTModel"},
}


def transformers_models() -> Iterator[tuple[str, Make]]:
    """Language, vision and audio models of a few thousand weights."""
    import torch
    import transformers

    class Hidden(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module, argument: str) -> None:
            super().__init__()
            self.inner, self.argument = inner, argument

        def forward(self, x: Any) -> Any:
            return self.inner(**{self.argument: x}, return_dict=False)[0]

    def make(name: str, options: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        options = dict(options)
        config = getattr(transformers, options.pop("_config", f"{name}Config"))
        cls = getattr(transformers, options.pop("_class", f"{name}Model"))
        made = config(**options)
        with contextlib.suppress(AttributeError):
            made.use_cache = False
        made._attn_implementation = "eager"
        inner = cls(made)
        if name.endswith("Encoder"):
            inner = inner.get_encoder()
        argument = inner.main_input_name
        size = options.get("image_size", 64)
        size = size[0] if isinstance(size, list) else size
        inputs = {
            "pixel_values": lambda: torch.randn(1, 3, size, size),
            "input_features": lambda: torch.randn(1, 16, 40),
            "input_values": lambda: torch.randn(1, 64, 32) if name == "ASTModel" else torch.randn(1, 800),
        }
        return Hidden(inner, argument), (inputs.get(argument, lambda: torch.randint(3, 60, (1, 8)))(),)

    for name, options in TRANSFORMERS.items():
        yield name, lambda name=name, options=options: make(name, options)


LIBRARIES: dict[str, Callable[[], Iterator[tuple[str, Make]]]] = {
    "torch": torch_modules,
    "transformers": transformers_models,
    "torchvision": torchvision_models,
    "timm": timm_models,
}


def learned_models() -> Iterator[tuple[str, Any]]:
    """Fitted models of scikit-learn."""
    import numpy as np
    from sklearn import cluster, decomposition, ensemble, linear_model, naive_bayes, neighbors, neural_network
    from sklearn import pipeline, preprocessing, svm, tree  # isort: skip

    random = np.random.default_rng(0)
    x, labels, y = random.random((60, 4)).astype(np.float32), random.integers(0, 3, 60), random.random(60)
    names = np.array(["a", "b", "c"])[labels]
    classifiers = (
        linear_model.LogisticRegression(),
        linear_model.SGDClassifier(loss="log_loss"),
        svm.SVC(probability=True),
        ensemble.RandomForestClassifier(4),
        ensemble.GradientBoostingClassifier(n_estimators=4),
        tree.DecisionTreeClassifier(),
        neighbors.KNeighborsClassifier(3),
        naive_bayes.GaussianNB(),
        neural_network.MLPClassifier((8,), max_iter=20),
        ensemble.AdaBoostClassifier(n_estimators=3),
        ensemble.HistGradientBoostingClassifier(max_iter=3),
        ensemble.BaggingClassifier(n_estimators=2),
    )
    for model in classifiers:
        yield type(model).__name__, model.fit(x, labels)
    yield "LogisticRegressionOfNames", linear_model.LogisticRegression().fit(x, names)
    for model in (
        linear_model.LinearRegression(),
        linear_model.Ridge(),
        svm.SVR(),
        ensemble.RandomForestRegressor(4),
    ):
        yield type(model).__name__, model.fit(x, y)
    for model in (
        cluster.KMeans(3, n_init=1),
        decomposition.PCA(2),
        preprocessing.StandardScaler(),
        preprocessing.MinMaxScaler(),
        preprocessing.KBinsDiscretizer(3),
        preprocessing.PolynomialFeatures(2),
        preprocessing.PowerTransformer(),
    ):
        yield type(model).__name__, model.fit(x)
    steps = pipeline.make_pipeline(
        preprocessing.StandardScaler(), decomposition.PCA(2), linear_model.LogisticRegression()
    )
    yield "Pipeline", steps.fit(x, labels)


# Exporting


def export(make: Make, opset: int, dynamo: bool, path: Path) -> None:
    """Export one module of torch."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    options: dict[str, Any] = {"dynamo": dynamo, "opset_version": opset}
    options |= {"external_data": False} if dynamo else {}
    with quiet(), torch.no_grad():
        model, inputs = make()
        torch.onnx.export(model.eval(), inputs, str(path), **options)


def learned(name: str, opset: int, path: Path) -> None:
    """Export one model of scikit-learn, with the outputs that are its converter's default."""
    import numpy as np
    from skl2onnx import to_onnx

    with quiet():
        model = dict(learned_models())[name]
        path.write_bytes(to_onnx(model, np.zeros((1, 4), np.float32), target_opset=opset).SerializeToString())


def jobs(folder: Path) -> Iterator[tuple[Path, Callable[[Path], None]]]:
    """Yield the files to be made, and what makes them."""
    for library, models in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            continue
        for name, make in models():
            for opsets, dynamo in ((TRACED, False), (EXPORTED, True)):
                for opset in opsets:
                    file = folder / f"{library}_{name}_{opset}{'_dynamo' if dynamo else ''}.onnx"
                    yield file, lambda path, m=make, o=opset, d=dynamo: export(m, o, d, path)
    if importlib.util.find_spec("skl2onnx") is not None:
        with quiet():
            names = list(dict(learned_models()))
        for name in names:
            for opset in LEARNED:
                yield (
                    folder / f"sklearn_{name}_{opset}.onnx",
                    lambda path, n=name, o=opset: learned(n, o, path),
                )


def work(make: Callable[[Path], None], path: Path) -> None:
    """Make one file, whole or not at all; leave the reason otherwise."""
    draft = path.with_suffix(".part")
    try:
        make(draft)
        size = draft.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"{size >> 20} MiB are more than are kept")
        draft.replace(path)
    except BaseException as error:
        reason = " ".join(str(error).split())[:300]
        path.with_suffix(".failed").write_text(
            f"{path.stem}: {type(error).__name__}: {reason}\n", encoding="utf-8"
        )
    finally:
        draft.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the models")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="WORD", help="names that have one of these in them"
    )
    parser.add_argument("--seconds", type=float, default=240, help="given to one export")
    arguments = parser.parse_args()
    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    for path, make in jobs(folder):
        wanted = not arguments.only or any(word in path.stem for word in arguments.only)
        if not wanted or path.exists() or path.with_suffix(".failed").exists():
            continue
        process = context.Process(target=work, args=(make, path))
        process.start()
        process.join(arguments.seconds)
        if process.is_alive():
            process.kill()
            process.join()
        if not path.exists() and not path.with_suffix(".failed").exists():
            path.with_suffix(".failed").write_text(f"{path.stem}: ended or took too long\n", encoding="utf-8")
        print(path.stem, "made" if path.exists() else "failed", flush=True)
    notes = sorted(folder.glob("*.failed"))
    (folder / "failed.txt").write_text(
        "".join(note.read_text(encoding="utf-8") for note in notes), encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
