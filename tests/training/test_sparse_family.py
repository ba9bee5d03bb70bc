"""BEIR's sparse family: document expansion, DeepCT and SPARTA, each against its definition."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from packages import package
from small_training import train_quickly

torch = package("torch")
transformers = package("transformers")
stand_in_gpu = package("stand_in_gpu")


from airgen.dataset.beir import BeirDataset, BeirPassage
from airgen.errors import DatasetError, ModelError, UsageError
from airgen.retrievers import load_retriever
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.lexical.expanded import DeepCT, Expanded, TermWeigher
from airgen.retrievers.passages import Passages
from airgen.retrievers.sparse import Sparta, SpartaEncoder
from airgen.training.data import load_training_set, read_corpus
from airgen.training.kinds.sparse_family import QueryWriterRecipe, QueryWriterTask, impacts
from airgen.training.mining.expansion import Seq2Seq, _Draw, _gumbel, expand, queries_of


class Letters:
    """Words of a passage, twice, as its queries."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def texts_at_once(self, count: int) -> int:
        return 1

    def write(self, texts: Sequence[str], count: int, seeds: Sequence[int]) -> list[list[str]]:
        self.asked += texts
        return [[f"{text} {seed % 7}"] * count for text, seed in zip(texts, seeds, strict=True)]


PASSAGES = [BeirPassage("a", "cats purr"), BeirPassage("b", "dogs bark", "Pets"), BeirPassage("c", "cows \u2028 moo")]


def test_an_expanded_passage_is_found_by_its_queries(tmp_path: Path) -> None:
    corpus = Passages(["a", "b"], ["cats purr", "dogs bark"])
    system = Expanded({"a": ["feline sound", "a third"], "z": ["elsewhere"]}, queries=1)
    system.index(corpus)
    assert system.search(["feline"], 2).positions[0].tolist() == [0, -1] and system.expanded == 1
    assert system.search(["third"], 2).positions[0].tolist() == [-1, -1]
    plain = BM25()
    plain.index(Passages(["a", "b"], ["cats purr feline sound", "dogs bark"]))
    assert np.array_equal(plain.search(["cats sound"], 2).scores, system.search(["cats sound"], 2).scores)
    other = Expanded({"a": ["feline sounds"]}, queries=1)
    assert other.describe()["expansions"] != system.describe()["expansions"]
    with pytest.raises(UsageError, match="none of the 1 expanded passages"):
        Expanded({"z": ["x"]}).index(corpus)
    path = tmp_path / "x.jsonl"
    for text, reason in (('{"_id": "a"}\n', "x.jsonl:1"), ("no json\n", ":1: not JSON"), ("", "airgen train expand")):
        path.write_text(text) if text else path.unlink()
        with pytest.raises(DatasetError, match=reason):
            Expanded(path)


def test_expansions_go_on_where_they_stopped(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert expand(PASSAGES, Letters(), whole, count=2) == 3
    lines = whole.read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl.part").write_bytes(lines[0] + lines[1][:-9])  # killed within the second row
    model = Letters()
    assert expand(PASSAGES, model, cut, count=2) == 2 and model.asked == ["Pets dogs bark", "cows \u2028 moo"]
    assert cut.read_bytes() == whole.read_bytes() and not (tmp_path / "cut.jsonl.part").exists()
    # Order does not matter to what a passage gets.
    expand(PASSAGES[::-1], Letters(), tmp_path / "back.jsonl", count=2)
    assert sorted((tmp_path / "back.jsonl").read_bytes().splitlines(keepends=True)) == sorted(lines)


def tiny_t5(bert: Path, place: Path) -> Path:
    """A random T5 of a few thousand weights, with the tokenizer of the small BERT."""
    vocabulary = transformers.AutoTokenizer.from_pretrained(bert)
    config = transformers.T5Config(
        vocab_size=len(vocabulary), d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, pad_token_id=0,
        eos_token_id=3, decoder_start_token_id=0, dropout_rate=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.T5ForConditionalGeneration(config).save_pretrained(place)
    vocabulary.save_pretrained(place)
    return place


def test_a_sequence_to_sequence_model_gives_queries(bert: Path, tmp_path: Path) -> None:
    model = Seq2Seq(str(tiny_t5(bert, tmp_path / "t5")), max_new_tokens=6)
    [first] = model.write(["amber bridge"], 5, [1])
    torch.manual_seed(99)  # what was drawn before does not matter
    assert model.write(["amber bridge"], 5, [1]) == [first] and 1 <= len(first) <= 5
    assert model.write(["amber bridge"], 5, [2]) != [first]
    # Nor do the other texts in the batch, however many and in whatever order.
    texts = ["amber bridge", "candle desert engine falcon", "island", "jungle kettle lantern mirror needle orchard"]
    batch = model.write(texts, 5, [1, 2, 3, 4])
    assert batch[0] == first and all(1 <= len(queries) <= 5 for queries in batch)
    assert model.write(texts[::-1], 5, [4, 3, 2, 1]) == batch[::-1]
    with stand_in_gpu.stand_in_gpus(allocation=1 << 14) as gpus:  # fewer are written at once
        small = Seq2Seq(str(tmp_path / "t5"), max_new_tokens=6, device="cpu")
        small.parts = model.parts
        assert small.write(texts, 5, [1, 2, 3, 4]) == batch and gpus.refused
    with pytest.raises(ModelError, match="cannot be loaded"):
        Seq2Seq(str(tmp_path / "nothing")).write(["a"], 1, [1])


def test_a_draw_has_the_probabilities_of_the_ten_best_tokens() -> None:
    """Against the definition: softmax over the ten likeliest tokens, all others never."""
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(3)) * 2
    rows = 20_000
    noise = torch.from_numpy(_gumbel(7, (rows, 1, 10)))
    drawn = _Draw(torch, noise)(torch.zeros(rows, 1, dtype=torch.long), logits.expand(rows, -1)).argmax(dim=-1)
    best, tokens = logits[0].topk(10)
    wanted = torch.zeros(40).index_put((tokens,), best.softmax(dim=-1))
    counts = torch.bincount(drawn, minlength=40) / rows
    assert float((counts - wanted).abs().max()) < 0.012 and float(counts[wanted == 0].sum()) == 0


def test_doct5query_learns_to_write_the_words_of_a_passage(
    new_dataset: Callable[..., Path], bert: Path, tmp_path: Path
) -> None:
    dataset = new_dataset(passages=12)
    base, out = tiny_t5(bert, tmp_path / "t5"), tmp_path / "doct5query"
    changes = ("epochs=10", "learning_rate=1e-2", "max_query_tokens=8", "dev_queries=2", "dev_passages=6", "patience=0")
    trained = train_quickly("doct5query", dataset, base, out, *changes, "keep=last")
    losses = [entry["loss"] for entry in trained.history[1:]]
    assert losses[-1] < 0.75 * losses[0] and set(trained.figures) == {"nDCG@10", "Recall@100"}
    # The trained folder is what `train expand` takes.
    file = tmp_path / "queries.jsonl"
    call("train", "expand", dataset, "--model", out, "--out", file, "--count", 2, "--json")
    assert len(file.read_text().splitlines()) == 12


def test_the_loss_of_doct5query_is_that_of_the_queries_tokens(dataset: Path, bert: Path, tmp_path: Path) -> None:
    """By hand: minus the mean log-probability of the target's tokens, without padding."""
    recipe = QueryWriterRecipe(batch_size=4, max_length=24, max_query_tokens=8)
    data = load_training_set(dataset, split="train")
    task = QueryWriterTask(recipe, data, str(tiny_t5(bert, tmp_path / "t5")), "cpu")
    task.model.eval()
    batch = task.batches(0)[0]
    sample = task.sample(batch, 0)
    total, count = 0.0, 0
    for query, place in zip(sample.queries, sample.places[:, 0].tolist(), strict=True):
        passage = task.tokenizer(data.corpus.full_text(place), return_tensors="pt", truncation=True, max_length=24)
        target = task.tokenizer(query, truncation=True, max_length=8)["input_ids"]
        given = torch.tensor([[0, *target[:-1]]])
        with torch.inference_mode():
            logits = task.model(
                input_ids=passage["input_ids"], attention_mask=passage["attention_mask"], decoder_input_ids=given
            ).logits[0]
        total -= float(torch.log_softmax(logits, dim=-1)[range(len(target)), target].sum())
        count += len(target)
    assert float(task.loss(batch)["loss"].detach()) == pytest.approx(total / count, rel=1e-4)


def test_written_queries_become_pairs(dataset: Path, tmp_path: Path) -> None:
    (tested, *_) = [query.text for query in BeirDataset.open(dataset).queries().values()]
    ids = [passage.id for passage in BeirDataset.open(dataset).passages()]
    written = {ids[0]: ["one  thing", "one thing", tested.upper()], ids[1]: ["two"]}
    rows = [{"_id": key, "queries": queries} for key, queries in written.items()]
    file = tmp_path / "queries.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call("train", "pairs", dataset, "--queries", file, "--out", tmp_path / "pairs", "--json")
    made = BeirDataset.open(tmp_path / "pairs")
    texts = {key: query.text for key, query in made.queries().items()}
    labels = made.qrels("train").labels
    assert sorted((texts[query], *row) for query, row in labels.items()) == [("one thing", ids[0]), ("two", ids[1])]
    counts = made.manifest["kinds"]["written"]
    assert counts == {
        "is a query of the dataset": 1, "pairs": 2, "passages": 40, "passages without a query": 38,
    }  # fmt: skip
    assert queries_of({"q1": {"a": 1, "b": 0}, "q2": {"a": 2}}, {"q1": "one", "q2": "two"}) == {"a": ["one", "two"]}
    call("train", "expand", dataset, "--from", "train", "--out", tmp_path / "q.jsonl", "--json")
    assert len((tmp_path / "q.jsonl").read_text().splitlines()) > 5
    with pytest.raises(UsageError, match="is for testing"):
        call("train", "expand", dataset, "--from", "test", "--out", tmp_path / "q.jsonl", "--json")
    with pytest.raises(UsageError, match="works with a single source"):
        call("train", "pairs", dataset, dataset, "--queries", file, "--out", tmp_path / "other", "--json")


def test_genq_from_a_corpus_in_one_command(bert: Path, dataset: Path, tmp_path: Path) -> None:
    words = " ".join(read_corpus(dataset).texts[:6]).split()
    (tmp_path / "docs.jsonl").write_text(
        "".join(json.dumps({"id": str(n), "text": " ".join(words[n : n + 8])}) + "\n" for n in range(8))
    )
    (tmp_path / "own.yaml").write_text(
        "name: own\nlanguage: en\ndomain: tech\nlicence: CC0-1.0\nsource: test\n"
        "reader: {kind: jsonl, path: docs.jsonl}\n"
        "clean: {min_tokens: 1, language: 'off', boilerplate: 'off'}\n"
    )
    out, quick = tmp_path / "genq", ("batch_size=8", "chunk=8", "max_steps=2", "max_length=16")
    base = tiny_t5(bert, tmp_path / "t5")
    asked = ["train", "genq", tmp_path / "own.yaml", "--base", bert, "--out", out, "--count", 2, "--json"]
    asked += [word for change in quick for word in ("--set", change)]
    found = json.loads(call(*asked, "--model", base))
    assert found["steps"] == 2 and found["pairs"] >= 8 and found["trained_now"]
    assert len((tmp_path / "genq.queries.jsonl").read_text().splitlines()) == 8
    assert not json.loads(call(*asked, "--model", base))["trained_now"]  # it goes on: nothing is left to do
    system = load_retriever({"kind": "dense", "embedder": str(out)})
    system.index(Passages(["a", "b"], ["amber bridge", "candle desert"]))
    assert system.search(["amber"], 2).positions.shape == (1, 2)
    with pytest.raises(UsageError, match="exactly one of --model"):
        call(*asked)


class Weights(TermWeigher):
    def weights(self, texts: Any) -> list[dict[str, float]]:
        return [{word: 0.02 * len(word) for word in text.split()} for text in texts]


def test_deepct_repeats_words_by_their_weight() -> None:
    system, plain = DeepCT(Weights("made"), scale=100), BM25()
    assert system.pseudo_document({"cat": 0.024, "dog": 0.026, "the": 0.004, "no": -0.5}) == "cat cat dog dog dog "
    system.index(Passages(["a", "b"], ["whale cat", "dog whale whale"]))
    plain.index(Passages(["a", "b"], ["whale " * 10 + "cat " * 6, "dog " * 6 + "whale " * 10]))
    found = [each.search(["whale", "cat dog"], 2).scores for each in (system, plain)]
    assert np.array_equal(*found)


def test_deepct_learns_which_words_queries_name(new_dataset: Callable[..., Path], bert: Path, tmp_path: Path) -> None:
    data = new_dataset(splits={"train": 60, "dev": 8})
    # Only one word of six is ever asked for: amber.
    rows = [json.loads(line) for line in (data / "corpus.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        words = row["text"].replace("amber", "copper").split()
        row["text"] = " ".join([*words[: number % 7], "amber", *words[number % 7 :]])  # its place must not tell
    (data / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
    (data / "queries.jsonl").write_text(
        "".join(json.dumps({**row, "text": f"amber {n}"}) + "\n" for n, row in enumerate(asked))
    )
    train_quickly("deepct", data, bert, tmp_path / "deepct", "epochs=20", "learning_rate=1e-2", "keep=last")
    weights = TermWeigher(str(tmp_path / "deepct")).weights(["amber bridge candle", "needle amber"])
    for of_text in weights:
        assert of_text["amber"] > 0.3 + max(weight for word, weight in of_text.items() if word != "amber")
    system = load_retriever({"kind": "deepct", "model": str(tmp_path / "deepct")})
    system.index(read_corpus(data))
    assert (system.search(["amber"], 5).positions >= 0).all()


def test_deepct_reads_words_not_pieces(bert: Path) -> None:
    """A word in several pieces is one word, with the weight of its first piece; a word that comes again its highest."""
    torch.manual_seed(1)
    model = transformers.BertForTokenClassification.from_pretrained(bert, num_labels=1).eval()
    weigher = TermWeigher("made")
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    weigher.__dict__["parts"] = (model, tokenizer)
    text = "amber xyz amber"
    with torch.inference_mode():
        scores = model(**tokenizer(text, return_tensors="pt")).logits[0, :, 0].tolist()
    # [CLS] amber x ##y ##z amber [SEP]
    assert weigher.weights([text]) == [
        {"amber": pytest.approx(max(scores[1], scores[5])), "xyz": pytest.approx(scores[2])}
    ]
    assert weigher.weights(["", text])[0] == {}


def test_spartas_impacts_are_their_definition() -> None:
    draw = torch.Generator().manual_seed(0)
    terms, states = torch.randn(5, 3, generator=draw), torch.randn(2, 4, 3, generator=draw)
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    found = impacts(terms, states, mask, 0.1)
    for passage in range(2):
        for term in range(5):
            tokens = [float(terms[term] @ states[passage, token]) for token in range(4) if mask[passage, token]]
            assert found[passage, term].item() == pytest.approx(np.log1p(max(0.0, max(tokens) + 0.1)), rel=1e-5)


def test_sparta_searches_what_it_was_trained_to_score(dataset: Path, bert: Path, tmp_path: Path) -> None:
    trained = train_quickly("sparta", dataset, bert, tmp_path / "sparta", "max_steps=4")
    assert trained.steps == 4
    system = load_retriever({"kind": "sparta", "model": str(tmp_path / "sparta"), "top_terms": None, "max_length": 24})
    corpus = read_corpus(dataset)
    system.index(corpus)
    query = "amber bridge amber"
    hits = system.search([query], 40)
    model, tokenizer, bias = SpartaEncoder(str(tmp_path / "sparta")).parts
    ids = tokenizer(query, add_special_tokens=False)["input_ids"]
    scores = []
    for text in corpus.texts:
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=24)).last_hidden_state
            vectors = model.get_input_embeddings().weight[ids]  # amber twice, as it is asked twice
            found = impacts(vectors, states, torch.ones(states.shape[:2], dtype=torch.bool), bias)
        scores.append(float(found.sum()))
    best = [place for place in np.argsort(-np.array(scores), kind="stable") if scores[place] > 0]
    assert hits.scores[0, : len(best)].tolist() == pytest.approx([scores[place] for place in best], rel=1e-4)
    assert not isinstance(system, DeepCT) and isinstance(system, Sparta)
    rows = SpartaEncoder(str(tmp_path / "sparta"), top_terms=3).encode(corpus.texts[:2], "passage")
    assert all(len(terms) <= 3 for terms, _ in rows)
    with pytest.raises(ModelError, match="is not a SPARTA model"):
        SpartaEncoder(str(bert)).encode(["a"], "passage")


def test_beirs_sparta_checkpoint_loads(dataset: Path, bert: Path, tmp_path: Path) -> None:
    """Its layout: DistilBertModel and its tokenizer, nothing of SPARTA in config.json; BEIR's code adds the rest."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    torch.manual_seed(3)
    config = transformers.DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, n_layers=1, n_heads=2, hidden_dim=32, initializer_range=0.4
    )
    model = transformers.DistilBertModel(config).eval()
    folder = tmp_path / "sparta-msmarco"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    corpus, queries = read_corpus(dataset), ["amber bridge amber", "stone"]
    # After beir/retrieval/models/sparta.py: embeddings of special tokens are zero, no b, the k highest terms.
    with torch.inference_mode():
        terms = model.embeddings.word_embeddings.weight.clone()
        terms[tokenizer.all_special_ids] = 0
        wanted = np.zeros((len(queries), len(corpus)))
        for place, text in enumerate(corpus.texts):
            states = model(**tokenizer(text, truncation=True, max_length=500, return_tensors="pt")).last_hidden_state[0]
            impact = torch.log(torch.relu((terms @ states.T).max(dim=-1).values) + 1)
            kept = torch.topk(impact, 20).indices
            sparse = torch.zeros_like(impact).index_put((kept,), impact[kept])
            for row, query in enumerate(queries):
                ids = tokenizer(query, add_special_tokens=False)["input_ids"]
                wanted[row, place] = float(sparse[ids].sum())
    spec = {"kind": "sparta", "model": str(folder), "bias": 0, "max_length": 500, "top_terms": 20}
    system = load_retriever(spec)
    system.index(corpus)
    hits = system.search(queries, len(corpus))
    assert (hits.positions >= 0).any()
    for row in range(len(queries)):
        found = dict(zip(hits.positions[row].tolist(), hits.scores[row].tolist(), strict=True))
        for place in range(len(corpus)):
            assert found.get(place, 0.0) == pytest.approx(wanted[row, place], rel=1e-4, abs=1e-5)
    facts = system.facts
    assert facts.parameters == sum(weights.numel() for weights in model.parameters()) and facts.device == "cpu"
    with pytest.raises(ModelError, match="set `bias: 0`"):
        SpartaEncoder(str(folder)).encode(["a"], "passage")


def test_an_llm_expands_and_is_paid_once(dataset: Path, tmp_path: Path) -> None:
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text("name: p\ntask: qa\ncorpus: none.yaml\ntarget: 1\nllm: {backend: scripted}\n")
    out = tmp_path / "llm.jsonl"
    asked = ["train", "expand", dataset, "--pipeline", pipeline, "--out", out, "--count", 3, "--json"]
    found = json.loads(call(*asked))
    assert found["passages"] + sum(found["failed"].values()) == 40 and found["passages"] > 30
    first = out.read_bytes()
    system = load_retriever({"kind": "expanded", "expansions": str(out)})
    system.index(read_corpus(dataset))
    pipeline.write_text(
        "name: p\ntask: qa\ncorpus: none.yaml\ntarget: 1\nllm: {backend: scripted, faults: {refuse: 1.0}}\n"
    )
    call(*asked)
    assert out.read_bytes() == first  # from the answers on the disk: the model would now refuse
