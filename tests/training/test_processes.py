"""Two processes under torch's launcher give the weights of one, also when one of them was killed on the way."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packages import package

import airgen

torch = package("torch")
package("sentence_transformers")


KILLED = """
import os, signal
if os.environ.get("RANK") == "1":
    from airgen.training.kinds.encoder import EncoderTask
    inner, steps = EncoderTask.loss, []
    def loss(self, batch):
        steps.append(batch)
        if len(steps) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(self, batch)
    EncoderTask.loss = loss
"""
"""Python runs a module of this name at its start: the second process dies at its fourth step."""


ENCODER = ("batch_size=8", "epochs=2", "max_length=16", "hard_negatives=1", "negatives=bm25", "chunk=4",
           "learning_rate=1e-3", "checkpoint_every=1")  # fmt: skip


def train(
    folder: Path,
    out: str,
    base: Path,
    data: Path,
    processes: int,
    *more: str,
    killed: bool = False,
    kind: str = "encoder",
    changes: tuple[str, ...] = ENCODER,
) -> Path:
    """`airgen train` by so many processes."""
    command = ["-m", "airgen", "train", kind, "--on", str(data), "--base", str(base), "--out", str(folder / out)]
    for change in (*changes, *more):
        command += ["--set", change] if "=" in change else [change]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    paths = [str(Path(airgen.__file__).parents[1])]
    if killed:
        paths.insert(0, str(folder / "killed"))
        (folder / "killed").mkdir()
        (folder / "killed" / "sitecustomize.py").write_text(KILLED, "utf-8")
    place = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), *command, "--device", "cpu"],
        env={**os.environ, **place}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode != 0) is killed, done.stderr
    if killed:
        return folder / out
    assert done.stdout.count("(its README.md describes the training)") == 1
    return folder / out


@pytest.fixture
def still_bert(new_bert: Callable[..., Path]) -> Path:
    """A random BERT without dropout, whose masks would differ between one process and two."""
    folder = new_bert()
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


@pytest.mark.nightly
def test_two_processes_give_the_weights_of_one(tmp_path: Path, still_bert: Path, dataset: Path) -> None:
    from safetensors.torch import load_file

    one = train(tmp_path, "one", still_bert, dataset, 1)
    two = train(tmp_path, "two", still_bert, dataset, 2)
    weights, others = (load_file(folder / "model.safetensors") for folder in (one, two))
    before = load_file(still_bert / "model.safetensors")
    assert weights.keys() == others.keys()
    assert max(float((weights[name] - others[name]).abs().max()) for name in weights) < 1e-5
    word = "embeddings.word_embeddings.weight"
    assert float((weights[word] - before[f"bert.{word}"]).abs().max()) > 1e-3  # the training has done something
    cards = [json.loads((folder / "card.json").read_text("utf-8")) for folder in (one, two)]
    assert cards[0]["fingerprint"] == cards[1]["fingerprint"] and cards[0]["steps"] == cards[1]["steps"] == 6
    # The second process is killed at the fourth step: the launcher ends the first one, and both go on together.
    cut = train(tmp_path, "cut", still_bert, dataset, 2, killed=True)
    assert not cut.exists() and list((tmp_path / "cut.training").glob("*/airgen.json"))
    train(tmp_path, "cut", still_bert, dataset, 2, "--resume")
    assert (cut / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


_SMALL = ("batch_size=8", "max_length=16", "epochs=1", "dev_passages=20", "learning_rate=1e-3", "keep=last")


@pytest.mark.nightly
def test_the_pairs_of_a_cross_encoder_are_shared(tmp_path: Path, still_bert: Path, dataset: Path) -> None:
    """Its loss is a mean over pairs, so two processes with half of them each give the weights of one."""
    from safetensors.torch import load_file

    one, two = (
        train(tmp_path, str(count), still_bert, dataset, count, kind="cross-encoder", changes=_SMALL)
        for count in (1, 2)
    )
    weights, others = (load_file(folder / "model.safetensors") for folder in (one, two))
    before = load_file(still_bert / "model.safetensors")
    assert max(float((weights[name] - others[name]).abs().max()) for name in weights) < 1e-5
    word = "bert.embeddings.word_embeddings.weight"
    assert float((weights[word] - before[word]).abs().max()) > 1e-4
    assert json.loads((two / "card.json").read_text("utf-8"))["costs"]["processes"] == 2


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["augment", "splade", "doct5query", "deepct", "sparta", "colbert"])
def test_every_kind_is_trained_by_two_processes(kind: str, tmp_path: Path, bert: Path, dataset: Path) -> None:
    base, changes = bert, _SMALL if kind != "augment" else ("batch_size=8", "epochs=1")
    if kind == "doct5query":
        import transformers

        base, changes = tmp_path / "t5", (*_SMALL, "max_query_tokens=6", "dev_queries=1")
        vocabulary = transformers.AutoTokenizer.from_pretrained(bert)
        config = transformers.T5Config(
            vocab_size=len(vocabulary), d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, pad_token_id=0,
            eos_token_id=3, decoder_start_token_id=0,
        )  # fmt: skip
        transformers.T5ForConditionalGeneration(config).save_pretrained(base)
        vocabulary.save_pretrained(base)
    out = train(tmp_path, "two", base, dataset, 2, kind=kind, changes=changes)
    card = json.loads((out / "card.json").read_text("utf-8"))
    assert card["costs"]["processes"] == 2 and card["steps"] == 3 and "loss" in card["history"][-1]
