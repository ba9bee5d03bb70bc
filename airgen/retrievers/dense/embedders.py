"""Embedders of sentence-transformers, by Hub name, folder or catalogue name."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen import models
from airgen.errors import ModelError
from airgen.models.catalogue import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import Component, ModelFacts, TextKind, finite, unit_rows
from airgen.settings.base import MODEL, SPEED
from airgen.settings.parts import located


def loaded(what: str, name: str, make: Any, **settings: Any) -> Any:
    """`make(**settings)`, its failures as one ModelError that says what to do."""
    try:
        return make(**settings)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ModelError(
            f"{what} {name} cannot be loaded ({reason}): give a Hub name that can be reached, a folder, "
            "or a model of `airgen show models`"
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide the progress bars of transformers, and its warnings about heads that a model does not need."""
    logging = load_extra("transformers", "a model").utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def with_tokenizer(kind: str, what: str, name: str, place: str, device: str | None) -> tuple[Any, Any]:
    """A model of transformers' class `kind`, on a GPU if there is one, and its tokenizer. Raises ModelError."""
    transformers = load_extra("transformers", f"{what} {name!r}")
    model, tokenizer = [
        loaded(what, name, getattr(transformers, one).from_pretrained, pretrained_model_name_or_path=place)
        for one in (kind, "AutoTokenizer")
    ]
    usual = "cuda" if load_extra("torch", f"{what} {name!r}").cuda.is_available() else "cpu"
    return model.to(device or usual).eval(), tokenizer


class TorchModel(Component):
    """A component that runs a model with torch; it is loaded at its first use."""

    class Settings(Component.Settings):
        """`model` is a Hub name, a folder, or a name of the catalogue."""

        model: Annotated[str, MODEL]
        device: Annotated[str | None, SPEED] = None

    settings: Settings
    travels = True

    def set_up(self) -> None:
        self.name = self.settings.model

    @cached_property
    def model(self) -> Any:
        """The library's model, loaded at first use. A training sets its own, to search with it."""
        raise NotImplementedError

    @cached_property
    def _hash(self) -> str:
        return weights_hash(self.place(self.name))

    @property
    def facts(self) -> ModelFacts:
        return torch_facts(self.model)


def torch_facts(model: Any) -> ModelFacts:
    """Parameters, device and threads of a model; a wrapper's are those of the module inside it."""
    torch = load_extra("torch", "a neural model")
    module = next((part for part in (model, getattr(model, "model", None)) if isinstance(part, torch.nn.Module)), None)
    if module is None:
        return ModelFacts(device=None)
    sizes = [(weights.numel(), weights.device) for weights in module.parameters()]
    device = str(sizes[0][1]) if sizes else "cpu"
    return ModelFacts(
        sum(size for size, _ in sizes) or None, device, torch.get_num_threads() if device == "cpu" else None
    )


class LibraryModel(TorchModel):
    """A model of sentence-transformers."""

    class Settings(TorchModel.Settings):
        """`revision` is one of the Hub's."""

        packages: ClassVar[tuple[str, ...]] = ("sentence_transformers",)
        revision: str | None = None

    settings: Settings

    def loaded(self, kind: str, what: str, name: str | None = None, **settings: Any) -> Any:
        """The model, or another by name, as the library's class `kind`. Raises ModelError if it cannot be loaded."""
        library = load_extra("sentence_transformers", f"{what} {self.name!r}")
        if not hasattr(library, kind):
            raise ModelError(f"this sentence-transformers has no {kind}: pip install -U sentence-transformers")
        revision = self.settings.revision if name in (None, self.name) else None
        own = {"device": self.settings.device, "revision": revision, **settings}
        chosen = name or self.name
        return loaded(what, chosen, getattr(library, kind), model_name_or_path=self.place(chosen), **own)

    def side(self, kind: TextKind) -> Any:
        """What encodes texts of a kind, for models that treat queries and documents apart."""
        return self.model.encode_query if kind == "query" else self.model.encode_document

    @property
    def local(self) -> dict[str, object]:
        """For a folder of the user: the hash of its files, because a changed folder is another model."""
        return {"sha256": self._hash} if self._hash else {}


def as_array(found: Any) -> NDArray[np.float32]:
    """What the library gives, from whatever device."""
    return np.asarray(found.cpu() if hasattr(found, "cpu") else found, np.float32)


class SentenceTransformersEmbedder(LibraryModel):
    """An embedding model of sentence-transformers."""

    class Settings(LibraryModel.Settings):
        """A prefix stands before every text; an instruction is a prefix.

        Prefixes that are not given are those that a local folder names as its prompts. `pooling` replaces the model's
        own. `max_length` counts tokens and is cut to what the model can take. With the similarity `dot`, vectors keep
        their lengths; by default it is what a local folder names, else the cosine. `query_model` is another encoder for
        queries, as DPR has one.
        """

        query_prefix: str | None = None
        passage_prefix: str | None = None
        pooling: Literal["mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"] | None = None
        max_length: int = Field(default=512, ge=1)
        batch_size: Annotated[int, SPEED] = Field(default=32, ge=1)
        similarity: Literal["cosine", "dot"] | None = None
        query_model: Annotated[str | None, MODEL] = None

    settings: Settings

    def set_up(self) -> None:
        super().set_up()
        chosen, config = self.settings, _config(located(self.name, self.folder))
        prompts: Mapping[str, Any] = config.get("prompts") or {}
        own = {key: value for key, value in prompts.items() if isinstance(value, str)}
        self._dot = (chosen.similarity or config.get("similarity_fn_name")) == "dot"
        query, passage = own.get("query", ""), own.get("document", own.get("passage", ""))
        self._prefix = {
            "query": query if chosen.query_prefix is None else chosen.query_prefix,
            "passage": passage if chosen.passage_prefix is None else chosen.passage_prefix,
        }

    @cached_property
    def model(self) -> Any:
        model = self._made(self.name)
        trained_for = model.similarity_fn_name
        if self.settings.similarity is None and trained_for != ("dot" if self._dot else "cosine"):
            what = f"{self.name} was trained for the similarity {trained_for!r}"
            raise ModelError(f"{what}: beside it, set `similarity: dot` or `cosine`")
        return model

    @cached_property
    def _query_model(self) -> Any:
        return self.model if self.settings.query_model is None else self._made(self.settings.query_model)

    def _made(self, name: str) -> Any:
        model = self.loaded("SentenceTransformer", "the model", name)
        limit = getattr(getattr(model[0], "auto_model", None), "config", None)
        positions = getattr(limit, "max_position_embeddings", None) or self.settings.max_length
        model.max_seq_length = min(self.settings.max_length, positions)
        if self.settings.pooling is not None:
            for place, module in enumerate(model):
                if type(module).__name__ == "Pooling":
                    width = module.get_config_dict().get("embedding_dimension") or model[0].get_embedding_dimension()
                    model[place] = type(module)(width, pooling_mode=self.settings.pooling)
        return model

    @cached_property
    def dim(self) -> int:
        model = self.model
        size = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(size())

    @property
    def facts(self) -> ModelFacts:
        """Those of both encoders, where queries have one of their own."""
        return super().facts + (
            torch_facts(self._query_model) if self.settings.query_model else ModelFacts(device=None)
        )

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Unit vectors, or with the similarity `dot` vectors as the model gives them; (n, dim)."""
        prefix = self._prefix[kind]
        model = self._query_model if kind == "query" else self.model
        vectors = model.encode(
            [prefix + text for text in texts],
            batch_size=self.settings.batch_size,
            convert_to_numpy=True,
            normalize_embeddings=False,
            show_progress_bar=False,
        )
        shaped = np.asarray(vectors, np.float32).reshape(len(texts), -1)
        vectors = finite(shaped, self.name)
        return vectors if self._dot else unit_rows(vectors)

    def describe(self) -> Mapping[str, object]:
        second = self.settings.query_model
        return {
            **self.described("sentence-transformers", "model", "revision", "pooling", "max_length"),
            **(models.identity(self.name) or {"sha256": self._hash}),
            **{f"{kind}_prefix": prefix for kind, prefix in self._prefix.items()},
            **({"similarity": "dot"} if self._dot else {}),
            **({"query_model": second, "query_sha256": weights_hash(self.place(second))} if second else {}),
        }


def _config(folder: Path) -> dict[str, Any]:
    """What sentence-transformers writes of itself into a model's folder."""
    try:
        config = json.loads((folder / "config_sentence_transformers.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not such a folder: loading the model will say what is wrong
        return {}
    return config if isinstance(config, dict) else {}
