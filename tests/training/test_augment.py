"""Query augmentation: formula and loss by hand, torch against numpy, the switches, and a training that works."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from packages import package
from small_training import train_quickly

torch = package("torch")
transformers = package("transformers")

from airgen.dataset.beir import BeirDataset
from airgen.errors import ModelError, UsageError
from airgen.evaluation import EvaluationOptions as Options
from airgen.evaluation import evaluate, load_systems
from airgen.retrievers import Passages, load_retriever
from airgen.retrievers.lexical.augment import Augmented, Augmenter, QueryReader
from airgen.retrievers.lexical.bm25 import BM25
from airgen.text.analysis import WordPieces, analyser
from airgen.training import train, with_usual_recipe
from airgen.training.ablation import SETTINGS, folder_of
from airgen.training.base_models import load_base
from airgen.training.data import draw, load_training_set, with_negatives
from airgen.training.kinds.augment import BASELINE, AugmentRecipe, AugmentTask, below_bm25, spelling
from airgen.training.kinds.augment_model import EncodedQuery
from airgen.training.recipe import Fold, TrainingRequest
from airgen.training.task import WATCHED, read_card


def task(dataset: Path, bert: Path, **changes: Any) -> AugmentTask:
    recipe = AugmentRecipe(**{"batch_size": 8, "max_query_tokens": 16, **changes})
    data = with_negatives(load_training_set(dataset, split="train"), recipe)
    torch.manual_seed(3)
    return AugmentTask(recipe, data, str(bert), "cpu")


def lively(made: AugmentTask) -> AugmentTask:
    """Weights at which many terms are added and none of w is 0 or 1."""
    with torch.no_grad():
        made.model["added"].weight.mul_(3)
        made.model["weight"].weight.mul_(0.5)
        made.model["weight"].bias.fill_(0.8)
    made.model.eval()
    return made


def weights_of(made: AugmentTask, queries: Sequence[EncodedQuery] | None = None) -> tuple[Any, Any]:
    """The weights of queries (the training queries) and of the terms that are added, without gradients."""
    with torch.no_grad():
        return made.augment.weights(made.queries if queries is None else queries)


def relu(values: Any) -> Any:
    return np.maximum(values, 0)


@pytest.mark.parametrize("terms", ["wordpiece", "words"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("scoring", ["bm25", "bow"])
def test_the_formula_and_the_loss_term_by_term(
    dataset: Path, bert: Path, pooling: Any, scoring: Any, terms: Any
) -> None:
    changes = {"pooling": pooling, "scoring": scoring, "terms": terms}
    made = lively(task(dataset, bert, **changes, l1=0.3, hard_negatives=2))
    data, places = made.data, [0, 1, 2]
    got = made.loss((0, places))
    # All of it again, from the texts, with nothing of the task but its weights.
    corpus = [made.retriever.analyser(data.corpus.full_text(p)) for p in range(len(data.corpus))]
    vocabulary = list(dict.fromkeys(term for terms in corpus for term in terms))
    number, mean = len(corpus), sum(map(len, corpus)) / len(corpus)
    df = np.array([sum(term in terms for terms in corpus) for term in vocabulary])
    idf = np.log((number - df + 0.5) / (df + 0.5) + 1)

    def term_of(token: str) -> str:  # all words in this test are single tokens
        return token if terms == "wordpiece" else (*made.retriever.analyser(token), token)[0]

    def f(passage: int) -> Any:
        terms = corpus[passage]
        count = np.array([terms.count(term) for term in vocabulary], float)
        if scoring == "bow":
            return (count > 0).astype(float)
        return idf * count * 1.9 / (count + 0.9 * (1 - 0.4 + 0.4 * len(terms) / mean))

    pieces = WordPieces("en", wordpiece=str(bert)).tokenizer
    queries, added = [], []
    for place in places:
        ids = pieces.encode(data.examples[place].query).ids
        states = made.model["encoder"](torch.tensor([ids])).last_hidden_state[0].detach().numpy().astype(float)
        pooled = states[0] if pooling == "cls" else states.mean(0) / np.linalg.norm(states.mean(0))
        head = {name: made.model[name].weight.detach().numpy().astype(float) for name in ("added", "weight")}
        bias = {name: made.model[name].bias.detach().numpy().astype(float) for name in ("added", "weight")}
        a = relu(head["added"] @ pooled + bias["added"])
        at = relu(states @ head["weight"][0] + bias["weight"][0])
        tokens = [term_of(pieces.id_to_token(i)) for i in ids]
        w = np.array([max([at[i] for i, t in enumerate(tokens) if t == term], default=1.0) for term in vocabulary])
        bow = np.array([float(term in tokens) for term in vocabulary])
        queries.append(w * (bow + a))
        added.append(a)
    drawn = [draw(data.examples[place], 2, 42, 0) for place in places]
    passages = [positive for positive, _ in drawn] + [p for _, negatives in drawn for p in negatives]
    losses = []
    for row, query in enumerate(queries):
        scores = {
            place: float(query @ f(p))
            for place, p in enumerate(passages)
            if place == row or p not in data.examples[places[row]].positives
        }
        losses.append(math.log(sum(math.exp(s - scores[row]) for s in scores.values())))
    penalty = np.mean([a @ np.sqrt(df / number) for a in added])
    got = {name: float(value.detach()) for name, value in got.items()}
    assert got["rank"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert got["penalty"] == pytest.approx(penalty, rel=1e-4)
    assert got["loss"] == pytest.approx(np.mean(losses) + 0.3 * penalty, rel=1e-4)
    assert got["added"] == pytest.approx(np.mean([(a > 0).sum() for a in added]))


@pytest.fixture
def distilbert(bert: Path, tmp_path: Path) -> Path:
    """A random DistilBERT with the tokenizer of the small BERT."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=64,
        pad_token_id=0,
    )  # fmt: skip
    transformers.DistilBertModel(config).save_pretrained(tmp_path / "distil")
    tokenizer.save_pretrained(tmp_path / "distil")
    return tmp_path / "distil"


@pytest.mark.parametrize(
    ("base", "pooling", "terms"),
    [("bert", "cls", "words"), ("bert", "mean", "wordpiece"), ("distilbert", "mean", "words")],
)
def test_numpy_gives_what_torch_trained(
    dataset: Path, tmp_path: Path, base: str, pooling: Any, terms: Any, request: pytest.FixtureRequest
) -> None:
    made = lively(task(dataset, request.getfixturevalue(base), pooling=pooling, terms=terms))
    made.save(tmp_path)
    assert task(dataset, tmp_path).model["encoder"].config.model_type == "bert"
    system = Augmented(tmp_path)
    stored = pytest.importorskip("safetensors.numpy").load_file(tmp_path / "model.safetensors")
    assert system.facts.parameters == sum(array.size for array in stored.values())
    system.index(made.data.corpus)
    texts = [example.query for example in made.data.examples]
    texts[0] = "The valleys of Anselm, and a harbour's lantern; lanterns, anselm"  # words of several tokens
    wanted, _ = weights_of(made, made.encode(texts))
    for text, row in zip(texts, wanted.numpy(), strict=True):
        found = system.weights(text)
        assert set(found) & set(made.names) == {made.names[column] for column in np.flatnonzero(row)}
        for column in np.flatnonzero(row):
            assert found[made.names[column]] == pytest.approx(row[column], rel=2e-4, abs=1e-5)
    # The score of a hit is the formula's, without the factor k1 + 1.
    hits = system.search(texts[:3], 5)
    for row in range(3):
        vectors = made.documents[hits.positions[row]].toarray()
        np.testing.assert_allclose(hits.scores[row] * 1.9, vectors @ wanted[row].numpy(), rtol=3e-4)


def test_switches(dataset: Path, bert: Path, tmp_path: Path) -> None:
    def saved(name: str, **changes: Any) -> tuple[AugmentTask, Augmented]:
        made = lively(task(dataset, bert, **changes))
        (tmp_path / name).mkdir()
        made.save(tmp_path / name)
        system = Augmented(tmp_path / name)
        system.index(made.data.corpus)
        return made, system

    text = "amber bridge amber"
    made, system = saved("full")
    assert float(made.penalty[0]) == pytest.approx(math.sqrt(made.retriever.document_frequency(made.names[0]) / 40))
    assert any(term.change == "added" for term in system.explain(text))
    assert [term.term for term in system.explain(text) if term.in_query] == ["amber", "bridge"]
    _, system = saved("no-weights", weights=False)
    assert {term.weight for term in system.explain(text)} == {1.0}
    _, system = saved("no-augmentation", augmentation=False)
    assert [term.term for term in system.explain(text)] == ["amber", "bridge"]
    made, _ = saved("uniform", weighted_l1=False)
    assert made.penalty.tolist() == [1.0] * len(made.names)
    _, system = saved("bow", scoring="bow")
    assert system.describe()["model"] and set(np.unique(system.postings.impacts)) == {1.0}


def test_the_words_of_a_query_and_their_tokens(bert: Path) -> None:
    read = QueryReader(bert, 8, "words", "en")
    query = read(["The candles, of amber"])[0]  # t ##h ##e candle ##s o
    assert (query.terms, query.rest) == ([None] * 4 + ["candl"] * 2 + [None] * 2, ["amber"]) and len(query.ids) == 8
    assert [one.terms for one in read(["", "\ud800 amber"])] == [[None, None], [None, "amber", None]]
    beyond = read(["amber " * 10_000])[0]
    assert beyond.terms == [None, *["amber"] * 6, None] and len(beyond.rest) == 9_994
    # W starts from the word that the corpus has most often of those with the term.
    corpus = Passages(["a", "b"], ["Lanterns and lanterns, a lantern", "the harbour"])
    tokenizer = load_base(str(bert)).tokenizer
    found = spelling(analyser("en"), corpus, ["lantern", "harbour"], tokenizer)
    tokens = [" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in found]
    assert tokens == ["[CLS] lantern ##s [SEP]", "[CLS] harbour [SEP]"]


@pytest.mark.parametrize("terms", ["wordpiece", "words"])
def test_a_start_from_terms_that_adds_none_is_bm25(dataset: Path, bert: Path, tmp_path: Path, terms: Any) -> None:
    made = task(dataset, bert, start="terms", start_added=3, pooling="mean", terms=terms)
    made.model.eval()
    _, added = weights_of(made)
    assert float((added > 0).sum(-1).float().mean()) == pytest.approx(3, abs=0.4) and float(added.max()) <= 1.1
    made = task(dataset, bert, start="terms", start_added=0, pooling="mean", terms=terms)
    made.model.eval()
    weighted, added = weights_of(made)
    assert not added.any()
    for query, row in zip(made.queries, weighted, strict=True):
        assert row.nonzero().flatten().tolist() == sorted(query.terms)
        assert set(row[query.terms].tolist()) == {1.0}
    with made.torch.no_grad():
        figures = made.evaluate()
    assert figures[f"{BASELINE} {WATCHED}"] == pytest.approx(figures[WATCHED]) and not below_bm25(figures)
    assert "! below BM25, which has dev nDCG@10" in below_bm25({**figures, WATCHED: figures[WATCHED] - 0.01})
    assert "try more training queries" in below_bm25({**figures, WATCHED: 0.0}, Path("train-augment"))
    assert not below_bm25({WATCHED: 0.1})  # another kind of training
    made.save(tmp_path)
    system, plain = Augmented(tmp_path), BM25(analyser={"wordpiece": str(bert)} if terms == "wordpiece" else None)
    for each in (system, plain):
        each.index(made.data.corpus)
    texts = [" ".join(dict.fromkeys(example.query.split())) for example in made.data.examples]
    ours, theirs = system.search(texts, 10), plain.search(texts, 10)
    np.testing.assert_array_equal(ours.positions, theirs.positions)
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-5)


def test_few_queries_have_the_recipe_that_begins_at_bm25(dataset: Path, bert: Path, tmp_path: Path) -> None:
    """And with it the default is not below BM25, where the paper's start from a random W is."""
    request = TrainingRequest(dataset, str(bert), tmp_path / "m", quiet=True, device="cpu")
    small, queries = with_usual_recipe("augment", request)
    assert (small.recipe, queries) == (Path("train-augment"), 24)
    assert with_usual_recipe("encoder", request) == (request, 0)
    assert with_usual_recipe("augment", replace(request, recipe=Path("augment-nq")))[1] == 0
    assert AugmentTask.usual_recipe(5000) is None
    trained = train("augment", request)
    assert trained.figures[WATCHED] >= trained.figures[f"{BASELINE} {WATCHED}"] > 0.3
    assert read_card(tmp_path / "m")["recipe"]["terms"] == "words"  # type: ignore[index]
    assert train("augment", request).trained_now is False


def test_the_ablation_is_table_2(dataset: Path, bert: Path, tmp_path: Path) -> None:
    words = ("train", "augment", "--on", dataset, "--base", bert, "--out", tmp_path / "a", "--ablate", "--set",
             "max_steps=1", "--device", "cpu")  # fmt: skip
    found = json.loads(call(*words, "--json"))
    assert [row["setting"] for row in found["rows"]] == ["BM25", *SETTINGS]
    assert (found["queries"], found["which"]) == (8, "dev")
    assert found["rows"][0]["added"] is None and found["rows"][-1]["added"] == 0
    assert all(0 <= row["accuracy_5"] <= row["accuracy_20"] <= 1 and row["latency_ms"] > 0 for row in found["rows"])
    recipes = {name: (read_card(tmp_path / "a" / folder_of(name)) or {})["recipe"] for name in SETTINGS}
    assert recipes["without weight"]["weights"] is False and recipes["full setting"]["weights"] is True
    assert recipes["without BM25 scoring and weighted L1"]["scoring"] == "bow"
    assert "| without weighted L1" in call(*words)  # all trained: nothing is done twice
    with pytest.raises(UsageError, match="--ablate works only with"):
        call("train", "encoder", *words[2:])


@pytest.mark.nightly
def test_it_learns_what_words_cannot_know(new_dataset: Callable[..., Path], bert: Path, tmp_path: Path) -> None:
    """Queries share no word with their passages, so BM25 finds nothing; the counterparts of words can be learned."""
    path = new_dataset(paraphrased=True, passages=60, splits={"train": 300, "dev": 40, "test": 40})
    changes = ("epochs=10", "batch_size=16", "pooling=mean", "learning_rate=1e-3", "head_learning_rate=1e-2")
    trained = train_quickly("augment", path, bert, tmp_path / "m", *changes)
    assert trained.history[0]["nDCG@10"] < 0.2
    assert trained.figures["nDCG@10"] > 0.5
    (tmp_path / "systems.yaml").write_text(
        "systems:\n  - {name: bm25, kind: bm25}\n  - {name: learned, kind: augment, path: m}\n"
    )
    systems = load_systems(tmp_path / "systems.yaml")
    words, learned = evaluate(path, systems, tmp_path / "results", Options(folder=tmp_path))
    assert words.score < 0.05
    assert learned.score > 0.5
    assert learned.description["family"] == "augment"


def test_a_fold_is_left_beside_the_model_from_which_training_goes_on(dataset: Path, bert: Path, tmp_path: Path) -> None:
    changes = ("epochs=3", "keep=last", "patience=0")
    train_quickly("augment", dataset, bert, tmp_path / "a", *changes, split="test", fold=Fold(1, 4))
    held = json.loads((tmp_path / "a" / "card.json").read_text())["data"]["held_out_query_ids"]
    lines = (tmp_path / "a" / "held-out.tsv").read_text().splitlines()[1:]
    assert sorted(line.split("\t")[0] for line in lines) == held and len(held) == 2
    assert BeirDataset.open(dataset).qrels("test").labels.keys() >= set(held)
    first = Augmenter(tmp_path / "a")
    second = task(dataset, tmp_path / "a")
    np.testing.assert_array_equal(second.model["added"].weight.detach().numpy(), first._rows)
    second.save(tmp_path)
    assert Augmenter(tmp_path)("amber bridge candle") == first("amber bridge candle")


def test_words_beyond_the_encoder_have_the_mean_weight(dataset: Path, bert: Path, tmp_path: Path) -> None:
    made = lively(task(dataset, bert, max_query_tokens=5, augmentation=False))
    made.save(tmp_path)
    system = Augmented(tmp_path)
    text = "amber bridge candle desert engine"  # two or three of them are read, in addition to [CLS] and [SEP]
    terms = {term.term: term.weight for term in system.explain(text)}
    assert list(terms) == text.split()
    weights = list(terms.values())
    assert weights[0] != weights[1]
    assert weights[3:] == pytest.approx([np.mean(weights[:3])] * 2)
    weighted, _ = weights_of(made, made.encode([text, "candle", "zzz"]))
    row = weighted[0].numpy()
    assert {made.names[c]: row[c] for c in np.flatnonzero(row)} == pytest.approx(terms, rel=2e-4)


@pytest.mark.parametrize("terms", ["wordpiece", "words"])
def test_odd_queries(dataset: Path, bert: Path, tmp_path: Path, terms: Any) -> None:
    lively(task(dataset, bert, terms=terms)).save(tmp_path)
    system = Augmented(tmp_path)
    for text in ("", "   ", "[SEP] [CLS]", "\ud800", "zzz 中文 \x00", "amber " * 500):
        system.index(Passages(["a", "b"], ["amber bridge", text]))
        assert system.search([text], 2).positions.shape == (1, 2)
        assert not {term.term for term in system.explain(text)} & {"[SEP]", "[CLS]", "[UNK]", "[PAD]"}


def test_what_is_no_model_and_no_base(dataset: Path, bert: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a model of `airgen train augment`"):
        load_retriever({"kind": "augment", "path": str(tmp_path)})
    task(dataset, bert).save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08" + b"\0" * 20)
    with pytest.raises(ModelError, match="cannot be read"):
        Augmented(tmp_path)
    transformers.AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path / "base")
    config = transformers.ElectraConfig(vocab_size=70, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    transformers.ElectraModel(config).save_pretrained(tmp_path / "base")
    with pytest.raises(ModelError, match="needs a BERT or DistilBERT with gelu, the base is a electra"):
        task(dataset, tmp_path / "base")


def test_the_command_line(dataset: Path, bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from airgen.cli import main

    def call(*words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["train", *words])
        assert (stop.value.code or 0) == code
        captured = capsys.readouterr()
        return str(captured.out + captured.err)

    out = str(tmp_path / "m")
    words = ["augment", "--on", str(dataset), "--base", str(bert), "--out", out, "--set", "epochs=1", "--device", "cpu"]
    assert json.loads(call(*words, "--json"))["trained_now"] is True
    assert "nothing to do" in call(*words)
    terms = json.loads(call("explain", out, "amber bridge", "--on", str(dataset), "--json"))[0]["terms"]
    assert {term["term"] for term in terms if term["in_query"]} == {"amber", "bridg"}  # stems: few queries
    assert all(term["passages"] > 0 for term in terms)
    assert call("explain", out, "amber bridge", "--top", "1").startswith("amber bridge\nterm")
    recipe = call("recipe", "augment")
    assert "weighted_l1: true" in recipe and "Table 2" in recipe
    assert "is for testing" in call(*words[:-4], "--split", "test", code=2)
    call("nothing", code=2)


@pytest.mark.parametrize("terms", ["words", "wordpiece"])
def test_an_engine_that_takes_boosts_ranks_the_same(dataset: Path, bert: Path, tmp_path: Path, terms: Any) -> None:
    """tantivy parses Lucene's syntax and has Lucene's BM25 (k1 1.2, b .75): it knows nothing of the model."""
    tantivy = pytest.importorskip("tantivy")
    from airgen.training.kinds.augment import export_lucene, lucene_query

    weights = {"and": 2.0, 'a"b': 1.0, "c\\d": 0.5, "##ing": 0.25, "tiny": 1e-9}
    assert lucene_query(weights) == '"and"^1 "a\\"b"^0.5 "c\\\\d"^0.25 "##ing"^0.125' and not lucene_query({})

    (tmp_path / "model").mkdir()
    lively(task(dataset, bert, terms=terms, k1=1.2, b=0.75)).save(tmp_path / "model")
    written = export_lucene(tmp_path / "model", dataset, tmp_path / "out", "train")
    assert (written.k1, written.b) == (1.2, 0.75) and written.terms > 3
    schema = tantivy.SchemaBuilder().add_text_field("id", stored=True, tokenizer_name="raw")
    schema = schema.add_text_field("contents", tokenizer_name="whitespace").build()
    index = tantivy.Index(schema)
    index.register_tokenizer(
        "whitespace", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    )  # fmt: skip
    writer = index.writer(num_threads=1)
    for line in (written.corpus / "corpus.jsonl").read_text("utf-8").splitlines():
        writer.add_document(tantivy.Document(**json.loads(line)))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    opened = BeirDataset.open(dataset)
    system = load_retriever({"kind": "augment", "path": str(tmp_path / "model")})
    corpus = Passages.of(opened.passages(), "en")
    system.index(corpus)
    lines = written.queries.read_text("utf-8").splitlines()
    assert len(lines) == written.asked > 3
    for line in lines:
        id_, query = line.split("\t")
        hits = searcher.search(index.parse_query(query, ["contents"]), 10).hits
        theirs = {searcher.doc(place)["id"][0]: score for score, place in hits}
        ours = system.search([opened.queries()[id_].text], len(corpus))
        scores = {corpus.ids[at]: one for at, one in zip(ours.positions[0], ours.scores[0], strict=True) if at >= 0}
        ratios = np.array([scores[name] / value for name, value in theirs.items()])
        assert len(theirs) >= 1 and np.ptp(ratios) < 0.01 * ratios.mean()  # boosts and lengths are rounded
